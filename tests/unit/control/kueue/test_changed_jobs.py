"""A job in Kueue that is changed while it waits, or while it holds quota and its checks are pending."""

from typing import Any

import pytest
from tests.unit.control.jobs import Jobs, role
from tests.unit.control.kueue.test_kueue_jobs import QUEUE, Kueue
from tests.unit.control.kueue.test_one_admitter import label, settle, waiting_in_kueue

from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PRIORITY_CLASSES, TRAINING_JOBS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS

PENDING = [{"name": "nodes", "state": "Pending", "message": "it asks for nodes"}]
READY = [{"name": "nodes", "state": "Ready", "message": "nodes are there"}]
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


def assigned(workload: Object) -> Object:
    """Quota for all pods that the Workload asks for now."""
    sets = [
        {"name": pod_set["name"], "count": pod_set["count"], "flavors": {}}
        for pod_set in workload["spec"]["podSets"]
    ]
    return {"clusterQueue": "q", "podSetAssignments": sets}


async def reserve(kueue: Kueue) -> Object:
    """Quota is reserved, and a check is pending; gives what was reserved."""
    admission = assigned(kueue.workload())
    statuses = {"QuotaReserved": "True", "Admitted": "False", "Evicted": "False"}
    await kueue._set("train", statuses, admission=admission, admissionChecks=PENDING)
    return admission


async def finish_checks(kueue: Kueue, admission: Object) -> None:
    """The check is ready, and Kueue admits what it has reserved quota for."""
    statuses = {"QuotaReserved": "True", "Admitted": "True", "Evicted": "False"}
    await kueue._set("train", statuses, admission=admission, admissionChecks=READY)


def quota_reason(kueue: Kueue) -> str:
    """Why the Workload holds no quota."""
    conditions = kueue.workload()["status"]["conditions"]
    return next(str(condition["reason"]) for condition in conditions if condition["type"] == "QuotaReserved")


def gpus_of(jobs: Jobs) -> int:
    """GPUs of the job's pods, together."""
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in jobs.pods("train")]
    return sum(int(limit["nvidia.com/gpu"]) for limit in limits)


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "more workers": ({}, {"workers": 8}),
    "more GPUs": ({}, {"replicaSpecs": [{"name": "Worker", **role(1, gpus=8)}]}),
    "more workers of an elastic gang": (
        {"elastic": {"minReplicas": 1, "maxReplicas": 8}},
        {"workers": 8},
    ),
    "more workers of an elastic job without a gang": (
        {"elastic": {"minReplicas": 1, "maxReplicas": 8}, "scheduling": {"gang": False}},
        {"workers": 8},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_job_that_is_changed_while_a_check_is_pending_gives_its_quota_back_and_asks_again(
    name: str,
) -> None:
    spec, change = CHANGES[name]
    change = {key: without_replicas(value) for key, value in change.items()}
    async with Jobs(gpus={"a": 8, "b": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs, workers=1, gpus=1, **spec)
        await reserve(kueue)
        await settle(jobs, 0.2)
        assert kueue.condition("QuotaReserved") == "True"
        await jobs.change(**change)
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        # Until its Workload has followed, Kueue may not reserve quota for the old pods again: it is quicker.
        assert quota_reason(kueue) == "OnHold" or asked_gpus(kueue.workload()) == 8
        workload = kueue.workload()
        assert "admission" not in workload["status"]
        assert [check["state"] for check in workload["status"]["admissionChecks"]] == ["Pending"]
        await jobs.until(lambda: asked_gpus(kueue.workload()) == 8)
        await jobs.until(lambda: quota_reason(kueue) == "Pending")
        await finish_checks(kueue, await reserve(kueue))
        await jobs.until(lambda: gpus_of(jobs) == 8)
        await jobs.until_running()


def without_replicas(value: Any) -> Any:
    """Roles as a spec has them: the number of workers stands next to them."""
    if not isinstance(value, list):
        return value
    return [{key: role[key] for key in role if key != "replicas"} for role in value]


def asked_gpus(workload: Object) -> int:
    """GPUs that a Workload asks for."""
    return sum(
        pod_set["count"]
        * int(pod_set["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        for pod_set in workload["spec"]["podSets"]
    )


@pytest.mark.parametrize("name", CHANGES)
async def test_kueue_that_admits_what_a_job_was_before_it_was_changed_starts_nothing(name: str) -> None:
    spec, change = CHANGES[name]
    change = {key: without_replicas(value) for key, value in change.items()}
    async with Jobs(gpus={"a": 8, "b": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs, workers=1, gpus=1, **spec)
        before = await reserve(kueue)
        await jobs.stop()
        # While no operator works, the job is changed and Kueue admits what it was.
        await jobs.change(**change)
        await finish_checks(kueue, before)
        await jobs.start()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        assert not jobs.pods("train")
        await jobs.until(lambda: asked_gpus(kueue.workload()) == 8)
        await finish_checks(kueue, await reserve(kueue))
        await jobs.until(lambda: gpus_of(jobs) == 8)


async def test_quota_for_fewer_pods_than_the_workload_asks_for_starts_nothing() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs, workers=4)
        await kueue.admit(counts={"worker": 2})
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        assert not jobs.pods("train")


async def test_a_job_that_goes_to_another_queue_while_a_check_is_pending_gives_its_quota_back() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs)
        await reserve(kueue)
        await label(jobs, "other")
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        await jobs.until(lambda: kueue.workload()["spec"]["queueName"] == "other")
        await jobs.until(lambda: jobs.status().get("queueName") == "other")


@pytest.mark.parametrize("gang", [True, False])
async def test_an_elastic_job_that_runs_keeps_the_workers_that_kueue_admitted(gang: bool) -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        bounds = {"minReplicas": 1, "maxReplicas": 8}
        kueue = await waiting_in_kueue(jobs, workers=2, elastic=bounds, scheduling={"gang": gang})
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.until_running()
        await jobs.change(workers=8)
        await settle(jobs, 0.5)
        assert (jobs.bound("train"), kueue.condition("QuotaReserved")) == (2, "True")
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        passes = jobs.passes
        await settle(jobs, 0.3)
        assert jobs.passes == passes
        # The next admission is for as many as it asks for by then.
        await kueue.evict()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        await jobs.until(lambda: asked_gpus(kueue.workload()) == 8)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 8)


async def put_classes(jobs: Jobs) -> None:
    for kind in (PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES):
        for name, value in (("low", -5), ("urgent", 100)):
            obj = {"kind": kind.kind, "metadata": {"name": name}, "value": value}
            await jobs.server.create(kind, obj=obj)


async def put_label(jobs: Jobs, name: str | None) -> None:
    patch = {"metadata": {"labels": {PRIORITY_LABEL: name}}}
    await jobs.server.merge(TRAINING_JOBS, name="train", namespace="n", patch=patch)


def priority(kueue: Kueue) -> tuple[int, str]:
    """Of the Workload: value and class."""
    spec = kueue.workload()["spec"]
    return spec["priority"], (spec.get("priorityClassRef") or {}).get("name", "")


async def test_a_job_that_waits_gets_the_priority_of_another_class() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        await put_classes(jobs)
        kueue = await waiting_in_kueue(jobs, scheduling={"priorityClassName": "low"})
        assert priority(kueue) == (-5, "low")
        assert kueue.workload()["spec"]["priorityClassRef"]["group"] == "scheduling.k8s.io"
        await jobs.change(scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: priority(kueue) == (100, "urgent"))
        assert kueue.workload()["spec"]["podSets"][0]["template"]["spec"]["priorityClassName"] == "urgent"


@pytest.mark.parametrize("runs", [False, True])
async def test_a_job_gets_the_priority_of_another_class_of_kueue_whether_it_waits_or_runs(runs: bool) -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        await put_classes(jobs)
        kueue = Kueue(jobs)
        await jobs.create(labels={**QUEUE, PRIORITY_LABEL: "low"})
        await jobs.until(kueue.there)
        assert priority(kueue) == (-5, "low")
        if runs:
            await kueue.admit()
            await jobs.until_running()
        await put_label(jobs, "urgent")
        await jobs.until(lambda: priority(kueue) == (100, "urgent"))


async def test_a_job_that_waits_gets_and_loses_a_class_and_a_class_that_comes_late_counts() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs)
        assert priority(kueue) == (0, "")
        await put_label(jobs, "urgent")
        await settle(jobs, 0.2)
        assert priority(kueue) == (0, "")  # there is none of that name yet
        await put_classes(jobs)
        await jobs.server.merge(
            TRAINING_JOBS, name="train", namespace="n", patch={"metadata": {"annotations": {"a": "b"}}}
        )
        await jobs.until(lambda: priority(kueue) == (100, "urgent"))
        await put_label(jobs, None)
        await jobs.until(lambda: priority(kueue) == (0, ""))


async def test_a_priority_that_somebody_gave_the_workload_itself_stays() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        await put_classes(jobs)
        kueue = await waiting_in_kueue(jobs, scheduling={"priorityClassName": "low"})
        workload = kueue.workload()["metadata"]["name"]
        await jobs.server.merge(WORKLOADS, name=workload, namespace="n", patch={"spec": {"priority": 7}})
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 60})
        await settle(jobs, 0.3)
        assert priority(kueue) == (7, "low")
