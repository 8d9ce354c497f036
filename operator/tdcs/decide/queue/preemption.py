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
        return {victim.uid: _said(self.job, victim) for victim in self.victims}

    @property
    def preemptors(self) -> dict[str, str]:
        """By uid of a victim, the job that takes its place, as its namespace may read it."""
        return {victim.uid: _named(self.job, victim) for victim in self.victims}


def is_able(job: QueuedJob) -> bool:
    """Whether a job that waits may take the place of others now."""
    return job.may_preempt and job.data_ready and job.possible and not (job.runs or job.pauses)


def can_end(by: QueuedJob, running_job: QueuedJob) -> bool:
    """Whether a job that waits would take the place of another one, if that ran."""
    return is_able(by) and by.class_priority > running_job.class_priority


def before_those_they_can_end(ordered: Sequence[QueuedJob]) -> list[QueuedJob]:
    """The same jobs; one that may preempt comes before all of lower priority, whatever their shares and ages are.

    One of them that went first would be ended for it in the next pass.

    Args:
        ordered: by share, age and so on.
    """
    able_jobs = deque(sorted(filter(is_able, ordered), key=lambda job: -job.class_priority))
    ordered_jobs: list[QueuedJob] = []
    placed: set[str] = set()
    for job in ordered:
        while able_jobs and (able_jobs[0].uid in placed or able_jobs[0].class_priority > job.class_priority):
            first = able_jobs.popleft()
            if first.uid not in placed:
                placed.add(first.uid)
                ordered_jobs.append(first)
        if is_able(job):
            if job.uid in placed:
                continue
            placed.add(job.uid)
        ordered_jobs.append(job)
    return ordered_jobs


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
        (occupant.leaves and occupant.takes) or (occupant.may_yield and occupant.priority < priority)
        for occupant in occupants
    ):
        return None
    room = room.with_more(occupant.takes for occupant in occupants if occupant.leaves)

    def nodes_without(victims: Collection[Occupant]) -> frozenset[str] | None:
        nodes_taken = room.with_more(occupant.takes for occupant in victims).take(
            job.groups, scarce=job.scarce
        )
        return None if nodes_taken is None else frozenset(nodes_taken)

    nodes = nodes_without(())
    if nodes is not None:
        leaving = (
            occupant for occupant in occupants if occupant.leaves and not nodes.isdisjoint(occupant.takes)
        )
        return Preemption(
            job=job,
            victims=(),
            nodes=nodes,
            gone_by=max((occupant.gone_by for occupant in leaving), default=""),
        )
    waits = seconds_until_room(
        room=room,
        groups=job.groups,
        scarce=job.scarce,
        occupants=[occupant for occupant in occupants if not occupant.leaves],
    )
    longest = LONGEST_WAIT if any(occupant.lingers for occupant in occupants) else math.inf
    candidates = sorted(
        (
            occupant
            # Of those that started in one second the younger is the later one in the queue.
            for occupant in sorted(occupants, key=lambda occupant: occupant.key, reverse=True)
            if occupant.may_yield
            and not occupant.leaves
            and occupant.priority < priority
            and occupant.reload_seconds < waits
            if occupant.grace <= longest
        ),
        # Those whose pods may take longest to end are the last of their priority.
        key=lambda occupant: (occupant.priority, occupant.grace > LONGEST_WAIT, -occupant.started),
    )
    victims = fewest(
        candidates,
        enough=lambda victims_tried: nodes_without(victims_tried) is not None,
        weight=_weight_of(job),
    )
    if victims is None:
        return None
    return Preemption(job=job, victims=victims, nodes=nodes_without(victims) or frozenset())


def _weight_of(job: QueuedJob) -> Callable[[Occupant], int]:
    usable: set[str] | None = set()
    for group in job.groups:
        usable = None if usable is None or group.nodes is None else usable | group.nodes

    def weight(occupant: Occupant) -> int:
        return sum(
            amounts.get(job.scarce, 0)
            for node, amounts in occupant.takes.items()
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
        for tried in itertools.combinations(candidates, count):
            looks -= 1
            if looks < 0:
                return _spared(candidates, enough=enough, weight=weight)
            if enough(tried):
                return tried
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
    chosen = {victim.uid for victim in by_size[:count]}
    for victim in reversed(candidates):  # the most important and the oldest first
        fewer = [job for job in candidates if job.uid in chosen and job.uid != victim.uid]
        if victim.uid in chosen and enough(fewer):
            chosen.remove(victim.uid)
    return tuple(victim for victim in candidates if victim.uid in chosen)
