"""A namespace's quotas: a gang is let in when they leave room for all its pods, and says which one does not."""

from typing import Any

import pytest
from tests.unit.control.jobs import Jobs, role

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.namespace_quota import Allowances, QuotaCharge, charges_of, counts, quota_amounts
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.wait_message import waiting_admission
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import RESOURCE_QUOTAS

GPU = "nvidia.com/gpu"
GPUS = f"requests.{GPU}"
POD: Object = {
    "containers": [
        {"resources": {"limits": {GPU: "2", "memory": "4Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}}
    ]
}


def quota(hard: dict[str, str], *, used: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "team", "namespace": "n"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def test_a_pod_takes_of_a_quota_by_every_name_that_it_may_have() -> None:
    assert quota_amounts(POD) == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 500,
        "requests.cpu": 500,
        "memory": 2**30,
        "requests.memory": 2**30,
        "limits.memory": 4 * 2**30,
        GPUS: 2,
        f"limits.{GPU}": 2,
    }


CLASS = {"scopeName": "PriorityClass", "values": ["high"]}
SCOPES: dict[str, tuple[Object, str, bool]] = {
    "none": ({}, "", True),
    "jobs without a deadline": ({"scopes": ["NotTerminating"]}, "", True),
    "pods with a deadline": ({"scopes": ["Terminating"]}, "", False),
    "pods that ask for nothing": ({"scopes": ["BestEffort"]}, "", False),
    "pods that ask for something": ({"scopes": ["NotBestEffort"]}, "", True),
    "of the class": ({"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "In"}]}}, "high", True),
    "of another class": (
        {"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "In"}]}},
        "low",
        False,
    ),
    "not of the class": (
        {"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "NotIn"}]}},
        "low",
        True,
    ),
    "of no class": (
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}},
        "",
        True,
    ),
    "affinity across namespaces": ({"scopes": ["CrossNamespacePodAffinity"]}, "", False),
}


@pytest.mark.parametrize("name", SCOPES)
def test_a_quota_counts_the_pods_that_its_scopes_select(name: str) -> None:
    scope, priority_class, counted = SCOPES[name]
    assert counts(quota({"pods": "1"}, **scope), POD, priority_class=priority_class) is counted


def test_a_quota_without_room_is_named_with_what_it_leaves() -> None:
    allowances = Allowances({("n", "team"): quota({GPUS: "8", "limits.memory": "20Gi"}, used={GPUS: "5"})})
    charges = charges_of(
        quotas=[("team", quota({GPUS: "8", "limits.memory": "20Gi"}))],
        pods=[(2, POD, quota_amounts(POD))],
        priority_class="",
    )
    message = allowances.short("n", charges)
    assert message == f"ResourceQuota team leaves 3 of 8 {GPUS}, its pods ask for 4"
    assert allowances.ever("n", charges)
    more = charges_of(quotas=[("team", {})], pods=[(5, POD, quota_amounts(POD))], priority_class="")
    assert not allowances.ever("n", more)
    assert allowances.short("other", charges) == ""


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
