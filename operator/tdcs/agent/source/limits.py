"""Bounds of what is under way: bytes in memory, and bytes a second from a source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final


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
