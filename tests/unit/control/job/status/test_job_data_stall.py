"""How long a job's reads waited, in its status."""

from tests.unit.control.jobs import Jobs

from tdcs.api.trainingjob_status import DataStall
from tdcs.control.context import WorkKey
from tdcs.control.job.stalled_reads import (
    MOST_STRANGERS,
    PUBLISH_SECONDS,
    DataStalls,
    status_of_stall,
)
from tdcs.decide.queue.data_stall import Stall
from tdcs.engine.read_reports import PodReadWaits, ReadWaits
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_resources import TRAINING_JOBS

JOB = ("n", "train")


class Looks(KeyedQueue[WorkKey]):
    """Notes after how many seconds jobs are asked to be looked at."""

    def __init__(self, woken: list[float] | None = None) -> None:
        super().__init__()
        self._woken = [] if woken is None else woken

    def add_after(self, key: WorkKey, seconds: float) -> None:
        assert key == WorkKey(TRAINING_JOBS, *JOB)
        self._woken.append(seconds)


def waits(pod: str, *, seconds: float = 100, **figures: float) -> ReadWaits:
    return ReadWaits(node="a", pods=(PodReadWaits(pod=pod, seconds=seconds, **figures),))


async def test_a_status_sums_its_pods_and_the_last_report_comes_after_the_end() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        first, second = (pod["metadata"]["uid"] for pod in jobs.pods())
        jobs.stalls.take(waits(first, source=40, peer=2))
        jobs.stalls.take(waits(second, source=20, disk=1))
        jobs.stalls.take(waits("of-another", source=1000))
        await jobs.until(lambda: jobs.status().get("dataStall", {}).get("sourceSeconds") == 60)
        stall = jobs.status()["dataStall"]
        assert (stall["observedSeconds"], stall["peerSeconds"], stall["diskSeconds"]) == (200, 2, 1)
        assert (stall["percent"], stall["advice"]) == (32, "CacheMore")
        assert "cache more" in stall["message"]
        for pod in jobs.pods():
            await jobs.end(pod)
        await jobs.until_state("Succeeded")
        jobs.advance(PUBLISH_SECONDS)
        jobs.stalls.take(waits(second, source=25, disk=2))
        await jobs.until(lambda: jobs.status()["dataStall"]["sourceSeconds"] == 65)
        assert jobs.status()["state"] == "Succeeded"


async def test_a_job_that_no_node_reports_of_has_no_such_status() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        assert "dataStall" not in jobs.status()


def test_a_new_operator_makes_no_figure_smaller() -> None:
    before = DataStall(
        observed_seconds=1000, source_seconds=400, disk_seconds=10, percent=41, advice="CacheMore"
    )
    after = status_of_stall(Stall(seconds=50, peer=30, source=1), before)
    assert after is not None
    assert (after.observed_seconds, after.source_seconds, after.peer_seconds) == (1000, 400, 30)
    assert (after.disk_seconds, after.percent, after.advice) == (10, 44, "CacheMore")
    assert status_of_stall(None, before) == before
    assert status_of_stall(None, None) is None


def test_loops_that_are_watched_are_summed_and_decide_what_is_advised() -> None:
    stalls = DataStalls(queue=Looks())
    stalls.follow(JOB, "u", ["p", "q", "r"])
    stalls.take(waits("p", source=1, loop_seconds=100, loop_waited=60))
    stalls.take(waits("q", loop_seconds=50, loop_waited=30))
    stalls.take(waits("r"))
    status = status_of_stall(stalls.of(JOB, "u"), None)
    assert status is not None
    assert (status.loop_seconds, status.loop_wait_seconds, status.advice) == (150, 90, "FasterLoader")
    later = status_of_stall(Stall(seconds=10), status)
    assert later is not None
    assert (later.loop_seconds, later.loop_wait_seconds, later.advice) == (150, 90, "FasterLoader")
    unwatched = status_of_stall(Stall(seconds=10), None)
    assert unwatched is not None
    assert unwatched.loop_seconds is None


def test_a_report_that_comes_before_the_jobs_first_pass_counts_when_that_comes() -> None:
    stalls = DataStalls(queue=Looks())
    stalls.take(waits("p", source=3))
    stalls.follow(JOB, "u", ["p", "q"])
    stalls.take(waits("q", source=4))
    stall = stalls.of(JOB, "u")
    assert stall is not None
    assert (stall.source, stall.disk) == (7, None)
    assert stalls.of(JOB, "another of the same name") is None
    stalls.drop_job(JOB)
    assert stalls.of(JOB, "u") is None


def test_a_pod_that_was_replaced_still_counts() -> None:
    stalls = DataStalls(queue=Looks())
    stalls.follow(JOB, "u", ["p"])
    stalls.take(waits("p", source=3))
    stalls.follow(JOB, "u", ["q"])
    stalls.take(waits("q", source=4))
    stall = stalls.of(JOB, "u")
    assert stall is not None
    assert stall.source == 7


def test_a_job_is_looked_at_at_most_twice_a_minute_for_it() -> None:
    now, woken = 1000.0, list[float]()
    stalls = DataStalls(queue=Looks(woken), clock=lambda: now)
    stalls.follow(JOB, "u", ["p"])
    stalls.take(waits("p", source=3))
    stalls.of(JOB, "u")
    now += 5
    stalls.take(waits("p", source=4))
    now += 1000
    stalls.take(waits("p", source=5))
    assert woken == [0, PUBLISH_SECONDS - 5, 0]


def test_looks_for_other_reasons_show_the_figures_that_they_showed_for_half_a_minute() -> None:
    now, sources = 1000.0, list[float]()
    stalls = DataStalls(queue=Looks(), clock=lambda: now)
    stalls.follow(JOB, "u", ["p"])
    for second in range(61):
        stalls.take(waits("p", source=second))
        now = 1000.0 + second
        stall = stalls.of(JOB, "u")
        assert stall is not None
        sources.append(stall.source)
    assert sorted(set(sources)) == [0, PUBLISH_SECONDS, 2 * PUBLISH_SECONDS]


def test_reports_of_pods_that_are_of_no_job_do_not_fill_the_memory() -> None:
    stalls = DataStalls(queue=Looks())
    for number in range(MOST_STRANGERS + 100):
        stalls.take(waits(str(number)))
    assert len(stalls._strangers) == MOST_STRANGERS
