"""A paused namespace starts no job, and suspends those that run where it is asked to; a job may change its place."""

from tests.unit.control.jobs import Jobs

from tdcs.api import names
from tdcs.cli.queue_command import move_job, stop_queue, suspend
from tdcs.decide.queue.queue_stop import StopPolicy
from tdcs.model.kube_resources import NAMESPACES


async def pause(jobs: Jobs, policy: StopPolicy) -> None:
    if ("", "n") not in jobs.server.store(NAMESPACES):
        await jobs.server.create(NAMESPACES, obj={"metadata": {"name": "n"}})
    await stop_queue(jobs.server, namespace="n", policy=policy)


async def until_stopped(jobs: Jobs, name: str) -> None:
    await jobs.until(lambda: jobs.status(name).get("reason") == "QueueStopped")


async def until_bound(jobs: Jobs, name: str, count: int) -> None:
    await jobs.until(lambda: jobs.bound(name) == count)


async def test_a_paused_namespace_starts_no_job_and_its_running_ones_go_on() -> None:
    async with Jobs(gpus={"a": 5}) as jobs:
        await jobs.create("first", workers=2)
        await jobs.until(lambda: jobs.bound("first") == 2)
        await jobs.run("first")
        await jobs.until_state("Running", "first")
        await pause(jobs, StopPolicy.HOLD)
        await jobs.create("second", workers=2)
        await jobs.create("loose", workers=1, scheduling={"gang": False})
        for name in ("second", "loose"):
            await until_stopped(jobs, name)
            assert jobs.status(name)["state"] == "Queued"
        assert "tdcs queue resume --all -n n" in jobs.status("second")["message"]
        assert not jobs.pods("second")
        assert not jobs.pods("loose")
        assert jobs.status("first")["state"] == "Running"
        await pause(jobs, StopPolicy.NONE)
        await jobs.until(lambda: jobs.bound("second") == 2 and jobs.bound("loose") == 1)


async def test_draining_suspends_running_jobs_which_queue_again_with_their_age() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("old", workers=3)
        await jobs.until(lambda: jobs.bound("old") == 3)
        await jobs.run("old")
        await jobs.until_state("Running", "old")
        await jobs.create("young", workers=3)
        await jobs.until_state("Queued", "young")
        await pause(jobs, StopPolicy.DRAIN)
        await jobs.until(lambda: not jobs.pods("old"))
        await jobs.until(lambda: jobs.status("old").get("reason") == "QueueStopped")
        assert "it queues again with its age" in jobs.condition("Queued", "old")["message"]
        assert "QueueStopped" in jobs.events()
        await pause(jobs, StopPolicy.NONE)
        await jobs.until(lambda: jobs.bound("old") == 3)
        assert not jobs.pods("young")


async def test_an_elastic_job_does_not_grow_in_a_paused_namespace() -> None:
    async with Jobs(gpus={"a": 5}) as jobs:
        await jobs.create(
            "train", workers=2, framework="PyTorch", elastic={"minReplicas": 2, "maxReplicas": 4}
        )
        await jobs.until(lambda: jobs.bound("train") == 2)
        await pause(jobs, StopPolicy.HOLD)
        await jobs.change("train", workers=4)
        await jobs.create("next", workers=1)
        await jobs.until(lambda: jobs.status("next").get("reason") == "QueueStopped")
        assert jobs.job("train-worker")["spec"]["completions"] == 2
        await pause(jobs, StopPolicy.NONE)
        await jobs.until(lambda: jobs.bound("train") == 4)


async def test_an_operator_that_starts_while_a_namespace_is_paused_starts_no_job() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await pause(jobs, StopPolicy.HOLD)
        await jobs.create("train", workers=2)
        await jobs.until(lambda: jobs.status().get("reason") == "QueueStopped")
        await jobs.stop()
        await jobs.start()
        await jobs.create("other", workers=2)
        await jobs.until(lambda: jobs.status("other").get("reason") == "QueueStopped")
        assert not jobs.pods()


async def test_a_word_that_is_no_policy_holds_jobs_back_and_ends_none() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("first", workers=1)
        await jobs.until(lambda: jobs.bound("first") == 1)
        annotations = {names.ANNOTATION_QUEUE_STOP: "drain please"}
        await jobs.server.create(NAMESPACES, obj={"metadata": {"name": "n", "annotations": annotations}})
        await jobs.create("second", workers=1)
        await jobs.until(lambda: jobs.status("second").get("reason") == "QueueStopped")
        assert jobs.bound("first") == 1


async def test_a_job_that_is_moved_first_starts_before_older_ones() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("runs", workers=4)
        await jobs.until(lambda: jobs.bound("runs") == 4)
        await jobs.run("runs")
        for name in ("older", "younger", "youngest"):
            await jobs.create(name, workers=4)
            await jobs.until_state("Queued", name)
        (line,) = await move_job(jobs.server, namespace="n", name="youngest", first=True)
        assert "rank -1: before 2 other waiting jobs" in line
        await move_job(jobs.server, namespace="n", name="older", first=False)
        for ends, starts in (("runs", "youngest"), ("youngest", "younger"), ("younger", "older")):
            for pod in jobs.pods(ends):
                await jobs.end(pod)
            await until_bound(jobs, starts, 4)
            await jobs.run(starts)


async def test_jobs_are_paused_and_resumed_by_name() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("train", workers=2)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await suspend(jobs.server, namespace="n", jobs=("train",), suspended=True)
        await jobs.until_state("Suspended")
        await jobs.until(lambda: not jobs.pods())
        await suspend(jobs.server, namespace="n", jobs=("train",), suspended=False)
        await jobs.until(lambda: jobs.bound("train") == 2)
