"""Whether a job whose turn it is waits for a place on the nodes of its data, in a pass over the queue.

A job waits where the pods that run there are known to end soon enough, by
:func:`tdcs.decide.place.data_meeting.weigh_wait`, and never beyond the end that was set when it began to wait.
Meanwhile it stands in the queue as before: others use the GPUs that it leaves free, and what it is passed by counts.
Once it was passed as often as a job may be, or no room is expected in time any more, it takes what there is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tdcs.decide.place.data_meeting import (
    LONGEST_WAIT,
    MeetingInput,
    WaitChoice,
    expected_nodes,
    weigh_wait,
)
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.occupants import Occupant, seconds_until_room
from tdcs.decide.queue.queued_job import DemandKey, QueuedJob
from tdcs.decide.queue.room_table import RoomTable

MOST_WAITING = 16
"""So many jobs of the cluster wait for a place at their data at once."""

MOST_AHEAD = 64
"""Of so many jobs before it in the queue, the first ones, a job counts what they will take of the room that comes."""

MOST_WEIGHED = 64
"""So many jobs are weighed in one pass; the others start without a wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobData:
    """The data of a job that waits.

    Attributes:
        nodes: the nodes of its data.
        alongside: its pods, those that read data on these nodes alone.
        readers: the pods that read data, on all nodes that they may run on.
        scores: what nodes are worth to these, as the extender scores them.
        meets: how each of its datasets is placed, by name, for pods on these nodes.
        seconds_left: until its wait ends; None: it has not begun to wait.
    """

    nodes: frozenset[str]
    alongside: tuple[PodGroup, ...]
    readers: tuple[PodGroup, ...]
    scores: Mapping[str, int]
    meets: Callable[[Mapping[str, int]], Mapping[str, MeetingInput]]
    seconds_left: float | None = None


class DataOf(Protocol):
    """Knows the data of jobs."""

    def __call__(self, job: QueuedJob) -> JobData | None:
        """None: it reads none, or no node has any."""


def no_data(job: QueuedJob) -> None:
    """Of a queue that does not look at data."""


@dataclass(slots=True, kw_only=True)
class DataWaits:
    """The jobs that wait for a place at their data, in one pass over the queue.

    Attributes:
        begun: by uid, what was chosen for those that begin to wait.
        ended: those whose wait ends, as no room comes in time.
        waiting: all that wait.
    """

    data_of: DataOf
    occupants: Sequence[Occupant]
    max_passes: int
    begun: dict[str, WaitChoice] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    _room_for: list[PodGroup] = field(default_factory=list)
    _ahead: int = 0
    _looked_at: int = 0
    _hopeless: set[DemandKey] = field(default_factory=set)
    _coming: RoomTable | None = None
    _weighed: int = 0
    _leaving: list[Occupant] | None = None

    def waits(
        self, job: QueuedJob, *, room: RoomTable, aside: frozenset[str], ahead: Sequence[QueuedJob] = ()
    ) -> bool:
        """Whether a job that could start now waits on.

        Args:
            job: which fits.
            room: what nodes have left.
            aside: nodes that are set aside for others.
            ahead: all that stand before it and wait on; from one job to the next this only grows.
        """
        if len(self.waiting) >= MOST_WAITING or job.passed >= self.max_passes or not self._ends():
            return False
        data = self.data_of(job)
        if data is None or (data.seconds_left is not None and data.seconds_left <= 0.0):
            return False
        alongside = [
            group if group.nodes is None else replace(group, nodes=group.nodes - aside)
            for group in data.alongside
        ]
        if room.fits(alongside, scarce=job.scarce):
            return False
        if self._weighed >= MOST_WEIGHED:
            return False
        self._weighed += 1
        # What comes is taken first by those that stand before it.
        self._count_ahead(ahead, room=room)
        seconds = seconds_until_room(
            room=room, groups=[*self._room_for, *alongside], scarce=job.scarce, occupants=self._ends()
        )
        if seconds > (LONGEST_WAIT if data.seconds_left is None else data.seconds_left):
            if data.seconds_left is not None:
                self.ended.add(job.uid)
            return False
        if data.seconds_left is None:
            pods = expected_nodes(
                groups=data.readers,
                free=room.without(aside).amounts(),
                scores=data.scores,
                scarce=job.scarce,
            )
            datasets = data.meets(pods) if pods else {}
            choice = weigh_wait(datasets, wait_seconds=seconds) if datasets else None
            if choice is None or not choice.waits:
                return False
            self.begun[job.uid] = choice
        self.waiting.add(job.uid)
        self._room_for += alongside
        if self._coming is not None:
            self._coming.take(alongside, scarce=job.scarce)
        return True

    def _count_ahead(self, ahead: Sequence[QueuedJob], *, room: RoomTable) -> None:
        """Keep room for those that lack some now and find it once all have left of whom that is known. The others do
        not: what comes is used by jobs that stand behind them."""
        if self._coming is None:
            self._coming = room.with_more(occupant.takes for occupant in self._ends())
        for job in ahead[self._looked_at :]:
            if self._ahead >= MOST_AHEAD:
                break
            if not job.ready or job.uid in self.waiting or job.demand_key in self._hopeless:
                continue
            if job.runs and job.growth is not None:
                pods = job.growth.pods
                count, _ = self._coming.take_most([pods], scarce=job.scarce)
                new_pods = [replace(pods, count=count)] if count else []
            else:
                fits = self._coming.take(job.groups, scarce=job.scarce) is not None
                new_pods = list(job.groups) if fits else []
            if not new_pods:
                self._hopeless.add(job.demand_key)
                continue
            self._room_for += new_pods
            self._ahead += 1
        self._looked_at = len(ahead)

    def _ends(self) -> list[Occupant]:
        """Those of whom it is known, or was measured, when they leave their nodes."""
        if self._leaving is None:
            self._leaving = [
                replace(occupant, ends_in=occupant.expected_in)
                for occupant in self.occupants
                if occupant.expected_in <= LONGEST_WAIT
            ]
        return self._leaving
