"""In which order jobs wait: their priority, which rises with their age; the rank that a namespace gives to its own jobs
(`spec.scheduling.rank`); and the turns of namespaces (:mod:`tdcs.decide.queue.fair_share`)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tdcs.decide.queue import fair_share
from tdcs.decide.queue.fair_share import Shares
from tdcs.decide.queue.preemption import before_those_they_can_end
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.model.pod_resources import Amounts

MOST_LEVELS = 2
"""So many levels a job rises at most, however long it waits."""


def aged(waiting: Iterable[QueuedJob], *, period: float) -> list[QueuedJob]:
    """The same jobs, with the priorities that their waits give them.

    Strict priorities let a job of low priority wait forever next to a stream of more important ones. For each period
    that a job has waited it counts as one of the next higher priority that waits, at most twice: so it comes before
    newer jobs of that priority, and never before those that are far above it.

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
    aged_jobs = []
    for job in jobs:
        rises = min(int(job.waited / period), MOST_LEVELS) if not job.runs else 0
        level = levels[min(place[job.priority] + rises, len(levels) - 1)] if rises > 0 else job.priority
        aged_jobs.append(
            job if level == job.priority else replace(job, priority=level, own_priority=job.priority)
        )
    return aged_jobs


def in_rank_order(waiting: Sequence[QueuedJob]) -> list[QueuedJob]:
    """The same jobs; where ranks differ, the ages of one namespace and priority are dealt out by rank.

    A job that moves takes a place that another job of its namespace and priority has had: however low its rank is, it
    goes before no job of another namespace that it did not go before already.

    Only among those that could take their turn now: the age of a job that no node can hold, or without its data, would
    else lend itself to one new job after the other.
    """
    groups: dict[tuple[str, int, bool], list[QueuedJob]] = {}
    unranked = []
    for job in waiting:
        if not (job.data_ready and job.possible) or job.pauses:
            unranked.append(job)
            continue
        groups.setdefault((job.key[0], job.priority, job.runs), []).append(job)
    if all(len({job.rank for job in group}) == 1 for group in groups.values()):
        return list(waiting)
    return [*unranked, *(job for group in groups.values() for job in _dealt(group))]


def _dealt(group: Iterable[QueuedJob]) -> list[QueuedJob]:
    by_age = sorted(group, key=lambda job: job.order)
    places = [(job.submitted, job.key[1]) for job in by_age]
    by_rank = sorted(by_age, key=lambda job: job.rank)  # stable: of one rank the older first
    return [replace(job, stands_as=place) for job, place in zip(by_rank, places, strict=True)]


def rank_of_move(rank: int, *, other_ranks: Iterable[int], first: bool) -> int:
    """The rank by which a job comes before, or behind, others of its namespace that wait.

    Args:
        rank: which it has.
        other_ranks: theirs.
        first: whether it comes before them.
    """
    ranks = list(other_ranks)
    if not ranks:
        return rank
    return min(rank, min(ranks) - 1) if first else max(rank, max(ranks) + 1)


def in_turns(
    jobs: Sequence[QueuedJob], *, shares: Shares | None, total: Callable[[], Amounts], preempts: bool
) -> list[QueuedJob]:
    """The jobs with their turns, and those of the workers that elastic ones ask for beyond those they enter with."""
    if len({job.owner for job in jobs}) < 2:
        shares = None
    if shares is None and not preempts:
        return list(jobs)
    growing = [growing_job for job in jobs if not job.runs and (growing_job := job.growing()) is not None]
    ordered = sorted([*jobs, *growing], key=lambda job: job.order)
    if shares is not None:
        ordered = fair_share.turns(
            ordered,
            order=lambda job: job.order,
            used=shares.used,
            total=total(),
            weights=shares.weights,
        )
    if preempts:
        ordered = before_those_they_can_end(ordered)
    places = {(job.uid, job.runs): place for place, job in enumerate(ordered)}
    return [
        replace(job, turn=places[job.uid, job.runs], growth_turn=places.get((job.uid, True), 0))
        for job in jobs
    ]
