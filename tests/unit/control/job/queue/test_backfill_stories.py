"""Jobs that end in time run on nodes that are set aside for another one, and keep the end that they have promised."""

from tests.unit.control.jobs import Jobs, phase_of

from tdcs.api.durations import seconds_between, time_after
from tdcs.decide.queue.job_turn import START_SECONDS, kept_deadline
from tdcs.model.kube_objects import Object

NOW = "2026-01-01T00:00:00Z"


async def set_aside(jobs: Jobs) -> None:
    """A job of both nodes that was passed as often as it may be; one of them is free, the other one for 1000 s not."""
    await jobs.create("long", workers=4, runPolicy={"activeDeadlineSeconds": 1000})
    await jobs.until(lambda: jobs.bound("long") == 4)
    await jobs.run("long")
    await jobs.create("big", workers=8)
    await jobs.until(lambda: jobs.condition("Queued", "big").get("status") == "True")
    await jobs.create("passes", workers=1)
    await jobs.until(lambda: jobs.bound("passes") == 1)
    await jobs.run("passes")
    for pod in jobs.pods("passes"):
        await jobs.end(pod)
    await jobs.until(lambda: "setAside" in (jobs.status("big").get("queue") or {}))


def two_nodes() -> Jobs:
    return Jobs(gpus={"a": 4, "b": 4}, max_passes=1)


async def test_a_job_that_ends_in_time_is_let_in_and_ends_by_then_whatever_it_asks_for_later() -> None:
    async with two_nodes() as jobs:
        await set_aside(jobs)
        for name, deadline in (("late", 5000), ("unknown", None)):
            policy: Object = {} if deadline is None else {"runPolicy": {"activeDeadlineSeconds": deadline}}
            await jobs.create(name, workers=1, **policy)
            await jobs.until_state("Queued", name)
        await jobs.create("short", workers=1, runPolicy={"activeDeadlineSeconds": 60})
        await jobs.until(lambda: jobs.bound("short") == 1)
        await jobs.run("short")
        promised = jobs.status("short")["queue"]["endsBy"]
        assert 60 + START_SECONDS - seconds_between(jobs.now(), promised) >= 0
        assert jobs.job("short-worker")["spec"]["activeDeadlineSeconds"] == 60
        await jobs.change("short", runPolicy={"activeDeadlineSeconds": 10_000_000})
        generation = jobs.training_job("short")["metadata"]["generation"]
        await jobs.until(lambda: jobs.status("short").get("observedGeneration") == generation)
        assert jobs.job("short-worker")["spec"]["activeDeadlineSeconds"] <= 60 + START_SECONDS
        assert jobs.status("short")["queue"]["endsBy"] == promised
        assert not jobs.bound("late")
        assert not jobs.bound("unknown")
        for name in ("short", "long"):
            for pod in jobs.pods(name):
                await jobs.end(pod)
        await jobs.until(lambda: jobs.bound("big") == 8)
        assert not jobs.bound("late")


async def test_a_restart_does_not_begin_the_time_of_such_a_job_again() -> None:
    async with two_nodes() as jobs:
        await set_aside(jobs)
        await jobs.create(
            "short",
            workers=1,
            runPolicy={"activeDeadlineSeconds": 300, "failurePolicy": {"restart": "All"}},
        )
        await jobs.until(lambda: jobs.bound("short") == 1)
        await jobs.run("short")
        promised = jobs.status("short")["queue"]["endsBy"]
        first = jobs.job("short-worker")["metadata"]["uid"]
        jobs.advance(200)
        await jobs.end(jobs.pods("short")[0], code=1)
        await jobs.until(
            lambda: any(
                phase_of(pod) == "Pending" and pod["metadata"]["ownerReferences"][0]["uid"] != first
                for pod in jobs.pods("short")
            )
        )
        assert jobs.status("short")["queue"]["endsBy"] == promised
        assert jobs.job("short-worker")["spec"]["activeDeadlineSeconds"] <= 100 + START_SECONDS


async def test_a_job_that_finds_room_elsewhere_promises_nothing() -> None:
    async with two_nodes() as jobs:
        await jobs.create("short", workers=1, runPolicy={"activeDeadlineSeconds": 60})
        await jobs.until(lambda: jobs.bound("short") == 1)
        assert "endsBy" not in (jobs.status("short").get("queue") or {})
        await jobs.change("short", runPolicy={"activeDeadlineSeconds": 600})
        await jobs.until(lambda: jobs.job("short-worker")["spec"]["activeDeadlineSeconds"] == 600)


def test_what_is_left_of_a_promise_counts_from_the_start_of_the_jobs() -> None:
    by = time_after(NOW, seconds=100)
    assert kept_deadline(500, ends_by="", starts=[], now=NOW) == 500
    assert kept_deadline(None, ends_by="", starts=[], now=NOW) is None
    assert kept_deadline(60, ends_by=by, starts=[], now=NOW) == 60
    assert kept_deadline(500, ends_by=by, starts=[], now=NOW) == 100
    assert kept_deadline(None, ends_by=by, starts=[NOW], now=time_after(NOW, seconds=90)) == 100
    started = [NOW, time_after(NOW, seconds=70)]
    assert kept_deadline(500, ends_by=by, starts=started, now=time_after(NOW, seconds=90)) == 30
    assert kept_deadline(500, ends_by=by, starts=[], now=time_after(NOW, seconds=200)) == 1
