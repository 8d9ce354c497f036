"""The main job: a dataset is loaded onto two of three nodes, and a training job runs where the data is.

Runs what `make demo` runs, with its files, and asserts what the demo prints.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest, logs_of, reading_job, succeeded
from tdcs_local import demo
from tdcs_local.kind import cluster, images, release
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.progress import Reporter
from tdcs_local.store import operations


@dataclass(frozen=True)
class Cold:
    """The first job, applied together with its Dataset, when nothing was cached: the job, and every status of the
    Dataset on the way; and where the data lay in the end."""

    run: demo.Run
    statuses: list[dict[str, Any]]
    held: dict[str, int]


@pytest.fixture(scope="module")
def cold(tdcs: None, store_filled: None, training_image: None, kubectl: Kubectl, reporter: Reporter) -> Cold:
    """The example Dataset and job, applied to an empty cache: what an earlier run left is deleted first."""
    statuses: list[dict[str, Any]] = []

    def note_status(dataset: dict[str, Any]) -> None:
        statuses.append(dataset.get("status", {}))

    run = demo.cold_run(reporter=reporter, kubectl=kubectl, observe=note_status)
    return Cold(run, statuses, demo.wait_loaded(reporter=reporter, kubectl=kubectl, observe=note_status))


@pytest.fixture
def loaded(cold: Cold) -> dict[str, int]:
    """The bytes of the loaded Dataset on each node."""
    return cold.held


@pytest.fixture
def without_extender(kubectl: Kubectl, reporter: Reporter, tdcs: None) -> Iterator[None]:
    """The same scheduler with its extender switched off, for the time of a test."""
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings={"extender.enabled": "false"})
    yield
    release.install(reporter=reporter, kubectl=kubectl, tags=tags)


def test_the_source_sends_each_byte_once_for_both_copies_and_what_the_job_reads_early_once_more(
    cold: Cold,
) -> None:
    """The files are small, and nodes feed each other all the same. What the job reads, each file in one of its pods,
    before the load has brought it is not kept: with preload, the operator alone says what is in the cache.
    """
    total = operations.manifest(demo.DATASET)["totalBytes"]
    assert cold.run.held == {}
    assert total <= cold.run.source_bytes <= 2 * total
    sizes = [status["physicalBytes"] for status in cold.statuses if "physicalBytes" in status]
    assert any(0 < size < 2 * total for size in sizes)
    assert sizes[-1] == 2 * total


def test_the_dataset_is_whole_on_two_of_three_nodes(loaded: dict[str, int], workers: list[str]) -> None:
    total = operations.manifest(demo.DATASET)["totalBytes"]
    assert len(loaded) == 2
    assert set(loaded) < set(workers)
    assert set(loaded.values()) == {total}


def test_a_job_that_starts_cold_runs_where_its_data_is_being_loaded(cold: Cold) -> None:
    assert len(cold.run.pods) == 2
    assert {pod["node"] for pod in cold.run.pods} <= set(cold.held)
    assert (
        cold.run.locality > 0.5
    )  # one node may have got a little more than the other by then; a third one: 0.5 or 0


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            demo.SECOND,
            id="all-reduce",
            marks=pytest.mark.deep("the same with parameter servers: e2e/training/test_training.py"),
        ),
        pytest.param(demo.PARAMETER_SERVER, id="parameter servers"),
    ],
)
def test_a_later_job_runs_on_the_nodes_with_the_data_and_reads_nothing_from_the_source(
    cold: Cold,
    example: demo.Example,
    kubectl: Kubectl,
    reporter: Reporter,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All-reduce and parameter servers alike; a server itself reads nothing and may be anywhere.

    The workers of the latter read their weights in the order of a plan, as the trace of every step shows.
    """
    run = demo.train(reporter=reporter, kubectl=kubectl, example=example)
    readers = [pod for pod in run.pods if "-ps-0-" not in pod["pod"]]
    assert len(readers) >= 2
    assert {pod["node"] for pod in readers} <= set(cold.held)
    assert run.locality == 1.0
    assert run.local_share == 1.0
    # Nothing but the odd metadata request may reach the source.
    assert run.source_bytes < 0.01 * sum(cold.held.values())
    if example is demo.PARAMETER_SERVER:
        log = kubectl("logs", "-n", demo.NAMESPACE, f"job/{example.name}-chief", "--tail=-1")
        epochs = [json.loads(line) for line in log.splitlines() if line.startswith('{"epoch"')]
        print("\n".join(map(str, epochs)))
        assert [line["order_kept"] for line in epochs] == [1.0, 1.0]
    demo.show([cold.run, run])
    table = capsys.readouterr().out
    names = (demo.FIRST.name, example.name)
    nodes = (node.removeprefix(f"{cluster.name()}-") for node in cold.held)
    assert all(words in table for words in (*names, "nowhere", *nodes))


def test_every_worker_reads_the_very_bytes_that_the_store_holds(
    loaded: dict[str, int], kubectl: Kubectl, toolbox: str
) -> None:
    kubectl.delete("trainingjobs.tdcs.io", "checksums", namespace=demo.NAMESPACE)
    kubectl.apply(reading_job("checksums", image=toolbox, workers=2, script=PRINT_CHECKSUMS))
    succeeded(kubectl, "checksums")
    logs = logs_of(kubectl, "checksums")
    assert len(logs) == 2
    assert [log.split()[0] for log in logs] == [expected_digest()] * 2


@pytest.mark.deep(
    "e2e/training/test_training.py::test_the_same_three_pods_share_the_nodes_with_the_data_when_the_extender_is_on"
)
def test_ten_jobs_of_ten_run_on_the_nodes_with_the_data(
    loaded: dict[str, int], kubectl: Kubectl, toolbox: str
) -> None:
    names = [f"local-{number}" for number in range(10)]
    for name in names:
        kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    placed: list[str] = []
    for pair in zip(names[::2], names[1::2], strict=True):
        for name in pair:
            kubectl.apply(reading_job(name, image=toolbox, workers=2))
        for name in pair:
            status = succeeded(kubectl, name)
            assert status["locality"] == 1.0
            placed += [pod["node"] for pod in status["placement"]]
    assert len(placed) == 20
    assert set(placed) <= set(loaded)


@pytest.mark.deep(
    "tests/controlplane/extender/test_extender_placement.py::test_without_the_extender_pods_are_placed_without_regard_to_data_until_it_is_back"
)
def test_with_the_extender_off_the_same_job_is_placed_without_regard_to_data(
    loaded: dict[str, int], kubectl: Kubectl, workers: list[str], toolbox: str, without_extender: None
) -> None:
    """Three equal pods on three equal nodes: ordinary scoring spreads them, so one lands where no data is."""
    kubectl.delete("trainingjobs.tdcs.io", "spread", namespace=demo.NAMESPACE)
    kubectl.apply(reading_job("spread", image=toolbox, workers=3))
    status = succeeded(kubectl, "spread", seconds=300)
    nodes = {pod["node"] for pod in status["placement"]}
    assert nodes & (set(workers) - set(loaded))
    assert status["locality"] < 1.0


def test_the_same_three_pods_share_the_nodes_with_the_data_when_the_extender_is_on(
    loaded: dict[str, int], kubectl: Kubectl, toolbox: str
) -> None:
    kubectl.delete("trainingjobs.tdcs.io", "gathered", namespace=demo.NAMESPACE)
    kubectl.apply(reading_job("gathered", image=toolbox, workers=3))
    status = succeeded(kubectl, "gathered")
    assert {pod["node"] for pod in status["placement"]} <= set(loaded)
    assert status["locality"] == 1.0
