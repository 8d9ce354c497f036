"""How long the reads of each pod waited: a table in a file, which outlives the processes that write it.

The remote-read client of a node writes it, the node plugin reads it. One process writes at a time: the one that serves.
A row is 64-bit numbers: five of the pod's uid, then `_BEGAN`, `_LAST`, and the time waited by origin.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

POD_WAITS: Final = "pod-waits"
"""Name of the file in the reader's folder."""

ROWS: Final = 512
"""Pods that are counted apart: the one that has not read for longest gives its row to a new one."""

_UID_BYTES: Final = 36
_BEGAN: Final = 5
_LAST: Final = 6
_WIDTH: Final = 9
_BYTES: Final = 8 * _WIDTH * ROWS


class WaitOrigin(IntEnum):
    """What a read waited for; its number is the place in a row."""

    PEER = 7
    SOURCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWait:
    """What the table says of a pod.

    Attributes:
        pod: its uid.
        began, last: when its first read began to wait, and its last one ended, in seconds since 1970.
        peer, source: seconds in which at least one of its reads waited, shared out by what the reads waited for.
    """

    pod: str
    began: float
    last: float
    peer: float
    source: float


class PodWaitTable:
    """The table, to write.

    Args:
        path: of the file; it is made when it is not there.
        clock: nanoseconds since 1970.

    Raises:
        OSError: the file cannot be made whole, for want of room, say. (Its bytes are allocated: a full disk would else
            kill whoever writes to the memory.)
    """

    def __init__(self, path: Path, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock: Final = clock
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size != _BYTES:
                os.ftruncate(fd, 0)
            os.posix_fallocate(fd, 0, _BYTES)
            memory = mmap.mmap(fd, _BYTES)
        finally:
            os.close(fd)
        self._bytes: Final = memoryview(memory)
        self._numbers: Final = memoryview(memory).cast("q")
        self._rows: dict[str, int] = {}
        for row in range(ROWS):
            uid = self._uid(row)
            if uid:
                self._rows[uid] = row

    def row(self, pod: str) -> int:
        """The row of a pod, by its uid; the longest unused one is emptied for a new pod."""
        existing = self._rows.get(pod)
        if existing is not None:
            return existing
        numbers = self._numbers
        row = min(range(ROWS), key=lambda row: numbers[row * _WIDTH + _LAST])
        self._rows.pop(self._uid(row), None)
        begin, now = row * _WIDTH, self._clock()
        numbers[begin : begin + _WIDTH] = memoryview(bytes(8 * _WIDTH)).cast("q")
        numbers[begin + _BEGAN] = numbers[begin + _LAST] = now
        self._bytes[8 * begin : 8 * begin + _UID_BYTES] = pod.encode("ascii").ljust(_UID_BYTES)[:_UID_BYTES]
        self._rows[pod] = row
        return row

    def add(self, row: int, origin: WaitOrigin, nanoseconds: int) -> None:
        """A read of the row's pod has ended, for which so much of the pod's waiting counts."""
        begin = row * _WIDTH
        self._numbers[begin + origin] += nanoseconds
        self._numbers[begin + _LAST] = self._clock()

    def holds(self, row: int, pod: str) -> bool:
        return self._rows.get(pod) == row

    def _uid(self, row: int) -> str:
        begin = 8 * row * _WIDTH
        return bytes(self._bytes[begin : begin + _UID_BYTES]).rstrip(b"\0 ").decode("ascii", "replace")


def read_pod_waits(path: Path) -> list[PodWait]:
    """All pods of the table in a file; none when there is no such file."""
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES + 1)  # who writes it is trusted less than who reads it
    except OSError:
        return []
    if len(content) != _BYTES:
        return []
    numbers, waits = memoryview(content).cast("q"), []
    for begin in range(0, _WIDTH * ROWS, _WIDTH):
        uid = content[8 * begin : 8 * begin + _UID_BYTES].rstrip(b"\0 ").decode("ascii", "replace")
        if uid:
            waits.append(
                PodWait(
                    pod=uid,
                    began=numbers[begin + _BEGAN] / 1e9,
                    last=numbers[begin + _LAST] / 1e9,
                    peer=numbers[begin + WaitOrigin.PEER] / 1e9,
                    source=numbers[begin + WaitOrigin.SOURCE] / 1e9,
                )
            )
    return waits
