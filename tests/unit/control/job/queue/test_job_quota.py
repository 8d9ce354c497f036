"""A namespace's quotas: a gang is let in when they leave room for all its pods, and says which one does not."""

import pytest
from tests.unit.control.jobs import Jobs, role
from tests.unit.decide.queue.test_namespace_quota import quota

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.namespace_quota import Allowances, QuotaCharge
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.wait_message import waiting_admission
from tdcs.model.kube_resources import RESOURCE_QUOTAS

GPU = "nvidia.com/gpu"
GPUS = f"requests.{GPU}"


def waiting(name: str, pods: int, *, age: float = 0, namespace: str = "n", passed: int = 0) -> QueuedJob:
    charge = QuotaCharge(quota="team", takes={GPUS: pods})
    group = PodGroup(count=pods, request={GPU: 1, "pods": 1})
    return QueuedJob(
        key=(namespace, name),
        uid=name,
        priority=0,
        submitted=-age,
        data_ready=True,
        passed=passed,
        groups=(group,),
        charges=(charge,) if namespace == "n" else (),
    )


def line(*members: QueuedJob, used: int, max_passes: int = 64) -> Schedule:
    """The queue on one large node, in a namespace that may have 8 GPUs."""
    node = {"a": {GPU: 100, "pods": 110}}
    allowances = Allowances({("n", "team"): quota({GPUS: "8"}, used={GPUS: str(used)})})
    return schedule(
        waiting=members,
        nodes=Nodes(free=node, capacity=node),
        max_passes=max_passes,
        allowances=allowances,
    )


def entering(decision: Schedule) -> list[str]:
    return [member.uid for member in decision.admitted]


def test_jobs_enter_until_the_quota_is_used_up() -> None:
    decision = line(waiting("a", 3, age=3), waiting("b", 3, age=2), waiting("c", 3, age=1), used=1)
    assert entering(decision) == ["a", "b"]
    admission = waiting_admission(decision, "c")
    assert admission.reason is Reason.QUOTA
    assert f"ResourceQuota team leaves 1 of 8 {GPUS}, its pods ask for 3" in admission.message


def test_who_lacks_quota_holds_up_nobody_and_gets_no_nodes_set_aside() -> None:
    rich = waiting("rich", 90, age=1, namespace="other")
    decision = line(waiting("poor", 9, age=9, passed=1000), rich, used=0)
    assert entering(decision) == ["rich"]
    assert (decision.holder, dict(decision.passed)) == ("", {})


@pytest.mark.failure_mode("quota-too-small-for-gang")
def test_in_one_namespace_a_job_is_passed_only_so_often() -> None:
    large, small = waiting("large", 8, age=9, passed=1), waiting("small", 1)
    decision = line(large, small, used=2, max_passes=2)
    assert entering(decision) == ["small"]
    assert decision.passed == {"large": 2}
    closed = line(waiting("large", 8, age=9, passed=2), small, used=2, max_passes=2)
    assert entering(closed) == []
    assert "are kept for n/large" in waiting_admission(closed, "small").message
    assert entering(line(waiting("large", 8, age=9, passed=2), small, used=0, max_passes=2)) == ["large"]
    # One that no quota will ever let in closes nothing.
    assert entering(line(waiting("giant", 9, age=9, passed=2), small, used=2, max_passes=2)) == ["small"]


async def test_a_gang_waits_for_its_quota_as_it_does_for_nodes() -> None:
    async with Jobs(gpus={"a": 8}) as jobs:
        await jobs.server.create(RESOURCE_QUOTAS, obj=quota({GPUS: "4"}))

        async def set_used(gpus: int) -> None:
            """What the API server keeps count of."""
            status = {"status": {"used": {GPUS: str(gpus)}}}
            await jobs.server.merge(RESOURCE_QUOTAS, name="team", namespace="n", patch=status)

        await jobs.create("first", workers=3)
        await jobs.until(lambda: jobs.bound("first") == 3)
        await set_used(3)
        await jobs.create("second", workers=3)
        await jobs.until(lambda: jobs.status("second").get("reason") == "QuotaTooSmall")
        assert jobs.status("second")["state"] == "Queued"
        assert f"ResourceQuota team leaves 1 of 4 {GPUS}" in jobs.status("second")["message"]
        assert not jobs.pods("second")
        await jobs.until(lambda: jobs.status("first").get("state") == "Succeeded", kubelet=True)
        await set_used(0)
        await jobs.until(lambda: jobs.bound("second") == 3)


async def test_pods_that_are_let_in_and_not_made_yet_count_against_the_quota() -> None:
    async with Jobs(gpus={"a": 8}) as jobs:
        await jobs.server.create(RESOURCE_QUOTAS, obj=quota({GPUS: "4"}))
        for name in ("first", "second"):
            await jobs.create(name, roles={"Worker": role(3, gpus=1)})
        # Nobody makes pods, so the quota's own count stays at nothing.
        await jobs.until(
            lambda: (
                {jobs.status(name).get("state") for name in ("first", "second")} == {"Starting", "Queued"}
            ),
            play=False,
        )
