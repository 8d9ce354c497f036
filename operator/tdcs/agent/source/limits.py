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

    What is taken beyond what is there is owed: the next ones wait for it, so any size can be taken. Who waits follows a
    rate that changes meanwhile: a share of a bandwidth may grow a hundredfold a moment after a load has begun.

    Args:
        clock: seconds that only grow.
    """

    BURST_SECONDS: Final = 0.1
    LOOK_SECONDS: Final = 0.5

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._rate: int | None = None
        self._tokens = 0.0
        self._flowed = 0.0
        self._at = clock()

    def set(self, rate: int | None) -> None:
        """Bytes a second from now on; None for no limit."""
        with self._changed:
            if rate != self._rate:
                self._refill()
                self._rate = rate
                self._tokens = min(self._tokens, 0.0)
                self._changed.notify_all()

    def wait(self, length: int, *, stopped: threading.Event) -> bool:
        """Take `length` bytes, and wait until they may be asked for; whether `stopped` was set meanwhile."""
        turn = self.take(length)
        with self._changed:
            while not stopped.is_set() and (left := self.left(turn)) > 0:
                self._changed.wait(min(left, self.LOOK_SECONDS))
        return stopped.is_set()

    def take(self, length: int) -> float:
        """Take `length` bytes; when they may be asked for, in bytes that have flowed by then (see `left`)."""
        with self._changed:
            self._refill()
            if self._rate is None:
                return self._flowed
            self._tokens -= length
            # What was there pays for the beginning; the wait is for the end, as on a link of this rate.
            return self._flowed - (self._tokens + length)

    def left(self, turn: float) -> float:
        """Seconds to wait for a turn, at the rate of now."""
        with self._changed:
            self._refill()
            if self._rate is None or self._flowed >= turn:
                return 0.0
            return (turn - self._flowed) / self._rate if self._rate else 60.0

    def _refill(self) -> None:
        now = self._clock()
        if self._rate:
            flowed = (now - self._at) * self._rate
            self._flowed += flowed
            self._tokens = min(self._rate * self.BURST_SECONDS, self._tokens + flowed)
        self._at = now
