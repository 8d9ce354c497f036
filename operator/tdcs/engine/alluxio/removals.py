"""What was removed from workers a moment ago, and may not be loaded again yet.

A worker tells the master of removals with its heartbeat, and of loads at once. A block that is removed and loaded again
in between is therefore struck from the master's map by the heartbeat that follows, while the worker keeps it: nobody
would ever read it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable


class Removals:
    """Recent removals per worker.

    Args:
        settled_after: Seconds after which a worker's heartbeat has surely passed.
        clock: Seconds that only grow.
    """

    def __init__(self, *, settled_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._settled_after = settled_after
        self._clock = clock
        self._times: dict[str, dict[int, float]] = defaultdict(dict)

    def note(self, *, worker: str, block_ids: Iterable[int]) -> None:
        """Remember that these blocks were removed just now."""
        now = self._clock()
        self._prune(worker)
        self._times[worker].update(dict.fromkeys(block_ids, now))

    def pending(self, *, worker: str) -> bool:
        """Whether the master may still count something as used that this worker has removed."""
        self._prune(worker)
        return bool(self._times[worker])

    def recent(self, *, worker: str) -> list[int]:
        """Blocks that may not be loaded again yet."""
        self._prune(worker)
        return list(self._times[worker])

    def unsettled(self, *, worker: str, block_ids: Iterable[int]) -> float:
        """Seconds until all of these blocks may be loaded again."""
        self._prune(worker)
        times = self._times[worker]
        latest = max((times[block_id] for block_id in block_ids if block_id in times), default=None)
        return 0.0 if latest is None else max(0.0, latest + self._settled_after - self._clock())

    async def settle(self, *, worker: str, block_ids: list[int]) -> None:
        """Wait until all of these blocks may be loaded again; mostly that is at once."""
        await asyncio.sleep(self.unsettled(worker=worker, block_ids=block_ids))

    def _prune(self, worker: str) -> None:
        oldest = self._clock() - self._settled_after
        held = self._times[worker]
        for block_id in [block_id for block_id, at in held.items() if at <= oldest]:
            del held[block_id]
