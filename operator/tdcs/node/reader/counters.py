"""Counters that several processes of the reader add to and one exposes: a table of numbers in shared memory."""

import mmap
import time
from collections.abc import Container
from enum import IntEnum
from typing import Final

ROWS: Final = 256
"""Versions that are counted apart at a time; those that find no row free share the last one."""


class Count(IntEnum):
    """What is counted for each version. Seconds are in nanoseconds."""

    PEER_READS = 0
    PEER_BYTES = 1
    PEER_TIME = 2
    DISK_READS = 3
    DISK_BYTES = 4
    DISK_TIME = 5
    SOURCE_READS = 6
    SOURCE_BYTES = 7
    SOURCE_TIME = 8
    BUFFER_READS = 9
    BUFFER_BYTES = 10
    BUFFER_TIME = 11
    ERRORS = 12
    STALE = 13
    STALLS = 14
    REFUSED = 15
    OVERTAKEN = 16
    AHEAD = 17
    ZONE_BYTES = 18


_WIDTH: Final = 24
_OWNER: Final = _WIDTH - 1
_HEAD: Final = 8
_SHARED: Final = _HEAD + (ROWS - 1) * _WIDTH
_PLACES: Final = range(_HEAD, _SHARED, _WIDTH)
_NO_COUNTS: Final = memoryview(bytes(8 * _WIDTH)).cast("q")
_BEAT: Final = 0
_SERVING: Final = 1
_BUFFERED: Final = 2


class Counters:
    """The table. One process adds at a time, others read. Each row names the version that it counts for."""

    def __init__(self) -> None:
        self._memory: Final = mmap.mmap(-1, 8 * (_HEAD + ROWS * _WIDTH))
        self._numbers: Final = memoryview(self._memory).cast("q")
        self._places: Final[dict[int, int]] = {}

    def add(self, version: int, count: Count, amount: int = 1) -> None:
        self._numbers[self._place(version) + count] += amount

    def answered(self, version: int, origin: Count, *, size: int, nanoseconds: int) -> None:
        """A read was answered: `origin` is the count of such reads; their bytes and their time follow it."""
        place, numbers = self._place(version) + int(origin), self._numbers
        numbers[place] += 1
        numbers[place + 1] += size
        numbers[place + 2] += nanoseconds

    def get(self, version: int, count: Count) -> int:
        place = self._find(version)
        return int(self._numbers[place + count]) if place is not None else 0

    def keep(self, versions: Container[int]) -> None:
        """Keep the rows of these versions; those of others are for versions that come."""
        for place in _PLACES:
            owner = self._numbers[place + _OWNER]
            if owner and owner not in versions:
                self._numbers[place : place + _WIDTH] = _NO_COUNTS
        self._places.clear()

    def _place(self, version: int) -> int:
        place = self._places.get(version)
        if place is None:
            row = self._find(version)
            if row is None:
                row = next((free for free in _PLACES if not self._numbers[free + _OWNER]), _SHARED)
                if row != _SHARED:
                    self._numbers[row + _OWNER] = version
            place = self._places[version] = row
        return place

    def _find(self, version: int) -> int | None:
        return next((place for place in _PLACES if self._numbers[place + _OWNER] == version), None)

    def beat(self, *, pid: int, buffered: int) -> None:
        self._numbers[_BEAT] = time.monotonic_ns()
        self._numbers[_SERVING] = pid
        self._numbers[_BUFFERED] = buffered

    def since_beat(self) -> float:
        """Seconds since the serving process was alive last; 0 before the first time."""
        beat = self._numbers[_BEAT]
        return (time.monotonic_ns() - beat) / 1e9 if beat else 0.0

    @property
    def serving(self) -> int:
        return int(self._numbers[_SERVING])

    @property
    def buffered(self) -> int:
        return int(self._numbers[_BUFFERED])
