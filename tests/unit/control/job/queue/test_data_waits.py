"""A job waits for room on the nodes of its data where that is expected soon, and starts elsewhere where it is not."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.control.job.admission.test_data_meetings import READS, cache, meeting, pictures
from tests.unit.control.jobs import EPOCH, Jobs, time_at

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob_status import DataMeeting
from tdcs.cli.explain.explained_meeting import meeting_sentence
from tdcs.control.job_index import JobIndex
from tdcs.control.kept_job import kept_job
from tdcs.decide.place.data_meeting import LONGEST_WAIT
from tdcs.decide.queue.occupants import END_GRACE
from tdcs.model.kube_resources import DATASETS

LARGE = 200 * 10**9


@contextlib.asynccontextmanager
async def jobs_at_data(**first: Any) -> AsyncIterator[Jobs]:
    """A Dataset of 200 GB on node a, whose only GPU a job has, and node b whose cache has no room for it."""
    async with Jobs(gpus={"a": 1, "b": 1}) as jobs:
        cache(jobs, "a", "b", capacity=LARGE // 2)
        pictures(jobs, held={"a": LARGE})
        jobs.server.store(DATASETS)["n", "pictures"]["status"]["totalBytes"] = LARGE
        await jobs.create("first", workers=1, datasets=READS, **first)
        await jobs.until(lambda: jobs.bound("first") == 1)
        await jobs.run("first")
        await jobs.until_state("Running", "first")
        yield jobs


def wait_of(jobs: Jobs, name: str = "train") -> Any:
    return (jobs.status(name).get("queue") or {}).get("dataWait") or {}


async def end_first(jobs: Jobs) -> None:
    for pod in jobs.pods("first"):
        await jobs.end(pod)
    await jobs.until_state("Succeeded", "first")


async def test_a_job_waits_for_room_at_its_data_until_the_job_there_has_ended_and_says_so() -> None:
    async with jobs_at_data(runPolicy={"activeDeadlineSeconds": 300}) as jobs:
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: wait_of(jobs))
        queued = jobs.condition("Queued")
        assert queued["reason"] == jobs.status()["reason"] == "AwaitsRoomAtData"
        assert "room on the nodes with Dataset pictures (a)" in queued["message"]
        data_wait = wait_of(jobs)
        assert data_wait["nodes"] == ["a"]
        assert data_wait["expectedSeconds"] <= data_wait["waitSeconds"] < data_wait["otherSeconds"]
        assert data_wait["otherWay"] == "Remote"
        assert data_wait["expectedSeconds"] <= seconds_between(data_wait["since"], data_wait["until"]) <= 1800
        assert not jobs.pods("train")
        jobs.advance(100)
        await end_first(jobs)
        await jobs.until(lambda: jobs.bound("train") == 1)
        assert jobs.pods("train")[0]["spec"]["nodeName"] == "a"
        await jobs.run()
        await jobs.until_state("Running")
        await jobs.until(lambda: not wait_of(jobs))
        assert jobs.status()["locality"] == 1
        met = DataMeeting.model_validate(meeting(jobs))
        assert (met.way, met.nodes) == ("Wait", ["a"])
        assert met.waited_seconds is not None
        assert 100 <= met.waited_seconds <= (met.expected_seconds or 0)
        assert "It waited" in meeting_sentence("pictures", met)


async def test_a_job_starts_elsewhere_when_no_room_came_in_time() -> None:
    async with jobs_at_data(runPolicy={"activeDeadlineSeconds": 300}) as jobs:
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: wait_of(jobs))
        jobs.advance(2000)  # the first job runs on all the same
        await jobs.change(
            runPolicy={"ttlSecondsAfterFinished": 3600}
        )  # a pass, as the end of the wait brings it
        await jobs.until(lambda: jobs.bound("train") == 1)
        assert jobs.pods("train")[0]["spec"]["nodeName"] == "b"
        await jobs.until(lambda: meeting(jobs).get("way") == "Remote")
        assert meeting(jobs)["waitedSeconds"] >= 2000
        assert "in vain" in meeting_sentence("pictures", DataMeeting.model_validate(meeting(jobs)))


async def test_a_job_starts_at_once_where_nobody_knows_when_room_comes() -> None:
    async with jobs_at_data() as jobs:
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: jobs.bound("train") == 1)
        assert not wait_of(jobs)


async def test_a_new_operator_goes_on_with_the_end_of_the_wait_that_the_status_says() -> None:
    async with jobs_at_data(runPolicy={"activeDeadlineSeconds": 300}) as jobs:
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: wait_of(jobs))
        before = wait_of(jobs)
        await jobs.stop()
        jobs.advance(50)
        await jobs.start()
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 3600})
        await jobs.until(lambda: jobs.gangs.awaits_data(jobs.training_job("train")["metadata"]["uid"]))
        assert wait_of(jobs) == before


async def test_a_new_operator_believes_no_end_of_a_wait_that_is_farther_than_any_may_be() -> None:
    async with jobs_at_data(runPolicy={"activeDeadlineSeconds": 300}) as jobs:
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: wait_of(jobs))
        await jobs.stop()
        jobs.training_job("train")["status"]["queue"]["dataWait"]["until"] = "2999-01-01T00:00:00Z"
        await jobs.start()
        await jobs.until(lambda: jobs.gangs.awaits_data(jobs.training_job("train")["metadata"]["uid"]))
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 3600})
        await jobs.until(
            lambda: seconds_between(wait_of(jobs)["since"], wait_of(jobs)["until"]) == LONGEST_WAIT
        )


async def test_what_a_job_of_the_same_template_ran_says_when_room_comes() -> None:
    async with jobs_at_data() as jobs:
        await end_first(jobs)
        status = jobs.training_job("first")["status"]
        status["startTime"] = time_at(seconds_between(EPOCH, status["completionTime"]) - 400)
        await jobs.create("second", workers=1, datasets=READS)
        await jobs.until(lambda: jobs.bound("second") == 1)
        assert jobs.pods("second")[0]["spec"]["nodeName"] == "a"
        jobs.advance(200)
        await jobs.create(workers=1, datasets=READS)
        await jobs.until(lambda: wait_of(jobs))
        assert 0 < wait_of(jobs)["expectedSeconds"] <= 200 + END_GRACE
        assert wait_of(jobs)["otherSeconds"] < 400  # it runs no longer itself


@pytest.mark.parametrize("ended", ["Failed", "Succeeded"])
def test_only_jobs_that_succeeded_tell_how_long_others_run(ended: str) -> None:
    job = {
        "metadata": {"name": "x", "namespace": "n"},
        "spec": {"roles": {}, "runPolicy": {"suspend": False}},
        "status": {
            "conditions": [{"type": ended, "status": "True"}],
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:10:00Z",
            "suspendedSeconds": 60,
        },
    }
    reduced = kept_job(job)
    index = JobIndex({("n", "x"): reduced})
    expected = 540.0 if ended == "Succeeded" else None
    assert index.ran("n", reduced["template"]) == expected
    assert index.ran("other", reduced["template"]) is None
    assert kept_job(reduced) == reduced
