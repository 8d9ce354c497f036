"""A job that waits for long comes before newer ones of the next higher priorities, and no further."""

from typing import Any

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.job_order import aged
from tdcs.decide.queue.queued_job import QueuedJob

DAY = 86400.0


def job(name: str, *, priority: int, waited: float = 0.0, **more: Any) -> QueuedJob:
    return QueuedJob(
        key=("n", name),
        uid=name,
        priority=priority,
        submitted=-waited,
        waited=waited,
        data_ready=True,
        passed=0,
        groups=(PodGroup(count=1, request={"cpu": 1}, nodes=None),),
        **more,
    )


def order(*jobs: QueuedJob, period: float = DAY) -> str:
    return " ".join(entry.uid for entry in sorted(aged(jobs, period=period), key=lambda entry: entry.order))


def test_after_a_period_a_job_comes_before_newer_ones_of_the_next_priority() -> None:
    low, high = job("low", priority=0, waited=DAY), job("high", priority=10, waited=5)
    assert order(low, high) == "low high"
    assert order(job("low", priority=0, waited=DAY - 1), high) == "high low"
    assert order(low, high, period=0) == "high low"


def test_however_long_it_waits_a_job_rises_by_two_priorities_at_most() -> None:
    levels = [job(f"p{priority}", priority=priority) for priority in (1, 2, 3)]
    assert order(job("low", priority=0, waited=1000 * DAY), *levels) == "p3 low p2 p1"


def test_a_long_wait_does_not_change_whom_a_job_may_preempt() -> None:
    (raised,) = [
        entry
        for entry in aged([job("low", priority=0, waited=DAY), job("high", priority=9)], period=DAY)
        if entry.uid == "low"
    ]
    assert (raised.priority, raised.own_priority) == (9, 0)


def test_workers_that_a_running_job_asks_for_rise_not() -> None:
    assert order(job("grows", priority=0, waited=9 * DAY, runs=True), job("high", priority=9)) == "high grows"
