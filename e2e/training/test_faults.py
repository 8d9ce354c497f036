"""A training job lives through the loss of everything around it: operator, scheduler with extender, master, a
worker it reads from; and what came back in their place places the next job by its data.

Uses the example Dataset, which is whole on two of the three nodes.
"""

from collections.abc import Set
from typing import Any

import pytest

from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest, logs_of, reading_job, succeeded
from e2e.support.reading import SYSTEM
from tdcs_local import demo
from tdcs_local.kind.kubectl import Kubectl, condition
from tdcs_local.progress import Reporter

JOB = "survivor"
AFTER = "placed-after"
WORKER = "tdcs.io/component=worker"
LOST = (
    "app.kubernetes.io/component=operator",
    "app.kubernetes.io/component=scheduler",
    "tdcs.io/component=master",
    WORKER,
)
"""One pod of each is killed, the scheduler's with its extender; of the workers one that the job reads from."""

# Every file again and again, until they shall end; a read that fails shows as another sum.
READ_UNTIL_END = f"until [ -e /tmp/end ]; do ({PRINT_CHECKSUMS}); done; echo ended"


@pytest.fixture(scope="module")
def held(tdcs: None, store_filled: None, kubectl: Kubectl, reporter: Reporter) -> dict[str, int]:
    """The nodes that hold the example Dataset, which is loaded if it is not."""
    return demo.load_dataset(reporter=reporter, kubectl=kubectl).held


def pods_of(kubectl: Kubectl) -> list[dict[str, Any]]:
    return kubectl.list("pods", namespace=demo.NAMESPACE, selector=f"tdcs.io/training-job={JOB}")


def has_read(kubectl: Kubectl, *, rounds: int) -> str | None:
    """What is missing until every pod has read all files so often; None when nothing is."""
    phases = [pod["status"].get("phase") for pod in pods_of(kubectl)]
    if phases != ["Running"] * 2:
        return f"its pods are {phases}"
    counts = [len(log.splitlines()) for log in logs_of(kubectl, JOB)]
    return None if min(counts) >= rounds else f"rounds read by each pod: {counts}"


def kill(kubectl: Kubectl, selector: str, *, nodes: Set[str] | None = None) -> None:
    """Kill one pod without notice, on one of these nodes if any are given, and wait until another one is ready in its
    place."""
    pods = kubectl.list("pods", namespace=SYSTEM, selector=selector)
    victims = [pod["metadata"] for pod in pods if nodes is None or pod["spec"].get("nodeName") in nodes]
    assert victims, f"no pod with {selector} on {nodes}"
    victim = victims[0]
    kubectl("delete", "pod", victim["name"], "-n", SYSTEM, "--grace-period=0", "--force")

    def back() -> str | None:
        pods = kubectl.list("pods", namespace=SYSTEM, selector=selector)
        if any(pod["metadata"]["uid"] == victim["uid"] for pod in pods):
            return f"{victim['name']} is still there"
        ready = [condition(pod, "Ready").get("status") == "True" for pod in pods]
        return (
            None if ready and all(ready) else f"{sum(ready)} of {len(ready)} pods with {selector} are ready"
        )

    kubectl.wait(back, what=f"no pod came in the place of {victim['name']}", seconds=180)


def starts_where_its_data_is(kubectl: Kubectl, *, total: int, image: str) -> None:
    """What came back places a new job by its data. The running one fills the nodes that held it, so that ordinary
    scoring would choose the third; that has it if the killed worker was away for so long that its copy was made there.
    """
    kubectl.apply(reading_job(AFTER, image=image, workers=2, script=PRINT_CHECKSUMS))
    status = succeeded(kubectl, AFTER)
    placed = [pod["node"] for pod in status["placement"]]
    assert len(placed) == 2
    assert set(placed) <= set(demo.node_bytes(kubectl))
    assert [pod["cachedBytes"] for pod in status["placement"]] == [total] * 2
    assert status["locality"] == 1.0
    assert [log.split()[0] for log in logs_of(kubectl, AFTER)] == [expected_digest()] * 2


@pytest.mark.deep(
    "e2e/chaos/test_chaos.py::test_whatever_fails_no_byte_is_wrong_every_job_ends_and_nothing_is_left"
)
def test_a_running_job_reads_on_and_succeeds_whatever_is_killed_around_it(
    held: dict[str, int], kubectl: Kubectl, toolbox: str
) -> None:
    for name in (JOB, AFTER):
        kubectl.delete("trainingjobs.tdcs.io", name, namespace=demo.NAMESPACE)
    job = reading_job(JOB, image=toolbox, workers=2, script=READ_UNTIL_END)
    job["spec"]["runPolicy"] = {"backoffLimit": 0}
    kubectl.apply(job)
    kubectl.wait(lambda: has_read(kubectl, rounds=1), what=f"the pods of {JOB} do not read", seconds=180)

    read_from = {pod["spec"]["nodeName"] for pod in pods_of(kubectl)} & set(held)
    assert read_from, "the job reads on no node that holds its data"
    for selector in LOST:
        kill(kubectl, selector, nodes=read_from if selector == WORKER else None)

    rounds = max(len(log.splitlines()) for log in logs_of(kubectl, JOB))
    kubectl.wait(
        lambda: has_read(kubectl, rounds=rounds + 1), what=f"the pods of {JOB} stopped reading", seconds=180
    )
    starts_where_its_data_is(kubectl, total=max(held.values()), image=toolbox)
    for pod in pods_of(kubectl):
        kubectl("exec", pod["metadata"]["name"], "-n", demo.NAMESPACE, "--", "touch", "/tmp/end")
    status = succeeded(kubectl, JOB)

    assert status["locality"] == 1.0
    assert {pod["node"] for pod in status["placement"]} <= set(held)
    assert [role_status.get("failed", 0) for role_status in status["replicaStatuses"]] == [0]
    for log in logs_of(kubectl, JOB):
        *sums, end = log.splitlines()
        assert end == "ended"
        assert {line.split()[0] for line in sums} == {expected_digest()}
