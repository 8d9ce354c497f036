"""A queue of keys: each at most once, never worked on twice at a time, with a back-off of its own.

The rules are those of client-go's work queue. A key that is added while it is being worked on is handed out
again afterwards, so no change is lost; a key that fails waits longer each time, and only that key.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Mapping
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
        retry_first: seconds before a key that failed comes again.
        retry_max: the most of them, after many failures.
        rest: seconds after the work on a key in which it is not handed out again, whatever is added: many changes in a
            row are one piece of work.
    """

    def __init__(
        self,
        *,
        lane: Callable[[K], Hashable] = lambda key: None,
        clock: Callable[[], float] = time.monotonic,
        retry_first: float = RETRY_FIRST,
        retry_max: float = RETRY_MAX,
        rest: float = 0.0,
    ) -> None:
        self._clock = clock
        self._retry_first = retry_first
        self._retry_max = retry_max
        self._rest = rest
        self._lane = lane
        # Keys to the time each was added, in order: those that are handed out first, and the others.
        self._urgent: dict[Hashable, dict[K, float]] = {}
        self._lanes: dict[Hashable, dict[K, float]] = {}
        self._working: set[K] = set()  # or resting after it
        self._resting: dict[K, asyncio.TimerHandle] = {}
        self._again: set[K] = set()
        self._pressing: set[K] = set()  # urgent until a pass of it succeeds
        self._later: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[K, int] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(waiting) for lanes in (self._urgent, self._lanes) for waiting in lanes.values())

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Hand the key out soon. One that is urgent comes before all that are not, until the work on it succeeds."""
        if urgent:
            self._pressing.add(key)
        if key in self._working:
            self._again.add(key)
            return
        lane = self._lane(key)
        if key in self._pressing:
            since = self._lanes.get(lane, {}).pop(key, self._clock())
            self._urgent.setdefault(lane, {}).setdefault(key, since)
        else:
            self._lanes.setdefault(lane, {}).setdefault(key, self._clock())
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
        """The key that waits longest, in one lane or in all, urgent ones first; the caller must call `done` for it."""
        while not (waiting := _oldest(self._urgent, lane) or _oldest(self._lanes, lane)):
            self._filled.clear()
            await self._filled.wait()
        key = next(iter(waiting))
        del waiting[key]
        self._working.add(key)
        return key

    def done(self, key: K, *, failed: bool = False) -> None:
        """The work on the key has ended; after a failure it comes again, later each time."""
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            pause = backoff(failures=self._failures[key], first=self._retry_first, most=self._retry_max)
            self.add_after(key, pause)
        else:
            self._failures.pop(key, None)
            if key not in self._again:
                self._pressing.discard(key)
        if self._rest:
            self._resting[key] = asyncio.get_running_loop().call_later(self._rest, self._free, key)
        else:
            self._free(key)

    def oldest_age(self) -> float:
        """Seconds that the first waiting key has waited; 0 when none waits."""
        queues = (_oldest(self._urgent, ANY), _oldest(self._lanes, ANY))
        oldest = min((next(iter(waiting.values())) for waiting in queues if waiting), default=None)
        return 0.0 if oldest is None else self._clock() - oldest

    def next_in(self, key: K) -> float:
        """Seconds until the key is handed out by `add_after` or after a failure; infinite when it is not."""
        planned = self._later.get(key)
        return planned[0] - self._clock() if planned is not None else math.inf

    def close(self) -> None:
        for handle in (*(handle for _, handle in self._later.values()), *self._resting.values()):
            handle.cancel()
        self._later.clear()
        self._resting.clear()

    def _free(self, key: K) -> None:
        self._resting.pop(key, None)
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: K) -> None:
        self._later.pop(key, None)
        self.add(key)


def _oldest(lanes: Mapping[Hashable, dict[K, float]], lane: Hashable) -> dict[K, float]:
    """The lane, or of all lanes the one with the first key that waits longest; empty when none waits."""
    if lane is not ANY:
        return lanes.get(lane) or {}
    filled = [waiting for waiting in lanes.values() if waiting]
    return min(filled, key=lambda waiting: next(iter(waiting.values())), default={})
