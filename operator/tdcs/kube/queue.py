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

RETRY_FIRST = 0.2
RETRY_MAX = 60.0


class KeyedQueue(Generic[K]):
    """Deduplicating queue for one event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        retry_first: float = RETRY_FIRST,
        retry_max: float = RETRY_MAX,
    ) -> None:
        self._clock = clock
        self._retry_first = retry_first
        self._retry_max = retry_max
        self._waiting: dict[K, float] = {}  # key to the time it was added, in order
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._later: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[K, int] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Hand the key out soon."""
        if key in self._working:
            self._again.add(key)
            return
        self._waiting.setdefault(key, self._clock())
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

    async def get(self) -> K:
        """The key that waits longest; the caller must call `done` for it."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._working.add(key)
        return key

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
        return self._clock() - next(iter(self._waiting.values())) if self._waiting else 0.0

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
