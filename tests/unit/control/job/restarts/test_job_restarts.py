"""Stories of pods that fail, are evicted or vanish: what is restarted, what counts, which nodes are avoided."""

from collections.abc import Set
from typing import Any

import pytest
from tests.unit.control.job.queue.test_job_requeue import READS, annotated, pictures
from tests.unit.control.jobs import Jobs, index_of, phase_of
from tests.unit.control.kueue.test_kueue_jobs import QUEUE, Kueue

from tdcs.api.durations import seconds_between
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PODS, RESOURCE_FLAVORS


def uids(jobs: Jobs, name: str = "train") -> set[str]:
    """Of the pods that have not ended."""
    return {pod["metadata"]["uid"] for pod in jobs.pods(name) if phase_of(pod) in {"Pending", "Running"}}


def worker(jobs: Jobs, index: int, name: str = "train") -> Object:
    """The newest pod of an index."""
    return [pod for pod in jobs.pods(name) if index_of(pod) == index][-1]


async def runs(jobs: Jobs, name: str = "train", **spec: Any) -> set[str]:
    """A job with four workers that run; gives their uids."""
    await jobs.create(name, **{"framework": "PyTorch", "workers": 4, **spec})
    return await again(jobs, name, workers=spec.get("workers", 4))


async def again(
    jobs: Jobs, name: str = "train", *, workers: int = 4, before: Set[str] = frozenset()
) -> set[str]:
    """All pods are others than those before, and run; gives their uids."""
    await jobs.until(
        lambda: (
            len(uids(jobs, name) - before) == jobs.bound(name) == workers and not uids(jobs, name) & before
        )
    )
    await jobs.run(name)
    await jobs.until_state("Running", name)
    return uids(jobs, name)


async def restarted(jobs: Jobs, count: int) -> None:
    """All pods were restarted so often."""
    await jobs.until(lambda: jobs.status().get("restarts") == count)


@pytest.mark.failure_mode("gang-pod-fails")
async def test_a_failed_worker_restarts_all_where_the_others_are_useless_without_it() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        await pictures(jobs, {"a": 100}, {"b": 100})
        await jobs.stranger("stranger", node="a", gpus=4)
        before = await runs(jobs, **READS)
        assert annotated(jobs, "train") == "1"
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.end(worker(jobs, 2), code=3)
        await jobs.until_state("Restarting")
        assert jobs.status()["reason"] == "PodFailed"
        assert "worker 2 (pod train-worker-2-0 on node b) failed with exit code 3" in jobs.status()["message"]
        assert "all 4 pods are restarted, restart 1 of at most 6" in jobs.status()["message"]
        await again(jobs, before=before)
        assert jobs.condition("Admitted")["status"] == "True"  # it has kept its turn
        assert jobs.condition("Restarting")["status"] == "False"
        assert annotated(jobs, "train") == "1"  # and its copy
        assert (jobs.status()["restarts"], jobs.status()["restartsCountTowardsMax"]) == (1, 1)
        assert jobs.events().count("PodFailed") == 1
        assert jobs.job("train-worker")["metadata"]["annotations"]["tdcs.io/restart-attempt"] == "1"
        for pod in jobs.pods("train"):
            await jobs.end(pod)
        await jobs.until_state("Succeeded")


async def test_independent_workers_go_on_when_one_fails() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs, framework="None")
        await jobs.end(worker(jobs, 2), code=3)
        await jobs.until(lambda: len(uids(jobs) & before) == 3 and len(uids(jobs)) == 4)
        await jobs.run()
        await jobs.until_state("Running")
        assert len(uids(jobs) & before) == 3
        assert "restarts" not in jobs.status()


async def test_a_job_fails_when_no_restart_is_left() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs, runPolicy={"failurePolicy": {"maxRestarts": 1}})
        await jobs.end(worker(jobs, 2), code=3)
        before = await again(jobs, before=before)
        await jobs.end(worker(jobs, 1), code=4)
        await jobs.until_state("Failed")
        assert "worker 1" in jobs.status()["message"]
        assert "failed with exit code 4 after 1 restart of all pods" in jobs.status()["message"]
        assert jobs.status()["restarts"] == 1


@pytest.mark.parametrize("vanished", ["evicted", "deleted"])
@pytest.mark.failure_mode("gang-pod-fails")
async def test_a_pod_that_the_cluster_took_restarts_all_and_does_not_count(vanished: str) -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs, runPolicy={"backoffLimit": 0})
        lost = worker(jobs, 2)
        if vanished == "evicted":
            await jobs.evict(lost)
        else:
            await jobs.server.delete(PODS, name=lost["metadata"]["name"], namespace="n")
        await again(jobs, before=before)
        assert jobs.status()["restarts"] == 1
        assert "restartsCountTowardsMax" not in jobs.status()
        assert "PodLost" in jobs.events()


async def test_a_pod_that_was_replaced_while_no_operator_ran_restarts_all() -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        before = await runs(jobs)
    jobs.advance(10)
    lost = worker(jobs, 2)
    await jobs.server.delete(PODS, name=lost["metadata"]["name"], namespace="n")
    await jobs.play()
    await jobs.run()
    new = worker(jobs, 2)
    new["metadata"]["creationTimestamp"] = jobs.now()
    async with jobs:
        await again(jobs, before=before | {new["metadata"]["uid"]})
        assert jobs.status()["restarts"] == 1


@pytest.mark.parametrize("write", range(1, 12))
@pytest.mark.failure_mode("operator-killed-at-job-restart")
async def test_an_operator_that_is_killed_while_it_restarts_a_job_restarts_it_once(write: int) -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        before = await runs(jobs)
    await jobs.start(killed_after=write)
    await jobs.end(worker(jobs, 2), code=3)
    for _ in range(20):
        await jobs.play()
    await jobs.stop()
    async with jobs:
        await again(jobs, before=before)
        assert (jobs.status()["restarts"], jobs.status()["restartsCountTowardsMax"]) == (1, 1)


RULES = {
    "Ignore": [{"action": "Ignore", "operator": "In", "values": [42]}],
    "FailJob": [
        {"action": "FailJob", "containerName": "main", "values": [42]},
        {"action": "Ignore", "operator": "NotIn", "values": [1]},
    ],
}


async def test_exit_codes_say_whether_a_restart_counts_and_whether_it_helps() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        ignores = {"failurePolicy": {"maxRestarts": 0, "onExitCodes": RULES["Ignore"]}}
        before = await runs(jobs, runPolicy=ignores)
        await jobs.end(worker(jobs, 2), code=42)
        await again(jobs, before=before)
        assert "restartsCountTowardsMax" not in jobs.status()
    async with Jobs(gpus={"a": 4}) as jobs:
        await runs(jobs, runPolicy={"failurePolicy": {"onExitCodes": RULES["FailJob"]}})
        await jobs.end(worker(jobs, 2), code=42)
        await jobs.until_state("Failed")
        assert "restarts" not in jobs.status()
        assert "exit code 42" in jobs.status()["message"]


async def test_with_restart_none_the_first_failure_ends_the_job() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await runs(jobs, runPolicy={"failurePolicy": {"restart": "None"}})
        job = jobs.job("train-worker")["spec"]
        assert job["backoffLimit"] == 0
        assert job["podFailurePolicy"]["rules"][0]["action"] == "FailJob"
        await jobs.end(worker(jobs, 2), code=3)
        await jobs.until_state("Failed")
        assert "restarts" not in jobs.status()


async def test_what_fails_once_worker_0_has_succeeded_restarts_nothing() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await runs(jobs)
        await jobs.end(worker(jobs, 0))
        await jobs.end(worker(jobs, 2), code=3)
        await jobs.until_state("Succeeded")
        assert "restarts" not in jobs.status()


@pytest.mark.failure_mode("node-fails-job-repeatedly")
async def test_a_node_that_fails_a_job_repeatedly_is_avoided() -> None:
    async with Jobs(gpus={"a": 2, "b": 2, "c": 2, "d": 2}) as jobs:
        before = await runs(jobs)
        bad = worker(jobs, 0)["spec"]["nodeName"]
        for count in (1, 2):
            on_bad = next(pod for pod in jobs.pods("train") if pod["spec"]["nodeName"] == bad)
            jobs.advance(10)  # else the second restart has a pause
            await jobs.end(on_bad, code=1)
            await restarted(jobs, count)
            before = await again(jobs, before=before)
            assert {"node": bad, "failures": count} in jobs.status()["nodeFailures"]
        assert jobs.status()["avoidedNodes"] == [bad]
        affinity = jobs.job("train-worker")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        term = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [bad]}]}
        assert bad not in {pod["spec"]["nodeName"] for pod in jobs.pods("train")}


async def test_a_node_that_the_job_does_not_fit_without_is_not_avoided() -> None:
    async with Jobs(gpus={"a": 2, "b": 2}) as jobs:
        before = await runs(jobs)
        for count in (1, 2):
            jobs.advance(10)  # else the second restart has a pause
            await jobs.end(worker(jobs, 0), code=1)
            await restarted(jobs, count)
            before = await again(jobs, before=before)
        assert not jobs.status().get("avoidedNodes")


async def test_an_elastic_job_restarts_all_only_when_it_loses_worker_0() -> None:
    bounds = {"minReplicas": 2, "maxReplicas": 4}
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs, elastic=bounds)
        await jobs.end(worker(jobs, 2), code=3)
        await jobs.until(lambda: len(uids(jobs) & before) == 3 and len(uids(jobs)) == 4)
        await jobs.run()
        await jobs.until_state("Running")
        before = uids(jobs)
        await jobs.evict(worker(jobs, 0))
        await again(jobs, before=before)
        assert jobs.status()["restarts"] == 1


async def test_a_job_in_kueue_keeps_its_quota_and_its_flavor_through_a_restart() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        flavor = {"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"kubernetes.io/hostname": "a"}}}
        jobs.server.store(RESOURCE_FLAVORS)["", "h100"] = flavor
        await jobs.create(framework="PyTorch", workers=4, labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit(flavor="h100")
        before = await again(jobs)
        await jobs.end(worker(jobs, 2), code=3)
        await again(jobs, before=before)
        pod = jobs.job("train-worker")["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"kubernetes.io/hostname": "a"}
        assert kueue.condition("Admitted") == "True"
        assert kueue.condition("Evicted") == "False"


async def test_a_job_that_fails_again_at_once_is_restarted_after_a_pause_that_grows() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs)
        await jobs.end(worker(jobs, 2), code=3)
        await restarted(jobs, 1)  # the first time at once
        before |= await again(jobs, before=before)
        await jobs.end(worker(jobs, 2), code=3)
        await jobs.until_state("Restarting")
        assert "after a pause, as it failed soon after it was restarted last" in jobs.status()["message"]
        assert jobs.status()["restarts"] == 1
        jobs.advance(10)
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 9})
        await restarted(jobs, 2)
        before |= await again(jobs, before=before)
        await jobs.evict(worker(jobs, 1))
        await restarted(jobs, 3)  # what the cluster took is restarted at once


async def test_a_failure_that_does_not_count_is_restarted_after_a_pause_that_grows_too() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs, runPolicy={"failurePolicy": {"onExitCodes": RULES["Ignore"]}})
        await jobs.end(worker(jobs, 2), code=42)
        await restarted(jobs, 1)
        before |= await again(jobs, before=before)
        await jobs.end(worker(jobs, 2), code=42)
        await jobs.until(lambda: "after a pause" in jobs.status()["message"])
        jobs.advance(10)
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 9})
        await restarted(jobs, 2)
        assert jobs.status()["restartsAfterFailures"] == 2
        assert "restartsCountTowardsMax" not in jobs.status()


async def test_what_the_cluster_took_makes_no_pause_longer() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs)
        for count in (1, 2, 3):
            await jobs.evict(worker(jobs, 1))
            await restarted(jobs, count)
            before |= await again(jobs, before=before)
        await jobs.end(worker(jobs, 2), code=3)
        await restarted(jobs, 4)  # the program's first failure: at once
        assert jobs.status()["restartsAfterFailures"] == 1


async def not_in_time(jobs: Jobs, kueue: Kueue, *, changed: int) -> None:
    """Kueue admits the job, and its pods do not run in time."""
    await kueue.admit()
    await jobs.until(lambda: jobs.bound("train") == 2)
    jobs.advance(61)
    await jobs.change(runPolicy={"ttlSecondsAfterFinished": changed})  # has the job looked at
    await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")


async def test_in_kueue_a_job_that_does_not_run_in_time_returns_its_quota_and_backs_off() -> None:
    async with Jobs(gpus={"a": 4}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE, runPolicy={"startTimeoutSeconds": 60})
        await jobs.until(kueue.there)
        for count, pause in ((1, 60), (2, 120), (3, 240)):
            await not_in_time(jobs, kueue, changed=1000 + count)
            status = kueue.workload()["status"]
            evicted = next(condition for condition in status["conditions"] if condition["type"] == "Evicted")
            assert evicted["reason"] == "PodsReadyTimeout"
            assert "it did not run within 60 s (runPolicy.startTimeoutSeconds)" in evicted["message"]
            state = status["requeueState"]
            assert state["count"] == count
            assert f"it queues again at {state['requeueAt']}" in jobs.status()["message"]
            assert count == 1 or f"that has happened {count} times in a row" in jobs.status()["message"]
            assert jobs.status()["state"] == "Queued"
            # Kueue does not look at it meanwhile, nor is that forgotten when another operator begins.
            assert kueue.condition("Requeued") == "False"
            await jobs.stop()
            await jobs.start()
            seconds = seconds_between(jobs.now(), state["requeueAt"])
            assert pause - 60 < seconds <= pause
            jobs.advance(seconds - 20)
            await jobs.change(runPolicy={"ttlSecondsAfterFinished": 2000 + count})
            await jobs.until(lambda: len(jobs.context.queue) == 0)
            assert kueue.condition("Requeued") == "False"
            jobs.advance(30)
            await jobs.change(runPolicy={"ttlSecondsAfterFinished": 3000 + count})
            await jobs.until(lambda: kueue.condition("Requeued") == "True")
            assert "requeueAt" not in kueue.workload()["status"]["requeueState"]
        await kueue.admit()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        # It has run: the next time counts as the first.
        await jobs.until(lambda: "requeueState" not in kueue.workload()["status"])
