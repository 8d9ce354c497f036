"""Counters that several processes of the reader add to and one exposes: a table of numbers in shared memory."""

import mmap
import time
from enum import IntEnum
from typing import Final

ROWS: Final = 256
"""Versions that are counted apart; those with higher numbers share the last row."""


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


_WIDTH: Final = 24
_HEAD: Final = 8
_BEAT: Final = 0
_SERVING: Final = 1
_BUFFERED: Final = 2


class Counters:
    """The table. One process adds at a time, others read."""

    def __init__(self) -> None:
        self._memory: Final = mmap.mmap(-1, 8 * (_HEAD + ROWS * _WIDTH))
        self._numbers: Final = memoryview(self._memory).cast("q")

    def add(self, version: int, what: Count, amount: int = 1) -> None:
        self._numbers[_HEAD + min(version, ROWS - 1) * _WIDTH + what] += amount

    def answered(self, version: int, origin: Count, *, size: int, nanoseconds: int) -> None:
        """A read was answered: `origin` is the count of such reads; their bytes and their time follow it."""
        place, numbers = _HEAD + min(version, ROWS - 1) * _WIDTH + int(origin), self._numbers
        numbers[place] += 1
        numbers[place + 1] += size
        numbers[place + 2] += nanoseconds

    def get(self, version: int, what: Count) -> int:
        return int(self._numbers[_HEAD + min(version, ROWS - 1) * _WIDTH + what])

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
