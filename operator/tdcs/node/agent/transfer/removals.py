"""Blocks that were removed from the worker a moment ago, and may not be registered again yet.

A worker tells the master of removals with its heartbeat, and of new blocks at once. A block that is removed and made
again in between is therefore struck from the master's map by the heartbeat that follows, while the worker keeps it: no
client would ever read it.
"""

from __future__ import annotations

from collections.abc import Callable

SETTLED_SECONDS = 3.0
"""Heartbeats of a worker come every second: by then the master has heard of a removal."""


class Removals:
    """Recent removals of one worker.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: dict[int, float] = {}  # the oldest first

    def note(self, block_id: int) -> None:
        """A block was removed just now."""
        self._at.pop(block_id, None)
        self._at[block_id] = self._clock()

    def recent(self) -> list[int]:
        """Blocks that may not be registered yet."""
        settled = self._clock() - SETTLED_SECONDS
        for block_id, at in list(self._at.items()):
            if at > settled:
                break
            del self._at[block_id]
        return list(self._at)
