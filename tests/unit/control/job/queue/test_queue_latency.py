"""How long a job waits once a place is free, in virtual time: by the queue's own pauses, whatever the machine does.

The queue pauses the longer, the longer its passes take. On a few nodes they take nothing: what one takes on a large
cluster is spent from the clock in each of them.
"""

import asyncio

import pytest
from tests.support import virtual_time
from tests.support.virtual_time import VirtualTimeLoop
from tests.unit.control.job.queue.test_queue_stories import UNREADABLE
from tests.unit.control.jobs import Jobs, phase_of, role

from tdcs.control.job.queue import queue_passes
from tdcs.control.job.queue.queue_entries import Collector, Entries
from tdcs.model.kube_resources import JOBS

GOOD = 30
PLACES = 4
LIMIT = 2.0
"""Seconds in which a job is to be admitted after a place is free."""

REQUEST = 0.1
"""Seconds that a busy API server takes for a request; a job that is admitted takes several."""

COST = 0.25
"""Seconds of a pass over the queue of a large cluster; the queue pauses for four times as long before it."""


def admitted(jobs: Jobs) -> int:
    return sum(not job["spec"]["suspend"] for job in jobs.server.store(JOBS).values())


async def waits_among_bad_jobs(good: int, *, latency: float = 0.0) -> list[float]:
    """How long each of the jobs that find no place at once waits for it after one is free; each request to the API
    server takes as many seconds as are given."""
    loop, waits = asyncio.get_running_loop(), []
    async with Jobs(gpus={"a": 2, "b": 2}, clock=loop.time, latency=latency) as jobs:
        for number, (pod, container) in enumerate(UNREADABLE.values()):
            bad = role(1, gpus=1)
            bad["template"]["spec"] |= pod
            bad["template"]["spec"]["containers"][0] |= container
            await jobs.create(f"bad-{number}", roles={"Worker": bad})
        for number in range(good):
            await jobs.create(f"good-{number:03}", workers=1)
        await jobs.until(lambda: admitted(jobs) == PLACES and len(jobs.pods()) == PLACES)
        for before in range(PLACES, good):
            holder = next(pod for pod in jobs.pods() if phase_of(pod) == "Pending")
            await jobs.end(holder)
            begin = loop.time()
            await jobs.until(lambda before=before: admitted(jobs) > before)  # type: ignore[misc]
            waits.append(loop.time() - begin)
            await jobs.until(lambda before=before: len(jobs.pods()) > before)  # type: ignore[misc]
    return waits


def let_passes_take(seconds: float, *, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = Collector.collect

    def slowly(self: Collector) -> Entries:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.spend(seconds)
        return collect(self)

    monkeypatch.setattr(Collector, "collect", slowly)


def test_bad_jobs_among_good_ones_delay_none() -> None:
    waits = virtual_time.run(waits_among_bad_jobs(GOOD))
    assert len(waits) == GOOD - PLACES
    assert max(waits) < LIMIT


def test_passes_over_a_large_cluster_with_their_pauses_keep_jobs_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_passes_take(COST, monkeypatch=monkeypatch)
    waits = virtual_time.run(waits_among_bad_jobs(PLACES + 6))
    assert max(waits) < LIMIT
    # The pause grows with the cost, or the test would show nothing.
    assert max(waits) > 4 * COST


def test_the_new_positions_of_others_do_not_delay_the_job_that_is_admitted() -> None:
    waits = virtual_time.run(waits_among_bad_jobs(PLACES + 16, latency=REQUEST))
    assert max(waits) < LIMIT


@pytest.mark.parametrize(("pause", "cost"), [(LIMIT + 0.5, 0.0), (queue_passes.PAUSE, LIMIT / 4)])
def test_a_queue_that_looks_too_seldom_is_found(
    pause: float, cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above can fail."""
    monkeypatch.setattr(queue_passes, "PAUSE", pause)
    let_passes_take(cost, monkeypatch=monkeypatch)
    assert max(virtual_time.run(waits_among_bad_jobs(PLACES + 2))) > LIMIT
