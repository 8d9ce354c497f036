"""A queue of keys: each at most once, never worked on twice at a time, with a back-off of its own.

The rules are those of client-go's work queue. A key that is added while it is being worked on is handed out
again afterwards, so no change is lost; a key that fails waits longer each time, and only that key.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tdcs.kube.informer import backoff

K = TypeVar("K", bound=Hashable)

ANY = object()
"""Whatever lane."""

RETRY_FIRST = 0.2
RETRY_MAX = 60.0


class KeyedQueue(Generic[K]):
    """Deduplicating queue for one event loop.

    Args:
        lane: what sorts the keys into lanes, so that some workers take keys of one lane only and slow work on others
            does not hold them up; by default there is one.
        clock: seconds that only grow.
        retry_first: seconds before a key that failed comes again.
        retry_max: the most of them, after many failures.
    """

    def __init__(
        self,
        *,
        lane: Callable[[K], Hashable] = lambda key: None,
        clock: Callable[[], float] = time.monotonic,
        retry_first: float = RETRY_FIRST,
        retry_max: float = RETRY_MAX,
    ) -> None:
        self._clock = clock
        self._retry_first = retry_first
        self._retry_max = retry_max
        self._lane = lane
        self._lanes: dict[Hashable, dict[K, float]] = {}  # keys to the time each was added, in order
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[K, int] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, key: K) -> None:
        """Hand the key out soon."""
        if key in self._working:
            self._again.add(key)
            return
        self._lanes.setdefault(self._lane(key), {}).setdefault(key, self._clock())
        self._filled.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Hand the key out after a while; an earlier date that was asked for before stands."""
        due = self._clock() + seconds
        planned = self._later.get(key)
        if planned is not None:
            if planned[0] <= due:
                return
            planned[1].cancel()
        handle = asyncio.get_running_loop().call_later(seconds, self._due, key)
        self._later[key] = (due, handle)

    async def get(self, *, lane: Hashable = ANY) -> K:
        """The key that waits longest, in one lane or in all; the caller must call `done` for it."""
        while not (waiting := self._oldest(lane)):
            self._filled.clear()
            await self._filled.wait()
        key = next(iter(waiting))
        del waiting[key]
        self._working.add(key)
        return key

    def _oldest(self, lane: Hashable) -> dict[K, float]:
        """The lane, or of all lanes the one with the first key that waits longest; empty when none waits."""
        if lane is not ANY:
            return self._lanes.get(lane) or {}
        filled = [waiting for waiting in self._lanes.values() if waiting]
        return min(filled, key=lambda waiting: next(iter(waiting.values())), default={})

    def done(self, key: K, *, failed: bool = False) -> None:
        """The work on the key has ended; after a failure it comes again, later each time."""
        self._working.discard(key)
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            pause = backoff(failures=self._failures[key], first=self._retry_first, most=self._retry_max)
            self.add_after(key, pause)
        else:
            self._failures.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def oldest_age(self) -> float:
        """Seconds that the first waiting key has waited; 0 when none waits."""
        waiting = self._oldest(ANY)
        return self._clock() - next(iter(waiting.values())) if waiting else 0.0

    def next_in(self, key: K) -> float:
        """Seconds until the key is handed out by `add_after` or after a failure; infinite when it is not."""
        planned = self._later.get(key)
        return planned[0] - self._clock() if planned is not None else math.inf

    def close(self) -> None:
        """Cancel all timers."""
        for _, handle in self._later.values():
            handle.cancel()
        self._later.clear()

    def _due(self, key: K) -> None:
        self._later.pop(key, None)
        self.add(key)
