"""Where blocks lie that were cached nowhere and were placed a moment ago: so that nobody need be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tdcs.engine.protocol import Block

KEPT_SECONDS = 60.0
KEPT_BLOCKS = 20_000


class RecentPlacements:
    """What one process has placed of blocks that nobody held before.

    Only of such blocks is it known who holds them: of others there may be copies that somebody else made.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[int, tuple[float, frozenset[str]]] = {}  # the oldest first

    def note(self, *, worker: str, blocks: Iterable[Block], from_source: bool) -> None:
        """These blocks lie on a worker now; `from_source`: it has read them from their source."""
        now = self._clock()
        for block in blocks:
            known = self._known.pop(block.id, None)
            if known is not None:
                self._known[block.id] = (now, known[1] | {worker})
            elif from_source and not block.workers:
                self._known[block.id] = (now, frozenset({worker}))
        self._prune(now)

    def holders(self, block_id: int) -> frozenset[str] | None:
        """The workers that hold a block; None when that must be asked."""
        known = self._known.get(block_id)
        return known[1] if known is not None and known[0] > self._clock() - KEPT_SECONDS else None

    def forget(self, block_ids: Iterable[int]) -> None:
        """Copies of these are being removed."""
        if self._known:
            for block_id in block_ids:
                self._known.pop(block_id, None)

    def _prune(self, now: float) -> None:
        while self._known:
            block_id, (at, _) = next(iter(self._known.items()))
            if at > now - KEPT_SECONDS and len(self._known) <= KEPT_BLOCKS:
                return
            del self._known[block_id]
