"""How many threads each mount may start, so that all mounts together keep within a bound and none waits for ever."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LaneBound:
    """A bound of threads of one kind.

    Attributes:
        most: of all mounts together.
        shared: beyond so many a mount gets its first one only: a source that hangs never holds all of them.
    """

    most: int
    shared: int


@dataclass(frozen=True, kw_only=True)
class LaneShares:
    """What may be started now.

    Attributes:
        of: threads by mount.
        crowded: whether some mount wants more than it gets.
    """

    of: Mapping[str, int]
    crowded: bool


def lanes_to_start(
    *, wanted: Mapping[str, int], running: Mapping[str, int], total: int, bound: LaneBound
) -> LaneShares:
    """Threads for the mounts that have fewest, one after the other; among equals in the order of `wanted`.

    Args:
        wanted: how many more each mount could use.
        total: all that run, also for mounts that are gone.
    """
    granted: dict[str, int] = {}
    waiting = [
        (running.get(path, 0), place, path, count)
        for place, (path, count) in enumerate(wanted.items())
        if count
    ]
    heapq.heapify(waiting)
    while waiting:
        has, place, path, count = heapq.heappop(waiting)
        if total >= (bound.shared if has else bound.most):
            return LaneShares(of=granted, crowded=True)
        granted[path] = granted.get(path, 0) + 1
        total += 1
        if count > 1:
            heapq.heappush(waiting, (has + 1, place, path, count - 1))
    return LaneShares(of=granted, crowded=False)
