"""Bounds of what is under way: bytes in memory, and bytes a second from a source."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class InFlight:
    """A bound of the bytes that are held in memory at the same time. Thread-safe.

    Those who hold or want some have equal shares of it, so that a source that hangs does not stop what is read from
    another one: whoever holds nothing may hold a piece beyond the bound, as far as half of it.

    Args:
        limit: bytes; a single piece that is larger waits until it is alone.
        look_seconds: how often those who wait are asked whether they still do.
    """

    def __init__(self, limit: int, *, look_seconds: float = 1.0) -> None:
        self._limit: Final = limit
        self._look_seconds: Final = look_seconds
        self._held: Final = Counter[str]()
        self._waiting: Final = Counter[str]()
        self._changed = threading.Condition()

    @contextmanager
    def hold(
        self, length: int, *, owner: str = "", waiting: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """Wait until `length` more bytes fit, and hold them while the body runs.

        Args:
            owner: what they are for, a mount's path: it has a share of its own.
            waiting: called again and again while that lasts; what it raises ends the wait.
        """
        while not self._take(length, owner):
            waiting()
        try:
            yield
        finally:
            with self._changed:
                self._add(self._held, owner, -length)
                self._changed.notify_all()

    def _take(self, length: int, owner: str) -> bool:
        """Hold `length` bytes, if they fit before it is time to say that they do not."""
        with self._changed:
            if not self._fits(length, owner):
                self._add(self._waiting, owner, 1)
                try:
                    fits = self._changed.wait_for(
                        lambda: self._fits(length, owner), timeout=self._look_seconds
                    )
                finally:
                    self._add(self._waiting, owner, -1)
                if not fits:
                    return False
            self._held[owner] += length
            return True

    def _fits(self, length: int, owner: str) -> bool:
        held = self._held.get(owner, 0)
        total = self._held.total() + length
        if not held:
            return not self._held or total <= self._limit * 3 // 2
        owners = len({*self._held, *self._waiting, owner})
        return total <= self._limit and held + length <= self._limit // owners

    @staticmethod
    def _add(counts: Counter[str], owner: str, amount: int) -> None:
        counts[owner] += amount
        if not counts[owner]:
            del counts[owner]


class TransferTurn(NamedTuple):
    """When bytes that were taken may be asked for: once so many have flowed."""

    at: float
    demand: bool


class RateLimit:
    """A token bucket of bytes. Thread-safe.

    What is taken beyond what is there is owed: the next ones wait for it, so any size can be taken. Who waits follows a
    rate that changes meanwhile: a share of a bandwidth may grow a hundredfold a moment after a load has begun.

    Bytes on demand, which a program waits for, go ahead of all others: they wait for one another alone, and the others
    wait so much longer that the rate is kept.

    Args:
        look_seconds: how often those who wait look at the time.
    """

    BURST_SECONDS: Final = 0.1

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, look_seconds: float = 0.5) -> None:
        self._clock = clock
        self._look_seconds: Final = look_seconds
        self._changed = threading.Condition()
        self._rate: int | None = None
        self._tokens = 0.0
        self._demand_tokens = 0.0
        self._demanded = 0.0
        self._flowed = 0.0
        self._at = clock()

    def set(self, rate: int | None) -> None:
        with self._changed:
            if rate != self._rate:
                self._refill()
                self._rate = rate
                self._tokens = min(self._tokens, 0.0)
                self._demand_tokens = min(self._demand_tokens, 0.0)
                self._changed.notify_all()

    def wait(
        self,
        length: int,
        *,
        stopped: threading.Event,
        demand: bool = False,
        waiting: Callable[[], None] = lambda: None,
    ) -> bool:
        """Take `length` bytes, and wait until they may be asked for; whether `stopped` was set meanwhile.

        Args:
            waiting: called a few times a second; what it raises ends the wait, and the bytes are given back.
        """
        turn = self.take(length, demand=demand)
        try:
            while not stopped.is_set():
                with self._changed:
                    if not (seconds := self.left(turn)):
                        break
                    self._changed.wait(min(seconds, self._look_seconds))
                waiting()
        except BaseException:
            self._give_back(length, turn)
            raise
        return stopped.is_set()

    def take(self, length: int, *, demand: bool = False) -> TransferTurn:
        """Take `length` bytes; when they may be asked for (see `left`)."""
        with self._changed:
            self._refill()
            flowed = self._flowed if demand else self._flowed - self._demanded
            if self._rate is None:
                return TransferTurn(flowed, demand)
            # What is there pays for the beginning; the wait is for what others owe, as on a link of this rate.
            turn = TransferTurn(flowed - (self._demand_tokens if demand else self._tokens), demand)
            self._spend(length, demand=demand)
            return turn

    def left(self, turn: TransferTurn) -> float:
        """Seconds to wait for a turn, at the rate of now."""
        with self._changed:
            self._refill()
            flowed = self._flowed if turn.demand else self._flowed - self._demanded
            if self._rate is None or flowed >= turn.at:
                return 0.0
            return (turn.at - flowed) / self._rate if self._rate else 60.0

    def _give_back(self, length: int, turn: TransferTurn) -> None:
        with self._changed:
            if self._rate is not None:
                self._spend(-length, demand=turn.demand)
                self._changed.notify_all()

    def _spend(self, length: int, *, demand: bool) -> None:
        self._tokens -= length
        if demand:
            self._demand_tokens -= length
            self._demanded += length

    def _refill(self) -> None:
        now = self._clock()
        if self._rate:
            flowed, most = (now - self._at) * self._rate, self._rate * self.BURST_SECONDS
            self._flowed += flowed
            self._tokens = min(most, self._tokens + flowed)
            self._demand_tokens = min(most, self._demand_tokens + flowed)
        self._at = now


_RATE_SECONDS: Final = 5.0


class Rate:
    """Bytes a second over the last seconds. Thread-safe enough: lost updates of a reader do not matter."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, length: int) -> None:
        self.total += length

    def sample(self) -> int:
        """Bytes a second since the oldest sample of the last seconds; takes a sample."""
        now = self._clock()
        self._samples.append((now, self.total))
        while len(self._samples) > 1 and self._samples[0][0] < now - _RATE_SECONDS:
            self._samples.popleft()
        begin, before = self._samples[0]
        return int((self.total - before) / (now - begin)) if now > begin else 0
