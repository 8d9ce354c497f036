"""Jobs share a Dataset that lets one job at a time read each copy: with Suspend they take turns, with Clone two run at
once, the second one on a copy that the first one's node has given.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from e2e.conftest import RESTRICTED, describe
from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest, logs_of, reading_job, succeeded
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

BUCKET = "e2e-sharing"
NAME = "shared"
KIND = "trainingjobs.tdcs.io"
FILES = Made(files=200, size="100KiB")
LIMIT = {"maxConcurrentJobs": 1}

# A job that has read everything goes on until it may end; the first and the last line are the time.
READ_AND_STAY = f"date +%s.%N; ({PRINT_CHECKSUMS}); until [ -e /tmp/end ]; do sleep 0.1; done; date +%s.%N"


@pytest.fixture(scope="module")
def shared(tdcs: None, store_filled: None, kubectl: Kubectl, reporter: Reporter) -> Iterator[str]:
    """A namespace with the Dataset, of which one copy is whole on one node."""
    namespace = f"e2e-sharing-{uuid.uuid4().hex[:8]}"
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
    )
    operations.fill("small", bucket=BUCKET, seeded=FILES, reporter=reporter)
    datasets.grant_access(kubectl, namespace=namespace, reporter=reporter)
    limit(kubectl, namespace, onLimit="Suspend")
    datasets.wait_ready(kubectl, NAME, namespace=namespace)
    yield namespace
    for resource in (KIND, "datasets.tdcs.io"):
        kubectl("delete", resource, "--all", "-n", namespace, "--wait", timeout=180)
    kubectl.delete("namespace", namespace, timeout=300)


def limit(kubectl: Kubectl, namespace: str, **access: Any) -> None:
    """Create the Dataset, or change how many jobs may read it."""
    placement = {"mode": "Replicate", "nodeCount": 1}
    kubectl.apply(
        datasets.dataset(
            NAME, namespace=namespace, bucket=BUCKET, placement=placement, access={**LIMIT, **access}
        )
    )


def create_jobs(kubectl: Kubectl, namespace: str, *names: str, image: str) -> None:
    """Jobs of one worker, applied together."""
    kubectl.apply(
        *(
            reading_job(name, image=image, workers=1, script=READ_AND_STAY, namespace=namespace, dataset=NAME)
            for name in names
        )
    )


def wait_running(kubectl: Kubectl, namespace: str, *, waiting: set[str], count: int) -> dict[str, Object]:
    """Wait until so many of the jobs that are left run, and all others of them wait for a place at the Dataset; the
    statuses of those that run."""
    running: dict[str, Object] = {}

    def look() -> str | None:
        running.clear()
        statuses = {
            job["metadata"]["name"]: job.get("status") or {}
            for job in kubectl.list(KIND, namespace=namespace)
        }
        running.update({name: statuses[name] for name in waiting if statuses[name].get("state") == "Running"})
        wait = {name for name in waiting if statuses[name].get("reason") == "DatasetAtLimit"}
        if len(running) == min(count, len(waiting)) and running.keys() | wait == waiting:
            return None
        return str(
            {name: (statuses[name].get("state"), statuses[name].get("message")) for name in sorted(waiting)}
        )

    kubectl.wait(
        look,
        what=f"not {count} of the jobs {', '.join(sorted(waiting))} run while the others wait for a place",
        seconds=120,
        explain=lambda: describe(kubectl, namespace),
    )
    return running


def end(kubectl: Kubectl, namespace: str, job: str) -> dict[str, Any]:
    """Let a running job end; its last status."""
    with contextlib.suppress(LocalError):  # the pod may have ended before the answer is here
        kubectl("exec", f"job/{job}-worker", "-n", namespace, "--", "touch", "/tmp/end")
    return succeeded(kubectl, job, namespace=namespace)


def read(kubectl: Kubectl, namespace: str, job: str) -> tuple[float, float]:
    """When the pod of a job that has ended began and ended; it has read what the store holds."""
    (log,) = logs_of(kubectl, job, namespace=namespace)
    begin, digest, ended = (line.split()[0] for line in log.splitlines())
    assert digest == expected_digest(BUCKET)
    return float(begin), float(ended)


def test_with_suspend_the_jobs_of_a_dataset_run_one_after_another(
    shared: str, kubectl: Kubectl, toolbox: str
) -> None:
    names = {"turn-1", "turn-2", "turn-3"}
    create_jobs(kubectl, shared, *names, image=toolbox)
    order: list[str] = []
    while waiting := names - {*order}:
        (running,) = wait_running(kubectl, shared, waiting=waiting, count=1)
        for job in waiting - {running}:
            message = (kubectl.get(KIND, job, namespace=shared) or {})["status"]["message"]
            assert f"{shared}/{running} reads it" in message
        end(kubectl, shared, running)
        order.append(running)
    periods = [read(kubectl, shared, job) for job in order]
    assert all(before[1] <= after[0] for before, after in pairwise(periods)), periods


def test_with_clone_two_jobs_run_at_once_on_nodes_of_their_own_and_the_source_sends_nothing(
    shared: str, kubectl: Kubectl, toolbox: str
) -> None:
    names = {"extra-1", "extra-2", "extra-3"}
    total = operations.manifest(BUCKET)["totalBytes"]
    sent = operations.payload_bytes_sent(bucket=BUCKET)
    assert set(datasets.copies_of(kubectl, NAME, namespace=shared)) == {"0"}
    limit(kubectl, shared, onLimit="Clone", maxCopies=2)
    create_jobs(kubectl, shared, *names, image=toolbox)

    running = wait_running(kubectl, shared, waiting=names, count=2)

    copies = datasets.copies_of(kubectl, NAME, namespace=shared)
    assert set(copies) == {"0", "clone-1"}
    assert set(copies["0"]).isdisjoint(copies["clone-1"])
    assert [sum(nodes.values()) for nodes in copies.values()] == [total] * 2
    chosen = {job: status["copies"][0]["copy"] for job, status in running.items()}
    assert set(chosen.values()) == {"0", "clone-1"}
    for job, status in running.items():
        assert {pod["node"] for pod in status["placement"]} <= set(copies[chosen[job]])
        assert status["locality"] == 1.0

    for job in running:
        end(kubectl, shared, job)
    (last,) = wait_running(kubectl, shared, waiting=names - running.keys(), count=1)
    end(kubectl, shared, last)
    periods = {job: read(kubectl, shared, job) for job in names}
    first, second = (periods[job] for job in running)
    assert max(first[0], second[0]) < min(first[1], second[1])
    assert periods[last][0] >= min(first[1], second[1])
    more = operations.payload_bytes_sent(bucket=BUCKET) - sent
    print(json.dumps({"bytes": total, "sent_by_the_source_for_the_clone_and_three_jobs": more}))
    assert more < 0.02 * total
