"""Stories of copies that grow onto the nodes of jobs which their own nodes have no room for."""

from collections.abc import AsyncIterator, Sequence

import pytest
from tests.unit.control.workers import WorkersCluster

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, TRAINING_JOBS

MB = 1_000_000
SIZE = 40 * MB
FILES = {f"{number:02}.bin": MB for number in range(40)}
NOW = "2026-01-01T00:00:00Z"


@pytest.fixture
async def cluster() -> AsyncIterator[WorkersCluster]:
    """Three nodes, each with room for the dataset and more."""
    async with WorkersCluster(sources={"s3://pictures": FILES}, nodes="abc", capacity=100 * MB) as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"})
        await cluster.until_workers("abc")
        yield cluster


async def run_job(cluster: WorkersCluster, *nodes: str, way: str = "Grow", name: str = "train") -> None:
    """A job was admitted, and its status says on which nodes it and its data meet."""
    meeting = {"way": way, "nodes": sorted(nodes), "decidedTime": NOW}
    await write(cluster, name, conditions=[names.ADMITTED], copies=[("pictures", meeting)])


async def end_job(cluster: WorkersCluster, name: str = "train") -> None:
    await write(cluster, name, conditions=[names.ADMITTED, names.SUCCEEDED], copies=[])


async def write(
    cluster: WorkersCluster, name: str, *, conditions: Sequence[str], copies: Sequence[tuple[str, Object]]
) -> None:
    store = cluster.server.store(TRAINING_JOBS)
    store["n", name] = {
        "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": NOW},
        "spec": {"datasets": [{"name": "pictures", "mountPath": "/data"}]},
        "status": {
            "conditions": [{"type": kind, "status": "True", "reason": "x"} for kind in conditions],
            "copies": [{"dataset": dataset, "copy": "0", "meeting": meeting} for dataset, meeting in copies],
        },
    }
    cluster.context.queue.add(WorkKey(DATASETS, "n", "pictures"))  # as the operator's handlers do


async def test_the_copy_is_on_the_jobs_node_before_its_pods_are_and_the_source_is_read_once(
    cluster: WorkersCluster,
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    (first,) = cluster.nodes()
    second, third = sorted({*"abc"} - {first})
    await run_job(cluster, second)
    await cluster.until(lambda: cluster.nodes().get(second) == SIZE)
    await run_job(cluster, second, third)
    await cluster.until(lambda: cluster.nodes().get(third) == SIZE)
    assert cluster.nodes()[second] == SIZE
    await end_job(cluster)
    await cluster.quiet()
    assert cluster.nodes()[second] == SIZE  # the next job may come soon
    assert cluster.engine.source_bytes_read == SIZE


@pytest.mark.parametrize(
    ("placement", "holds"), [({"mode": "Auto"}, "ac"), ({"mode": "Auto", "nodeCount": 1}, "?")]
)
async def test_a_copy_is_on_as_many_nodes_as_the_jobs_that_wait_need_unless_the_spec_says_how_many(
    cluster: WorkersCluster, placement: Object, holds: str
) -> None:
    cluster.expected_nodes = frozenset("ac")
    await write(cluster, "train", conditions=[], copies=[])
    await cluster.create_dataset(placement=placement)
    await cluster.until_state("Ready")
    assert len(cluster.nodes()) == len(holds)
    if "nodeCount" not in placement:
        assert cluster.nodes() == dict.fromkeys(holds, SIZE)
        # Free GPUs change while the job waits: what was begun is not moved about.
        cluster.expected_nodes = frozenset("b")
        cluster.context.queue.add(WorkKey(DATASETS, "n", "pictures"))
        await cluster.quiet()
        assert set(cluster.nodes()) == set(holds)
    assert cluster.engine.source_bytes_read == SIZE


@pytest.mark.parametrize(
    ("way", "placement"),
    [
        ("Remote", {"mode": "Auto"}),
        ("Grow", {"mode": "Auto", "nodeCount": 1}),
        ("Grow", {"mode": "Partition"}),
    ],
)
async def test_nothing_moves_for_a_job_that_reads_remotely_or_where_the_spec_fixes_the_nodes(
    cluster: WorkersCluster, way: str, placement: Object
) -> None:
    await cluster.create_dataset(placement=placement)
    await cluster.until_state("Ready")
    before = cluster.nodes()
    await run_job(cluster, min({*"abc"} - before.keys()), way=way)
    await cluster.quiet()
    assert cluster.nodes() == before


@pytest.mark.parametrize("way", ["Near", "Wait"])
async def test_a_copy_stays_for_a_later_job_when_the_job_that_it_came_for_has_ended(
    cluster: WorkersCluster, way: str
) -> None:
    await cluster.scale(scaling={"scaleDownDelay": "1s"})
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    (first,) = cluster.nodes()
    second, third = sorted({*"abc"} - {first})
    await run_job(cluster, second, third)
    await cluster.until(lambda: cluster.nodes().keys() >= {second, third})
    await run_job(cluster, second, way=way, name="next")
    await end_job(cluster)
    await cluster.until(lambda: cluster.nodes() == {second: SIZE})  # what nobody reads on goes a while after
    await cluster.stop()
    await cluster.start()
    await run_job(cluster, third, name="last")
    await cluster.until(lambda: cluster.nodes() == {second: SIZE, third: SIZE})
    assert cluster.engine.source_bytes_read == SIZE


async def test_a_new_operator_goes_on_with_what_the_jobs_status_says(cluster: WorkersCluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    (first,) = cluster.nodes()
    second = min({*"abc"} - {first})
    await cluster.stop()
    store = cluster.server.store(TRAINING_JOBS)
    meeting = {"way": "Grow", "nodes": [second], "decidedTime": NOW}
    store["n", "train"] = {
        "metadata": {"name": "train", "namespace": "n", "uid": "train", "creationTimestamp": NOW},
        "spec": {"datasets": [{"name": "pictures", "mountPath": "/data"}]},
        "status": {
            "conditions": [{"type": names.ADMITTED, "status": "True", "reason": "x"}],
            "copies": [{"dataset": "pictures", "copy": "0", "meeting": meeting}],
        },
    }
    await cluster.start()
    await cluster.until(lambda: cluster.nodes().get(second) == SIZE)
    assert cluster.engine.source_bytes_read == SIZE
