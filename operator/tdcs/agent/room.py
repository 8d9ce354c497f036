"""What may still be written: bounds of the cache's capacity, of the disk, of memory, and of the source's bandwidth.

The worker must never evict by itself (it would take blocks that were placed), so room is reserved before each block.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SLACK_BYTES: Final = 32 << 20
"""What stays free on the disk: for folders that grow, manifests, and the worker's own files."""

_LOOK_SECONDS: Final = 0.5


class Room:
    """Bytes that blocks may take. Thread-safe.

    Args:
        capacity: what the worker may hold.
        free: bytes that the file system has left.
        clock: seconds that only grow.
    """

    def __init__(
        self, *, capacity: int, free: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.capacity: Final = capacity
        self._free = free
        self._clock = clock
        self._lock = threading.Lock()
        self._used = 0
        self._reserved = 0
        self._looked = float("-inf")
        self._left = 0

    @property
    def used(self) -> int:
        """Bytes of all blocks that lie here."""
        return self._used

    def reserve(self, length: int) -> str:
        """Reserve room for a block; why not, or an empty text."""
        with self._lock:
            taken = self._used + self._reserved + length
            if taken > self.capacity:
                over = taken - self.capacity
                return f"the cache's capacity of {self.capacity} bytes would be exceeded by {over} bytes"
            now = self._clock()
            if now - self._looked > _LOOK_SECONDS:
                self._looked, self._left = now, self._free() - self._reserved
            if self._left < length + SLACK_BYTES:
                return f"the disk has {max(0, self._left)} bytes left, and the block needs {length}"
            self._left -= length
            self._reserved += length
            return ""

    def keep(self, length: int) -> None:
        """What was reserved has become a block."""
        with self._lock:
            self._reserved -= length
            self._used += length

    def cancel(self, length: int) -> None:
        """What was reserved is not written."""
        with self._lock:
            self._reserved -= length
            self._left += length

    def observe(self, used: int) -> None:
        """A look at the folders found so many bytes."""
        with self._lock:
            self._used = used

    def removed(self, length: int) -> None:
        """A block was removed."""
        with self._lock:
            self._used = max(0, self._used - length)
            self._looked = float("-inf")


class InFlight:
    """A bound of the bytes that are held in memory at the same time. Thread-safe.

    Args:
        limit: bytes; a single piece that is larger waits until it is alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._now = 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, length: int) -> Iterator[None]:
        """Wait until `length` more bytes fit, and hold them while the body runs."""
        with self._changed:
            while self._now and self._now + length > self._limit:
                self._changed.wait()
            self._now += length
        try:
            yield
        finally:
            with self._changed:
                self._now -= length
                self._changed.notify_all()


class RateLimit:
    """A token bucket of bytes. Thread-safe.

    What is taken beyond what is there is owed: the next ones wait for it, so any size can be taken.

    Args:
        clock: seconds that only grow.
    """

    BURST_SECONDS: Final = 0.1

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rate: int | None = None
        self._tokens = 0.0
        self._at = clock()

    def set(self, rate: int | None) -> None:
        """Bytes a second from now on; None for no limit."""
        with self._lock:
            if rate != self._rate:
                self._refill()
                self._rate = rate
                self._tokens = min(self._tokens, 0.0)

    def take(self, length: int) -> float:
        """Take `length` bytes; seconds to wait before they may be asked for."""
        with self._lock:
            if self._rate is None:
                return 0.0
            self._refill()
            self._tokens -= length
            # What was there pays for the beginning; the wait is for the end, as on a link of this rate.
            return max(0.0, -(self._tokens + length) / self._rate) if self._rate else 60.0

    def _refill(self) -> None:
        now = self._clock()
        if self._rate:
            most = self._rate * self.BURST_SECONDS
            self._tokens = min(most, self._tokens + (now - self._at) * self._rate)
        self._at = now
