"""What a pass over the queue knows of the nodes, and which jobs would fit on them when they are empty."""

from collections.abc import Mapping
from dataclasses import dataclass

from tdcs.decide.queue import fair_share
from tdcs.decide.queue.queued_job import DemandKey, QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model.pod_resources import Amounts

KNOWN_DEMANDS = 10_000
"""Of so many demands it is remembered whether empty nodes would hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What the queue knows of the nodes.

    Attributes:
        free: what each has left next to the pods that are on it.
        capacity: what each has when it is empty.
        lasting: what each has next to the pods of others, which may stay forever; left out, its capacity.
        empty: which jobs would fit on them when they are empty, as it was found out before; left out, nothing is known.
    """

    free: Mapping[str, Amounts]
    capacity: Mapping[str, Amounts]
    lasting: Mapping[str, Amounts] | None = None
    empty: "EmptyNodes | None" = None


class EmptyNodes:
    """Whether jobs would fit on empty nodes; jobs of one demand are looked at once, while the nodes stay the same."""

    def __init__(self) -> None:
        self._room: RoomTable | None = None
        self._fits: dict[DemandKey, bool] = {}
        self._total: Amounts | None = None

    def total(self, capacity: Mapping[str, Amounts]) -> Amounts:
        """What all nodes have together; `capacity`: what each has, which stays the same."""
        if self._total is None:
            self._total = fair_share.sum_of(capacity.values())
        return self._total

    def holds(self, job: QueuedJob, capacity: Mapping[str, Amounts]) -> bool:
        """Whether a job would fit; `capacity`: what each node has when it is empty, which stays the same."""
        key = job.demand_key
        if key not in self._fits:
            if self._room is None:
                self._room = RoomTable(capacity)
            if len(self._fits) >= KNOWN_DEMANDS:
                self._fits.clear()
            self._fits[key] = self._room.fits(job.groups, scarce=job.scarce)
        return self._fits[key]
