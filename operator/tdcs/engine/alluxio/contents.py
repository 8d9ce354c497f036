"""Contents of small blocks that travel to several workers at about the same time: read once, written to each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from tdcs.engine.alluxio.rpc import RpcFailureError

BUDGET = 16 << 20
"""Bytes that are kept at most, whatever the number of workers."""


class Contents:
    """A small memory of what was read a moment ago.

    Args:
        budget: Bytes; the oldest contents go first.
    """

    def __init__(self, *, budget: int = BUDGET) -> None:
        self._budget = budget
        self._kept: dict[int, tuple[int, asyncio.Task[bytes]]] = {}
        self._size = 0

    async def get(self, *, block_id: int, length: int, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """A block's content, from `read` unless somebody has just read it, or is reading it. Errors are not kept."""
        known = self._kept.get(block_id)
        if known is None:
            task = asyncio.ensure_future(_result(read))
            self._kept[block_id] = (length, task)
            self._size += length
            self._make_room()
        else:
            task = known[1]
        try:
            # Whoever began to read may be cancelled; the others still want it.
            return await asyncio.shield(task)
        except (RpcFailureError, asyncio.CancelledError):
            self._forget(block_id)
            raise

    def forget(self, block_ids: Iterable[int]) -> None:
        """Copies are about to change: read these anew."""
        if self._kept:
            for block_id in block_ids:
                self._forget(block_id)

    def _forget(self, block_id: int) -> None:
        known = self._kept.pop(block_id, None)
        if known is not None:
            self._size -= known[0]

    def _make_room(self) -> None:
        while self._size > self._budget and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))


async def _result(read: Callable[[], Awaitable[bytes]]) -> bytes:
    return await read()
