"""Where nothing changes nothing is done: jobs that run, wait, and wait in Kueue, for ten minutes of virtual time.

`python -m tests.unit.control.kueue.test_quiet_jobs 500` does the same with so many jobs.
"""

import asyncio
import sys
from typing import Any
from unittest.mock import patch

from tests.support import virtual_time
from tests.unit.control.job.queue.queue_walks import virtual_now
from tests.unit.control.jobs import Jobs
from tests.unit.control.kueue.test_kueue_jobs import QUEUE, Kueue

from tdcs.control.job.queue.queue_entries import Collector

QUIET_SECONDS = 600.0
ROUNDS = 60


class QuietJobs(Jobs):
    """Jobs in virtual time."""

    def now(self) -> str:
        return virtual_now()


async def until_at_rest(jobs: Jobs) -> None:
    """Until nobody has written anything, nor looked at a job, for three rounds."""
    quiet = 0
    for _ in range(ROUNDS):
        before = (len(jobs.server.writes), jobs.passes)
        await jobs.play()
        await asyncio.sleep(1.0)
        quiet = quiet + 1 if (len(jobs.server.writes), jobs.passes) == before else 0
        if quiet == 3:
            return
    raise AssertionError(f"after {ROUNDS} rounds there are still writes: {jobs.server.writes[-5:]}")


async def done_while_nothing_changes(count: int) -> dict[str, Any]:
    """What is done in ten minutes with so many jobs, half of them in Kueue; a third has no room."""
    with (
        patch("tests.unit.control.server.utc_now", virtual_now),
        patch("tests.unit.control.jobs.utc_now", virtual_now),
        patch.object(Collector, "collect", autospec=True, side_effect=Collector.collect) as queue_passes,
    ):
        clock = asyncio.get_running_loop().time
        gpus = {f"node-{number:03}": 8 for number in range(max(count // 12, 1))}
        async with QuietJobs(gpus=gpus, kueue=True, clock=clock) as jobs:
            kueue, names = Kueue(jobs), [f"job-{number:03}" for number in range(count)]
            for name in names[1::2]:
                await jobs.create(name, workers=1, gpus=1, labels=QUEUE)
            await until_at_rest(jobs)
            for name in names[1::2][: count // 3]:
                await kueue.admit(name)
            await until_at_rest(jobs)
            for name in names[::2]:  # fewer GPUs are left
                await jobs.create(name, workers=1, gpus=1)
            await until_at_rest(jobs)
            for name in names:
                await jobs.run(name)
            await until_at_rest(jobs)
            states = [jobs.status(name)["state"] for name in names]
            passes, writes = jobs.passes, len(jobs.server.writes)
            queue_passes.reset_mock()
            await asyncio.sleep(QUIET_SECONDS)
            return {
                "passes": jobs.passes - passes,
                "queue passes": queue_passes.call_count,
                "writes": jobs.server.writes[writes:],
                "states": {state: states.count(state) for state in sorted(set(states))},
            }


def test_ten_minutes_in_which_nothing_changes_cost_no_pass_and_no_write() -> None:
    counts = virtual_time.run(done_while_nothing_changes(36))
    assert counts == {
        "passes": 0,
        "queue passes": 0,
        "writes": [],
        "states": {"Queued": 12, "Running": 24},
    }


if __name__ == "__main__":
    print(virtual_time.run(done_while_nothing_changes(int(sys.argv[1]))))
