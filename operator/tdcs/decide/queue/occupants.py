"""What the pods of jobs take of nodes, and until when, as far as anybody knows."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model.kube_objects import Key
from tdcs.model.pod_resources import Amounts, added

END_GRACE = 30.0
"""Seconds that pods take to end after their time is over: the default of their terminationGracePeriodSeconds."""


LONGEST_WAIT = 600.0
"""Seconds for which nodes are set aside for what pods leave that are being ended. Pods may take longer to end (an hour
for a checkpoint, or a year): what they take is waited for so long, and again when they have only so long left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A job that was admitted or has pods on nodes, or pods that are being deleted.

    Attributes:
        key: (namespace, name).
        priority: larger is more important.
        takes: what its pods take, by node; in a pass over the queue also what is reserved there for those without one.
        reserved: its pods that may start and have no node yet: of a job that was admitted a moment ago, that pauses
            before it is restarted, or whose pods find no node.
        started: when its pods were let start, in seconds since 1970.
        ends_in: seconds until its pods are gone at the latest; infinite when nobody knows.
        leaves: whether its pods are being ended already.
        reload_seconds: what it costs to load its data again, should that leave the cache meanwhile.
        lingers: whether its pods are being ended and take so long that nothing is set aside for what they leave.
        gone_by: when pods that are being ended are gone at the latest (RFC 3339); empty: they are not, or nobody knows.
        grace: seconds that its pods may take to end once it is suspended.
        changes_in: seconds until the clock alone makes another one of it: one that leaves, lingers, or is late.
        may_yield: whether this queue admitted it and may suspend it.
        measured_in: seconds until its pods are gone if it runs as long as jobs of its template did; infinite when none
            was measured, or it has run for longer.
    """

    key: Key
    uid: str
    priority: int
    takes: Mapping[str, Amounts] = field(default_factory=dict)
    reserved: Sequence[PodGroup] = ()
    started: float = 0.0
    ends_in: float = math.inf
    leaves: bool = False
    lingers: bool = False
    gone_by: str = ""
    grace: float = END_GRACE
    changes_in: float = math.inf
    reload_seconds: float = 0.0
    may_yield: bool = True
    measured_in: float = math.inf

    @property
    def expected_in(self) -> float:
        """Seconds until its pods are expected to be gone."""
        return min(self.ends_in, self.measured_in)


def deleted_pods(
    takes: Mapping[str, Amounts], *, gone_in: float, grace: float = END_GRACE, gone_by: str = ""
) -> Occupant:
    """Pods that are being deleted.

    Args:
        takes: what they take, by node.
        gone_in: seconds until their time to end is over; below 0 when it was so long ago.
        grace: seconds that they had to end when they were deleted.
        gone_by: when their time to end is over (RFC 3339).
    """
    # One that should have been gone for as long is held by something else, such as a node that is away.
    late = gone_in < -LONGEST_WAIT
    since = grace - gone_in
    lingers = gone_in > LONGEST_WAIT and since > LONGEST_WAIT
    ends_soon = gone_in <= LONGEST_WAIT
    changes_in = gone_in + LONGEST_WAIT if ends_soon else LONGEST_WAIT - since
    changes_in = gone_in - LONGEST_WAIT if lingers else changes_in
    return Occupant(
        key=("", ""),
        uid="",
        priority=0,
        takes=takes,
        ends_in=math.inf if late else max(gone_in, 0.0),
        leaves=not (late or lingers),
        lingers=lingers,
        gone_by="" if late else gone_by,
        grace=grace,
        changes_in=math.inf if late else max(changes_in, 0.0),
        may_yield=False,
    )


def ends_in(*, started: float | None, deadline: int | None, grace: float = END_GRACE, now: float) -> float:
    """Seconds until a job's pods are gone at the latest; infinite when it has no deadline, or has not started.

    Args:
        started: when its Jobs were started, in seconds since 1970; None: not yet.
        deadline: its activeDeadlineSeconds.
        grace: seconds that its pods take to end.
        now: the time.
    """
    if deadline is None:
        return math.inf
    return max((now if started is None else started) + deadline + grace - now, 0.0)


def measured_in(*, started: float | None, ran: float | None, grace: float = END_GRACE, now: float) -> float:
    """Seconds until a job's pods are gone if it runs for so long as others did; infinite when that is not known, or it
    has run for longer.

    Args:
        started: when its Jobs were started, in seconds since 1970; None: not yet.
        ran: seconds that jobs of its template ran; None: none was measured.
        grace: seconds that its pods take to end.
        now: the time.
    """
    if ran is None:
        return math.inf
    remaining = (now if started is None else started) + ran - now
    return remaining + grace if remaining >= 0 else math.inf


def with_reserved(occupants: Iterable[Occupant], *, room: RoomTable, scarce: str) -> list[Occupant]:
    """The same, each with all that it takes: its room for pods without a node is taken of what nodes have left, and is
    what it leaves, too, when it goes.

    Args:
        occupants: in the order in which their pods find room.
        room: what nodes have left; less afterwards.
        scarce: the resource of which is kept what pods may get that find no node as things are now.
    """
    return [
        replace(
            occupant, takes=both(occupant.takes, room.reserve(occupant.reserved, scarce=scarce)), reserved=()
        )
        if occupant.reserved
        else occupant
        for occupant in occupants
    ]


def both(amounts: Mapping[str, Amounts], other_amounts: Mapping[str, Amounts]) -> dict[str, Amounts]:
    """What is taken of each node by either."""
    return {
        node: added([amounts.get(node, {}), other_amounts.get(node, {})])
        for node in (*amounts, *other_amounts)
    }


def seconds_until_room(
    *, room: RoomTable, groups: Sequence[PodGroup], scarce: str, occupants: Iterable[Occupant]
) -> float:
    """When all pods of a job fit at once at the latest, if nobody is admitted meanwhile; infinite when nobody knows.

    Args:
        room: what nodes have left.
        groups: the pods.
        scarce: the resource that decides which node is fullest.
        occupants: who leaves room, and when.
    """
    if room.fits(groups, scarce=scarce):
        return 0.0
    with_end = sorted(
        (occupant for occupant in occupants if not math.isinf(occupant.ends_in)),
        key=lambda occupant: occupant.ends_in,
    )
    times = list(dict.fromkeys(occupant.ends_in for occupant in with_end))

    def fits_after(count: int) -> bool:
        ended = itertools.takewhile(lambda occupant: occupant.ends_in <= times[count - 1], with_end)
        return room.with_more(occupant.takes for occupant in ended).fits(groups, scarce=scarce)

    if not times or not fits_after(len(times)):
        return math.inf
    few, enough = 0, len(times)
    while few + 1 < enough:
        middle = (few + enough) // 2
        few, enough = (few, middle) if fits_after(middle) else (middle, enough)
    return times[enough - 1]
