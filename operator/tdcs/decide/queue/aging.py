"""Jobs that wait for long count as more important, within bounds.

Strict priorities let a job of low priority wait for ever beside a stream of more important ones. For each period that a
job has waited it counts as one of the next higher priority that waits, at most twice: so it comes before newer jobs of
that priority, and never before those that are far above it.
"""

from collections.abc import Iterable
from dataclasses import replace

from tdcs.decide.queue.queued_job import QueuedJob

MOST_LEVELS = 2
"""So many levels a job rises at most, however long it waits."""


def aged(waiting: Iterable[QueuedJob], *, period: float) -> list[QueuedJob]:
    """The same jobs, with the priorities that their waits give them.

    What a job may preempt does not change by its wait (`own_priority`).

    Args:
        waiting: in any order.
        period: seconds after which a job rises by one of the priorities that wait; 0: never.
    """
    jobs = list(waiting)
    levels = sorted({job.priority for job in jobs if not job.runs})
    if period <= 0 or len(levels) < 2:
        return jobs
    place = {level: number for number, level in enumerate(levels)}
    found = []
    for job in jobs:
        rises = min(int(job.waited / period), MOST_LEVELS) if not job.runs else 0
        level = levels[min(place[job.priority] + rises, len(levels) - 1)] if rises > 0 else job.priority
        found.append(
            job if level == job.priority else replace(job, priority=level, own_priority=job.priority)
        )
    return found
