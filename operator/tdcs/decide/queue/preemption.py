"""Which running jobs give way to a more important one that waits.

A job takes the place of others where its PriorityClass says so (`preemptionPolicy: PreemptLowerPriority`) and the chart
allows it: of as few jobs of lower priority as will do, the least important and the youngest first. One whose data takes
longer to load again than the waiting job would wait is left alone.

Victims have the time to end that their pods ask for (terminationGracePeriodSeconds), and what they take counts as
coming meanwhile: nobody else is ended for it. Where that takes longer than `LONGEST_WAIT`, it is waited for no longer.
The job takes the place of others then, but of none whose pods may take as long: one after the other would be ended.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tdcs.decide.queue.occupants import LONGEST_WAIT, Occupant, seconds_until_room
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable

LOOKS = 2000
"""So many sets of jobs are tried at most before a set that is small, but perhaps not the smallest, is good enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A job that waits takes the place of others.

    Attributes:
        job: which waits.
        victims: those that are suspended for it now; none while all that it needs is being left already.
        nodes: where its pods find room then: they are set aside for it.
        gone_by: when the last pods there that are being ended already are gone at the latest (RFC 3339); empty: nobody
            knows.
    """

    job: QueuedJob
    victims: tuple[Occupant, ...]
    nodes: frozenset[str]
    gone_by: str = ""

    @property
    def told(self) -> dict[str, str]:
        """By uid of a victim, what it is told."""
        return {each.uid: _said(self.job, each) for each in self.victims}

    @property
    def preemptors(self) -> dict[str, str]:
        """By uid of a victim, the job that takes its place, as its namespace may read it."""
        return {each.uid: _named(self.job, each) for each in self.victims}


def is_able(job: QueuedJob) -> bool:
    """Whether a job that waits may take the place of others now."""
    return job.may_preempt and job.data_ready and job.possible and not (job.runs or job.pauses)


def can_end(by: QueuedJob, other: QueuedJob) -> bool:
    """Whether a job that waits would take the place of another one, if that ran."""
    return is_able(by) and by.class_priority > other.class_priority


def before_those_they_can_end(ordered: Sequence[QueuedJob]) -> list[QueuedJob]:
    """The same jobs; one that may preempt comes before all of lower priority, whatever their shares and ages are.

    One of them that went first would be ended for it in the next pass.

    Args:
        ordered: by share, age and so on.
    """
    able = deque(sorted(filter(is_able, ordered), key=lambda job: -job.class_priority))
    found: list[QueuedJob] = []
    placed: set[str] = set()
    for job in ordered:
        while able and (able[0].uid in placed or able[0].class_priority > job.class_priority):
            first = able.popleft()
            if first.uid not in placed:
                placed.add(first.uid)
                found.append(first)
        if is_able(job):
            if job.uid in placed:
                continue
            placed.add(job.uid)
        found.append(job)
    return found


def goes_before(job: QueuedJob, holder: QueuedJob, *, preempts: bool) -> bool:
    """Whether a job may use nodes that are set aside for another one: it is more important, and the other one would not
    end it for that at once.

    Args:
        preempts: whether jobs end others at all.
    """
    if preempts and can_end(holder, job):
        return False
    return job.priority > holder.priority or (preempts and can_end(job, holder))


def _named(by: QueuedJob, victim: Occupant) -> str:
    """The job that takes a place, as the namespace of the victim may read it: it hears no name of another one."""
    return "/".join(by.key) if by.key[0] == victim.key[0] else "a job of another namespace"


def _said(by: QueuedJob, victim: Occupant) -> str:
    """What is said to a job that gives way."""
    return (
        f"{_named(by, victim)} took its place, which has priority {by.class_priority} "
        f"(this job has {victim.priority}): its pods were ended, and it queues again with its age"
    )


def preemption(job: QueuedJob, *, room: RoomTable, occupants: Sequence[Occupant]) -> Preemption | None:
    """Whose place a job takes, when it is its turn; None when it takes nobody's, or has room.

    Args:
        job: which waits.
        room: what nodes have left for it.
        occupants: who has pods on nodes.
    """
    if room.fits(job.groups, scarce=job.scarce):
        return None  # it waits for something else
    priority = job.class_priority
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
        leaving = (each for each in occupants if each.leaves and not nodes.isdisjoint(each.takes))
        return Preemption(
            job=job, victims=(), nodes=nodes, gone_by=max((each.gone_by for each in leaving), default="")
        )
    waits = seconds_until_room(
        room=room,
        groups=job.groups,
        scarce=job.scarce,
        occupants=[each for each in occupants if not each.leaves],
    )
    longest = LONGEST_WAIT if any(each.lingers for each in occupants) else math.inf
    candidates = sorted(
        (
            each
            # Of those that started in one second the younger is the later one in the queue.
            for each in sorted(occupants, key=lambda each: each.key, reverse=True)
            if each.may_yield and not each.leaves and each.priority < priority and each.reload_seconds < waits
            if each.grace <= longest
        ),
        # Those whose pods may take longest to end are the last of their priority.
        key=lambda each: (each.priority, each.grace > LONGEST_WAIT, -each.started),
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
