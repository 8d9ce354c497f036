"""The trace of what left over a connection: whether the order of the priorities was kept, and whether it mattered."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Transmission:
    """A tensor that left: when it was queued, and when its first slice went (time.monotonic)."""

    number: int
    priority: int
    queued: float
    began: float


@dataclass(frozen=True, kw_only=True)
class OrderKept:
    """What a trace says of the order."""

    transmissions: int
    kept: int
    """Those that left while no tensor of greater priority waited."""
    overtook: int
    """Those that left before one that had waited for longer: where there are none, the order changed nothing."""

    @property
    def share(self) -> float:
        """Of all transmissions, those that kept the order."""
        return self.kept / self.transmissions if self.transmissions else 1.0


def order_kept(transmissions: Sequence[Transmission]) -> OrderKept:
    """Judges the transmissions over one connection."""
    ordered = sorted(transmissions, key=lambda each: each.began)
    queue = sorted(range(len(ordered)), key=lambda each: ordered[each].queued)
    urgent: list[tuple[int, int]] = []
    """(-priority, place in `ordered`) of what was queued; what has left lies behind the place that is judged."""
    earliest: list[tuple[float, int]] = []
    in_order = overtook = coming = 0
    for place, transmission in enumerate(ordered):
        while coming < len(queue) and ordered[queue[coming]].queued < transmission.began:
            index = queue[coming]
            heapq.heappush(urgent, (-ordered[index].priority, index))
            heapq.heappush(earliest, (ordered[index].queued, index))
            coming += 1
        while urgent and urgent[0][1] < place:
            heapq.heappop(urgent)
        while earliest and earliest[0][1] < place:
            heapq.heappop(earliest)
        in_order += not urgent or -urgent[0][0] <= transmission.priority
        overtook += bool(earliest) and earliest[0][0] < transmission.queued
    return OrderKept(transmissions=len(ordered), kept=in_order, overtook=overtook)


def together(orders: Sequence[OrderKept]) -> OrderKept:
    """The sum over several connections."""
    return OrderKept(
        transmissions=sum(order.transmissions for order in orders),
        kept=sum(order.kept for order in orders),
        overtook=sum(order.overtook for order in orders),
    )
