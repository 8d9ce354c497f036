"""Stories of jobs that are stopped (suspended, drained, preempted, evicted) while a failure of theirs is dealt with."""

from typing import Any

import pytest
from tests.unit.control.job.queue.test_preempted_jobs import running, with_classes
from tests.unit.control.job.restarts.test_job_restarts import again, restarted, runs, uids, worker
from tests.unit.control.jobs import Jobs, phase_of, role
from tests.unit.control.kueue.test_kueue_jobs import QUEUE, Kueue

from tdcs.api import names
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS, NAMESPACES, TRAINING_JOBS


async def drain(jobs: Jobs, policy: str | None = "HoldAndDrain") -> None:
    """Stop the queue of the namespace, or let it go on."""
    if ("", "n") not in jobs.server.store(NAMESPACES):
        await jobs.server.create(NAMESPACES, obj={"kind": "Namespace", "metadata": {"name": "n"}})
    patch = {"metadata": {"annotations": {names.ANNOTATION_QUEUE_STOP: policy}}}
    await jobs.server.merge(NAMESPACES, name="n", patch=patch)


def failing(jobs: Jobs) -> Object:
    """The worker that fails in these stories."""
    return [pod for pod in jobs.pods("train") if "-worker-2-" in pod["metadata"]["name"]][-1]


async def in_a_pause(jobs: Jobs, **spec: Any) -> set[str]:
    """A job with four pods that has failed twice, and waits until it is restarted; gives the uids of its pods."""
    before = await runs(jobs, **spec)
    await jobs.end(failing(jobs), code=3)
    await restarted(jobs, 1)
    before |= await again(jobs, before=before)
    await jobs.end(failing(jobs), code=3)
    await jobs.until(lambda: "after a pause" in jobs.status()["message"])
    return before


@pytest.mark.failure_mode("job-suspended-after-failure")
async def test_a_job_that_is_suspended_before_its_restart_runs_again_when_it_is_resumed() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await in_a_pause(jobs)
        await jobs.change(runPolicy={"suspend": True})
        await restarted(jobs, 2)  # the failure counts
        await jobs.until_state("Suspended")
        assert jobs.status()["restartsCountTowardsMax"] == 2
        assert jobs.status()["nodeFailures"] == [{"node": "a", "failures": 2}]
        await jobs.change(runPolicy={"suspend": False})
        await again(jobs, before=before)
        assert jobs.condition("Restarting").get("status") != "True"
        for pod in jobs.pods("train"):
            await jobs.end(pod)
        await jobs.until_state("Succeeded")


async def test_a_job_that_is_suspended_as_a_pod_fails_runs_again_when_it_is_resumed() -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        before = await runs(jobs)
    await jobs.end(worker(jobs, 2), code=3)
    await jobs.play()
    await jobs.change(runPolicy={"suspend": True})
    async with jobs:
        await restarted(jobs, 1)
        await jobs.until_state("Suspended")
        assert not uids(jobs)
        await jobs.change(runPolicy={"suspend": False})
        await again(jobs, before=before)
        assert (jobs.status()["restarts"], jobs.status()["restartsCountTowardsMax"]) == (1, 1)


@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.failure_mode("job-suspended-after-failure")
async def test_a_drained_job_runs_again_whenever_a_pod_of_it_fails(write: int) -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        before = await runs(jobs)
    await drain(jobs)
    await jobs.start(killed_after=write)
    for _ in range(10):
        await jobs.play()
    await jobs.stop()
    for pod in jobs.pods("train"):
        if phase_of(pod) == "Running":
            await jobs.end(pod, code=1)  # as the signal makes it end
    await jobs.play()
    async with jobs:
        await jobs.until(lambda: jobs.status().get("reason") == "QueueStopped")
        await drain(jobs, None)
        await again(jobs, before=before)
        assert (jobs.status().get("restarts") or 0) <= 1


async def test_a_preempted_job_whose_pods_fail_by_the_signal_queues_again() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await running(jobs, "victim", workers=4)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.condition("Admitted", "victim")["status"] == "False", play=False)
        for pod in jobs.pods("victim"):
            await jobs.end(pod, code=1)
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.status("victim")["state"] == "Queued"
        await jobs.run("urgent")
        for pod in jobs.pods("urgent"):
            await jobs.end(pod)
        await jobs.until_running("victim")


async def test_a_job_that_kueue_evicts_as_a_pod_fails_runs_again_when_it_is_admitted() -> None:
    jobs = Jobs(gpus={"a": 4}, kueue=True)
    async with jobs:
        kueue = Kueue(jobs)
        await jobs.create(framework="PyTorch", workers=4, labels=QUEUE)
        await jobs.until(kueue.there)
        await kueue.admit()
        before = await again(jobs)
    await kueue.evict()
    await jobs.end(worker(jobs, 2), code=3)
    await jobs.play()
    async with jobs:
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False")
        await restarted(jobs, 1)
        await kueue.admit()
        await again(jobs, before=before)


@pytest.mark.parametrize(
    "policy",
    [{"maxRestarts": 0}, {"restart": "None"}, {"onExitCodes": [{"action": "FailJob", "values": [3]}]}],
)
async def test_a_suspended_job_has_failed_where_no_restart_is_left_to_it(policy: dict[str, Any]) -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        await runs(jobs, runPolicy={"failurePolicy": policy})
    await jobs.end(worker(jobs, 2), code=3)
    await jobs.play()
    await jobs.change(runPolicy={"suspend": True})
    async with jobs:
        await jobs.until_state("Failed")
        assert "worker 2 (pod train-worker-2-0 on node a) failed with exit code 3" in jobs.status()["message"]


WITH_A_CHIEF: dict[str, Any] = {
    "framework": "TensorFlow",
    "roles": {"Chief": role(1, gpus=1), "Worker": role(3, gpus=1)},
    "runPolicy": {"failurePolicy": {"restart": "All"}},
}
"""The chief runs on, and holds its GPU, while the others wait for their restart."""


@pytest.mark.failure_mode("eviction-during-pause")
async def test_a_drain_frees_what_a_job_holds_in_the_pause_before_its_restart() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await in_a_pause(jobs, **WITH_A_CHIEF)
        assert uids(jobs)
        await drain(jobs)
        await jobs.until(lambda: jobs.status()["reason"] == "QueueStopped" and not uids(jobs))
        await restarted(jobs, 2)
        await drain(jobs, None)
        await again(jobs, before=before)  # with no pause: it has waited


@pytest.mark.failure_mode("eviction-during-pause")
async def test_kueue_has_the_quota_back_of_a_job_that_pauses_before_its_restart() -> None:
    async with Jobs(gpus={"a": 8}, kueue=True) as jobs:
        kueue = Kueue(jobs)
        await jobs.create(labels=QUEUE, **WITH_A_CHIEF)
        await jobs.until(kueue.there)
        await kueue.admit()
        before = await again(jobs)
        await jobs.end(failing(jobs), code=3)
        await restarted(jobs, 1)
        before |= await again(jobs, before=before)
        await jobs.end(failing(jobs), code=3)
        await jobs.until(lambda: "after a pause" in jobs.status()["message"])
        assert uids(jobs)
        await kueue.evict()
        await jobs.until(lambda: kueue.condition("QuotaReserved") == "False" and not uids(jobs))
        await kueue.admit()
        await again(jobs, before=before)


async def test_more_important_work_takes_the_place_of_a_job_that_pauses_before_its_restart() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await in_a_pause(jobs, **WITH_A_CHIEF)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.status()["state"] == "Queued"


async def test_a_job_that_never_ran_gives_its_room_back_in_a_pause_when_its_time_to_start_is_over() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        policy = {"startTimeoutSeconds": 60, "failurePolicy": {"restart": "All"}}
        await jobs.create(**{**WITH_A_CHIEF, "runPolicy": policy})
        await jobs.until(lambda: jobs.bound("train") == 4)
        # It has failed so often that its pause is longer than its time to start.
        failed_before = {"status": {"restartsAfterFailures": 6}}
        await jobs.server.merge_status(TRAINING_JOBS, name="train", namespace="n", patch=failed_before)
        await jobs.end(failing(jobs), code=3)
        await jobs.until(lambda: "after a pause" in jobs.status()["message"])
        jobs.advance(61)
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 9})
        await jobs.until(lambda: jobs.status()["reason"] == "StartTimeout" and not uids(jobs))
        await restarted(jobs, 1)


@pytest.mark.parametrize("stop", ["drain", "suspend"])
async def test_a_stop_does_not_wait_for_pods_of_an_earlier_try_to_end(stop: str) -> None:
    """Pods may take their grace period to end, and a Job goes after its pods."""
    async with Jobs(gpus={"a": 4}) as jobs:
        before = await runs(jobs, **WITH_A_CHIEF)
        await jobs.end(failing(jobs), code=3)
        await jobs._count_pods(jobs.job("train-worker"))
        await jobs.until(
            lambda: (
                jobs.status().get("restarts") == 1
                and all(job["metadata"].get("deletionTimestamp") for job in jobs.server.store(JOBS).values())
            ),
            play=False,
        )
        await (drain(jobs) if stop == "drain" else jobs.change(runPolicy={"suspend": True}))
        state = "Queued" if stop == "drain" else "Suspended"
        await jobs.until(lambda: jobs.status()["state"] == state, play=False)
        assert jobs.condition("Admitted")["status"] == "False"
        await (drain(jobs, None) if stop == "drain" else jobs.change(runPolicy={"suspend": False}))
        await again(jobs, before=before)
        assert jobs.status()["restarts"] == 1
