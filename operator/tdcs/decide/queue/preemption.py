"""Which running jobs give way to a more important one that waits.

A job takes the place of others where its PriorityClass says so (`preemptionPolicy: PreemptLowerPriority`) and the chart
allows it: of as few jobs of lower priority as will do, the least important and the youngest first. One whose data takes
longer to load again than the waiting job would wait is left alone.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tdcs.decide.queue.gang_turn import Schedule
from tdcs.decide.queue.occupants import Occupant, seconds_until_room
from tdcs.decide.queue.queued_job import DemandKey, QueuedJob

LOOKS = 2000
"""So many sets of jobs are tried at most before a set that is small, but perhaps not the smallest, is good enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A job that waits takes the place of others.

    Attributes:
        job: which waits.
        victims: those that are suspended for it now; none while all that it needs is being left already.
        nodes: where its pods find room then: they are set aside for it.
    """

    job: QueuedJob
    victims: tuple[Occupant, ...]
    nodes: frozenset[str]


def preemption(schedule: Schedule, *, occupants: Sequence[Occupant]) -> Preemption | None:
    """The first job of the queue that takes the place of others; None when none does.

    One at a time: what its victims leave is set aside for it, and for no second job.

    Args:
        schedule: the queue after all were admitted that fit.
        occupants: the jobs that have pods on nodes.
    """
    if schedule.room is None:
        return None
    # Demands that nobody gives way to, each with the priority of the job that asks.
    hopeless: set[tuple[DemandKey, int]] = set()
    holder = next((job for job in schedule.waiting if job.uid == schedule.holder and not job.runs), None)
    for job in schedule.waiting:
        if not (job.may_preempt and job.ready) or job.runs or job.pauses:
            continue
        if holder is not None and holder.uid != job.uid and holder.priority >= job.priority:
            continue
        demand = (job.demand_key, _priority_of(job))
        if demand in hopeless:
            continue
        found = _preemption_by(job, schedule, occupants)
        if found is not None:
            return found
        hopeless.add(demand)
    return None


def with_preemption(schedule: Schedule, *, occupants: Sequence[Occupant]) -> Schedule:
    """The queue with what becomes of running jobs, and the nodes that they leave set aside for the one that takes their
    place."""
    found = preemption(schedule, occupants=occupants)
    if found is None or (found.job.uid == schedule.holder and not found.victims):
        return schedule
    by = found.job
    return replace(
        schedule,
        holder=by.uid,
        aside=found.nodes,
        preemptors={each.uid: _named(by, each) for each in found.victims},
        victims={each.uid: _said(by, each) for each in found.victims},
    )


def _priority_of(job: QueuedJob) -> int:
    """That of its class: a long wait makes nobody yield."""
    return job.priority if job.own_priority is None else job.own_priority


def _named(by: QueuedJob, victim: Occupant) -> str:
    """The job that takes a place, as the namespace of the victim may read it: it hears no name of another one."""
    return "/".join(by.key) if by.key[0] == victim.key[0] else "a job of another namespace"


def _said(by: QueuedJob, victim: Occupant) -> str:
    """What is said to a job that gives way."""
    return (
        f"{_named(by, victim)} took its place, which has priority {_priority_of(by)} (this job has {victim.priority}): "
        "its pods were ended, and it queues again with its age"
    )


def _preemption_by(job: QueuedJob, schedule: Schedule, occupants: Sequence[Occupant]) -> Preemption | None:
    room = schedule.room
    if room is None or room.fits(job.groups, scarce=job.scarce):
        return None  # it waits for something else
    priority = _priority_of(job)
    if not any(
        (each.leaves and each.takes) or (each.may_yield and each.priority < priority) for each in occupants
    ):
        return None
    room = room.with_more(each.takes for each in occupants if each.leaves)

    def nodes_without(victims: Collection[Occupant]) -> frozenset[str] | None:
        found = room.with_more(each.takes for each in victims).take(job.groups, scarce=job.scarce)
        return None if found is None else frozenset(found)

    nodes = nodes_without(())
    if nodes is not None:
        return Preemption(job=job, victims=(), nodes=nodes)
    waits = seconds_until_room(
        room=room,
        groups=job.groups,
        scarce=job.scarce,
        occupants=[each for each in occupants if not each.leaves],
    )
    candidates = sorted(
        (
            each
            # Of those that started in one second the younger is the later one in the queue.
            for each in sorted(occupants, key=lambda each: each.key, reverse=True)
            if each.may_yield and not each.leaves and each.priority < priority and each.reload_seconds < waits
        ),
        key=lambda each: (each.priority, -each.started),
    )
    victims = fewest(candidates, enough=lambda some: nodes_without(some) is not None, weight=_weight_of(job))
    if victims is None:
        return None
    return Preemption(job=job, victims=victims, nodes=nodes_without(victims) or frozenset())


def _weight_of(job: QueuedJob) -> Callable[[Occupant], int]:
    usable: set[str] | None = set()
    for group in job.groups:
        usable = None if usable is None or group.nodes is None else usable | group.nodes

    def weight(each: Occupant) -> int:
        return sum(
            amounts.get(job.scarce, 0)
            for node, amounts in each.takes.items()
            if usable is None or node in usable
        )

    return weight


def fewest(
    candidates: Sequence[Occupant],
    *,
    enough: Callable[[Collection[Occupant]], bool],
    weight: Callable[[Occupant], int],
    looks: int = LOOKS,
) -> tuple[Occupant, ...] | None:
    """The fewest jobs that are enough, the first ones first; None when not even all are.

    Where there are too many sets to try all, the largest jobs are taken first, and those that turn out not to be needed
    are left out again: then none of them can be spared, though another set may be smaller.

    Args:
        candidates: the first to give way first.
        enough: whether it is enough that these do; more are no less.
        weight: how much room one leaves.
        looks: how many sets are tried.
    """
    if not candidates or not enough(candidates):
        return None
    for count in range(1, len(candidates) + 1):
        for some in itertools.combinations(candidates, count):
            looks -= 1
            if looks < 0:
                return _spared(candidates, enough=enough, weight=weight)
            if enough(some):
                return some
    return tuple(candidates)


def _spared(
    candidates: Sequence[Occupant],
    *,
    enough: Callable[[Collection[Occupant]], bool],
    weight: Callable[[Occupant], int],
) -> tuple[Occupant, ...]:
    by_size = sorted(candidates, key=weight, reverse=True)
    few, count = 0, len(by_size)
    while few + 1 < count:
        middle = (few + count) // 2
        few, count = (few, middle) if enough(by_size[:middle]) else (middle, count)
    chosen = {each.uid for each in by_size[:count]}
    for each in reversed(candidates):  # the most important and the oldest first
        left = [other for other in candidates if other.uid in chosen and other.uid != each.uid]
        if each.uid in chosen and enough(left):
            chosen.remove(each.uid)
    return tuple(each for each in candidates if each.uid in chosen)
