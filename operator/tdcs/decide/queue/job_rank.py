"""The order that the users of a namespace give to its own waiting jobs (`spec.scheduling.rank`).

A job that moves takes a place that another job of its namespace and priority has had: however low its rank is, it goes
before no job of another namespace that it did not go before already.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tdcs.decide.queue.queued_job import QueuedJob


def in_rank_order(waiting: Sequence[QueuedJob]) -> list[QueuedJob]:
    """The same jobs; where ranks differ, the ages of one namespace and priority are dealt out by rank.

    Only among those that could take their turn now: the age of a job that no node can hold, or without its data, would
    else lend itself to one new job after the other.
    """
    groups: dict[tuple[str, int, bool], list[QueuedJob]] = {}
    others = []
    for job in waiting:
        if not (job.data_ready and job.possible) or job.pauses:
            others.append(job)
            continue
        groups.setdefault((job.owner, job.priority, job.runs), []).append(job)
    if all(len({job.rank for job in group}) == 1 for group in groups.values()):
        return list(waiting)
    return [*others, *(job for group in groups.values() for job in _dealt(group))]


def _dealt(group: Iterable[QueuedJob]) -> list[QueuedJob]:
    by_age = sorted(group, key=lambda job: job.order)
    places = [(job.submitted, job.key[1]) for job in by_age]
    by_rank = sorted(by_age, key=lambda job: job.rank)  # stable: of one rank the older first
    return [replace(job, stands_as=place) for job, place in zip(by_rank, places, strict=True)]


def rank_of_move(rank: int, *, others: Iterable[int], first: bool) -> int:
    """The rank by which a job comes before, or behind, others of its namespace that wait.

    Args:
        rank: which it has.
        others: theirs.
        first: whether it comes before them.
    """
    ranks = list(others)
    if not ranks:
        return rank
    return min(rank, min(ranks) - 1) if first else max(rank, max(ranks) + 1)
