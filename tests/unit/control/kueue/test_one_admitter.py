"""A TrainingJob has one admitter at a time: the own queue or Kueue. What one decides the other leaves alone."""

import asyncio
from typing import Any

import pytest
from tests.unit.control.builders import dataset, dataset_object
from tests.unit.control.jobs import Jobs
from tests.unit.control.kueue.test_kueue_jobs import GATE, QUEUE, Kueue, suspended
from tests.unit.kube.fake import error

from tdcs.control.kueue import own_workload
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_resources import (
    DATASETS,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    TRAINING_JOBS,
    WORKLOADS,
    Resource,
)

QUEUE_LABEL = next(iter(QUEUE))
READS = [{"name": "pictures", "mountPath": "/data"}]


async def settle(jobs: Jobs, seconds: float = 1.0) -> None:
    """Let the operator and the rest of Kubernetes go on for a while."""
    for _ in range(int(seconds / 0.05)):
        await jobs.play()
        await asyncio.sleep(0.05)


async def label(jobs: Jobs, queue: str | None, name: str = "train") -> None:
    patch = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
    await jobs.server.merge(TRAINING_JOBS, name=name, namespace="n", patch=patch)


def put_dataset(jobs: Jobs, **access: Any) -> None:
    fields = dataset(nodes={"a": 100}).model_dump(by_alias=True, mode="json", exclude_none=True)
    obj = {**dataset_object(), **fields}
    obj["status"]["mountPath"] = "/m/pictures"
    obj["spec"]["access"] = access
    jobs.server.store(DATASETS)["n", "pictures"] = obj


async def waiting_in_kueue(jobs: Jobs, name: str = "train", **spec: Any) -> Kueue:
    kueue = Kueue(jobs)
    await jobs.create(name, labels=QUEUE, **spec)
    await jobs.until(lambda: kueue.there(name))
    await jobs.until(lambda: jobs.status(name).get("state") == "Queued")
    return kueue


async def test_a_job_that_waits_in_kueue_is_left_in_peace_by_the_own_queue() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        await waiting_in_kueue(jobs)
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        await settle(jobs, 0.3)
        before = jobs.passes
        await settle(jobs, 1.0)
        assert jobs.passes == before


async def test_a_job_that_waits_in_kueue_takes_no_room_of_the_own_queue() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        await waiting_in_kueue(jobs, "in-kueue", workers=1, gpus=8)
        await jobs.create("own", workers=1, gpus=8)
        await jobs.until(lambda: jobs.bound("own") == 1)


async def test_a_job_that_waits_in_kueue_has_no_nodes_set_aside_and_no_turn() -> None:
    async with Jobs(gpus={"a": 8, "b": 8}, kueue=True, max_passes=2) as jobs:
        await jobs.stranger("s", node="a", gpus=1)
        await waiting_in_kueue(jobs, "in-kueue", workers=2, gpus=8)
        for number in range(4):
            await jobs.create(f"own{number}", workers=1, gpus=1)
            await jobs.until(lambda number=number: jobs.bound(f"own{number}") == 1)  # type: ignore[misc]


async def test_the_pods_of_a_job_that_kueue_admitted_keep_their_room_in_the_own_queue() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        jobs.refuses = lambda pod: True  # the scheduler has not come to them yet
        kueue = await waiting_in_kueue(jobs, "in-kueue", workers=1, gpus=8)
        await kueue.admit("in-kueue")
        await jobs.until(lambda: len(jobs.pods("in-kueue")) == 1)
        await jobs.create("own", workers=1, gpus=8)
        await jobs.until(lambda: jobs.status("own").get("reason") == "NotEnoughRoom")
        await settle(jobs, 0.3)
        assert not jobs.pods("own")


@pytest.mark.parametrize("reason", ["Deactivated", "DeactivatedDueToRequeuingLimitExceeded"])
async def test_a_workload_that_kueue_or_an_administrator_deactivated_stays_inactive(reason: str) -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        # As Kueue does for a rejected check and its limits, and `kueuectl stop workload`.
        patch = {"spec": {"active": False}}
        await jobs.server.merge(WORKLOADS, name="trainingjob-train", namespace="n", patch=patch)
        await kueue.evict(reason=reason)
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        # Nor does a change of the job by its user make it active.
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 60})
        await settle(jobs)
        assert kueue.workload()["spec"]["active"] is False
        assert suspended(jobs)
        assert "kueuectl resume workload trainingjob-train" in jobs.status()["message"]
        await jobs.server.merge(
            WORKLOADS, name="trainingjob-train", namespace="n", patch={"spec": {"active": True}}
        )
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)


async def test_a_workload_that_was_deactivated_before_its_job_was_suspended_stays_inactive() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs)
        patch = {"spec": {"active": False}}
        await jobs.server.merge(WORKLOADS, name="trainingjob-train", namespace="n", patch=patch)
        for suspend in (True, False):
            await jobs.change(runPolicy={"suspend": suspend})
            await jobs.until(lambda suspend=suspend: (jobs.status()["state"] == "Suspended") is suspend)  # type: ignore[misc]
        await settle(jobs, 0.5)
        assert kueue.workload()["spec"]["active"] is False


async def running_by_quota(jobs: Jobs, name: str = "train", **spec: Any) -> Kueue:
    kueue = await waiting_in_kueue(jobs, name, **spec)
    await kueue.admit(name)
    await jobs.until(lambda: jobs.bound(name) == 2)
    await jobs.run(name)
    await jobs.until_state("Running", name)
    return kueue


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_job_that_loses_its_queue_label_stops_before_its_quota_is_free_and_queues_again(
    restarted: bool,
) -> None:
    async with Jobs(gpus={"a": 2}, kueue=True) as jobs:
        kueue = await running_by_quota(jobs)
        # The garbage of its pods stays for a while: a pod that ends slowly has its GPU until then.
        await label(jobs, None)
        await jobs.until(lambda: suspended(jobs), play=False)
        await jobs.until(lambda: jobs.condition("Admitted").get("status") == "False", play=False)
        assert kueue.there()
        assert jobs.bound("train") == 2
        assert jobs.status()["queueName"] == "gpu"
        assert "it has lost the label kueue.x-k8s.io/queue-name" in jobs.status()["message"]
        if restarted:
            await jobs.stop()
            await jobs.start()
        await jobs.stranger("other", node="a", gpus=2)  # as soon as there is room somebody takes it
        await jobs.until(lambda: not kueue.there())
        await jobs.until(lambda: "queueName" not in jobs.status())
        await settle(jobs, 0.3)
        assert jobs.condition("Admitted")["reason"] == "NotEnoughRoom"
        assert not jobs.pods("train")
        await jobs.server.delete(PODS, name="other", namespace="else")
        await jobs.until(lambda: jobs.bound("train") == 2)
        assert jobs.condition("Admitted")["reason"] == "AllPodsFit"


async def test_a_job_that_leaves_kueue_takes_nothing_along_of_its_flavor_and_topology() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        jobs.server.store(RESOURCE_FLAVORS)["", "old"] = {
            "metadata": {"name": "old"},
            "spec": {"nodeLabels": {"old": "yes"}, "tolerations": [{"key": "old", "operator": "Exists"}]},
        }
        for node in jobs.server.store(NODES).values():
            node["metadata"]["labels"]["old"] = "yes"
        kueue = await waiting_in_kueue(jobs)
        await kueue.admit(flavor="old", topology={"levels": ["rack"], "slices": []})
        await jobs.until(lambda: not suspended(jobs))
        assert jobs.job("train-worker")["spec"]["template"]["spec"]["nodeSelector"] == {"old": "yes"}
        await label(jobs, None)
        await jobs.until(lambda: not kueue.there())
        await jobs.until(lambda: jobs.bound("train") == 2)
        pod = jobs.job("train-worker")["spec"]["template"]["spec"]
        assert not pod.get("nodeSelector")
        assert not pod.get("tolerations")
        assert not pod.get("schedulingGates")


async def test_a_running_job_that_gets_another_queue_label_stays_in_the_queue_that_admitted_it() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await running_by_quota(jobs)
        await label(jobs, "other")
        await settle(jobs, 0.3)
        assert kueue.workload()["spec"]["queueName"] == "gpu"
        assert jobs.status()["queueName"] == "gpu"
        assert "from LocalQueue gpu" in jobs.condition("Admitted")["message"]
        # With the next admission it goes there.
        await kueue.evict()
        await jobs.until(lambda: kueue.workload()["spec"]["queueName"] == "other")
        await jobs.until(lambda: jobs.status()["queueName"] == "other")


async def test_a_job_that_lost_its_label_and_is_suspended_meanwhile_is_suspended() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await running_by_quota(jobs)
        await jobs.stop()
        await jobs.change(runPolicy={"suspend": True})
        await label(jobs, None)
        await jobs.start()
        await jobs.until(lambda: not kueue.there())
        await jobs.until_state("Suspended")
        assert not jobs.pods("train")


@pytest.mark.parametrize("ends", ["before", "after"])
async def test_an_operator_that_follows_kueue_no_more_leaves_no_quota_behind(ends: str) -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await running_by_quota(jobs)
        await jobs.stop()
        jobs._kueue = False
        if ends == "before":
            for pod in jobs.pods("train"):
                await jobs.end(pod)
            await jobs.play()
        await jobs.start()
        await jobs.until(lambda: not kueue.there())
        assert not suspended(jobs)  # the own queue counts it as one that runs
        for pod in jobs.pods("train") if ends == "after" else ():
            await jobs.end(pod)
        await jobs.until_state("Succeeded")
        await jobs.until(lambda: "queueName" not in jobs.status())


async def test_an_operator_that_follows_kueue_no_more_and_has_no_right_on_workloads_goes_on() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        await running_by_quota(jobs)
        await jobs.stop()
        jobs._kueue = False

        def refuse(verb: str, resource: Resource) -> None:
            if resource is WORKLOADS:
                raise error(ForbiddenError)

        jobs.server.refuse = refuse
        await jobs.start()
        await jobs.until(lambda: "queueName" not in jobs.status())
        for pod in jobs.pods("train"):
            await jobs.end(pod)
        await jobs.until_state("Succeeded")


async def test_a_job_that_loses_its_queues_label_while_it_waits_is_in_the_own_queue() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs)
        await label(jobs, None)
        await jobs.until(lambda: jobs.bound("train") == 2)
        assert not kueue.there()
        assert jobs.condition("Admitted")["reason"] == "AllPodsFit"


async def test_a_job_that_ends_before_its_lost_label_was_seen_keeps_no_quota() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = await waiting_in_kueue(jobs)
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        await jobs.stop()
        await label(jobs, None)
        for pod in jobs.pods("train"):
            await jobs.end(pod)
        await jobs.play()
        await jobs.start()
        await jobs.until_state("Succeeded")
        await jobs.until(lambda: not kueue.there() or kueue.condition("Finished") == "True")


async def test_a_job_that_gets_a_queues_label_while_it_waits_leaves_the_own_queue() -> None:
    async with Jobs(gpus={"a": 1}, kueue=True) as jobs:
        await jobs.create(workers=2)
        await jobs.until(lambda: jobs.status().get("reason") in {"NotEnoughRoom", "NoNodeIsLargeEnough"})
        await label(jobs, "gpu")
        kueue = Kueue(jobs)
        await jobs.until(kueue.there)
        await jobs.until(lambda: jobs.condition("Admitted").get("reason") == "WaitsInKueue")
        await jobs.until(lambda: not jobs.gangs.order())


async def test_the_limit_of_a_dataset_holds_for_jobs_in_kueue_too() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        put_dataset(jobs, maxConcurrentJobs=1, onLimit="Suspend")
        first = await waiting_in_kueue(jobs, "one", workers=1, datasets=READS)
        await first.admit("one")
        await jobs.until(lambda: jobs.bound("one") == 1)
        # It is not looked at by Kueue while there is no place.
        two = await waiting_in_kueue(jobs, "two", workers=1, datasets=READS)
        await jobs.until(lambda: jobs.status("two").get("reason") == "DatasetAtLimit")
        assert "n/one reads it" in jobs.status("two")["message"]
        assert GATE in two.workload("two")["metadata"]["annotations"]
        await two.admit("two")
        await settle(jobs, 0.5)
        assert not jobs.pods("two")
        await jobs.run("one")
        for pod in jobs.pods("one"):
            await jobs.end(pod)
        await jobs.until_state("Succeeded", "one")
        await jobs.until(lambda: GATE not in two.workload("two")["metadata"]["annotations"])
        await jobs.until(lambda: two.condition("QuotaReserved", "two") == "False")
        await two.admit("two")
        await jobs.until(lambda: jobs.bound("two") == 1)


async def test_of_two_jobs_that_kueue_admits_at_once_one_takes_the_place_and_one_returns_its_quota() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        put_dataset(jobs, maxConcurrentJobs=1, onLimit="Suspend")
        kueue = Kueue(jobs)
        for name in ("one", "two"):
            await waiting_in_kueue(jobs, name, workers=1, datasets=READS)
        for name in ("one", "two"):
            await kueue.admit(name)
        await settle(jobs, 0.5)
        assert jobs.bound("one") + jobs.bound("two") == 1
        loser, winner = ("two", "one") if jobs.bound("one") else ("one", "two")
        await jobs.until(lambda: kueue.condition("QuotaReserved", loser) == "False")
        assert "admission" not in kueue.workload(loser)["status"]
        # An operator that begins again says the same.
        await jobs.stop()
        await jobs.start()
        await settle(jobs, 0.5)
        assert (jobs.bound(winner), len(jobs.pods(loser))) == (1, 0)


async def test_a_job_in_kueue_that_reads_a_dataset_keeps_the_place_from_the_own_queue() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        put_dataset(jobs, maxConcurrentJobs=1, onLimit="Suspend")
        kueue = await waiting_in_kueue(jobs, "in-kueue", workers=1, datasets=READS)
        await kueue.admit("in-kueue")
        await jobs.until(lambda: jobs.bound("in-kueue") == 1)
        await jobs.create("own", workers=1, datasets=READS)
        await jobs.until(lambda: jobs.status("own").get("reason") == "DatasetAtLimit")


def test_a_workload_is_made_active_again_only_by_whom_it_was_made_inactive() -> None:

    owner = {"metadata": {"name": "train", "labels": QUEUE}}
    live = {"metadata": {"name": "w"}, "spec": {"active": True, "queueName": "gpu"}}
    workload = {"metadata": {"annotations": {"tdcs.io/spec-digest": "x"}}, "spec": {"queueName": "gpu"}}
    patch = own_workload.changes(live, owner=owner, suspended=True, gated=False, wanted_workload=workload)
    mark = patch["metadata"]["annotations"]
    assert patch["spec"] == {"active": False}
    ours = {"metadata": {"name": "w", "annotations": mark}, "spec": {"active": False, "queueName": "gpu"}}
    back = own_workload.changes(ours, owner=owner, suspended=False, gated=False, wanted_workload=workload)
    assert back["spec"] == {"active": True}
    assert dict.fromkeys(mark) == back["metadata"]["annotations"]
    theirs = {"metadata": {"name": "w"}, "spec": {"active": False, "queueName": "gpu"}}
    changed = own_workload.changes(
        theirs, owner=owner, suspended=False, gated=False, wanted_workload=workload
    )
    assert changed == {}
