"""Drops blocks that are here and shall not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tdcs.node.agent.backoff import pause
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.block_rows import Numbers
from tdcs.node.agent.mount.mount_blocks import MountBlocks

_log: Final = logging.getLogger(__name__)

_FORGOTTEN_SECONDS: Final = 600.0
"""A block that was not tried again for so long after its pause may be gone: its refusals are forgotten."""


class Dropper:
    """Drops blocks of one disk. All in one event loop.

    Attributes:
        dropped: blocks that this process has dropped.
    """

    def __init__(self, *, disk: Disk, clock: Callable[[], float] = time.monotonic) -> None:
        self._disk: Final = disk
        self._clock: Final = clock
        self._refused: dict[int, tuple[int, float]] = {}
        """Blocks that the disk refuses to drop, by their ids: how often in a row, and when they are tried again."""
        self.dropped = 0

    async def drop(self, mount: MountBlocks, *, most: int) -> int:
        """Drop up to `most` blocks of a mount that shall not be here; how many were tried."""
        ledger = mount.ledger
        if ledger is None:
            return 0
        blocks = mount.to_drop(most=most, skip=self._resting(ledger))
        await self._drop(mount, ledger, blocks)
        return len(blocks)

    async def drop_block(self, mount: MountBlocks, ledger: Ledger, block: int) -> bool:
        """Drop this block, if nobody has claimed it; whether it was dropped."""
        with mount.lock:
            claimed = ledger.claim([block])
        return bool(claimed) and not await self._drop(mount, ledger, claimed)

    async def _drop(self, mount: MountBlocks, ledger: Ledger, blocks: Sequence[int]) -> dict[int, OSError]:
        """Drop claimed blocks; those that the disk has refused to drop, by their ids."""
        refused: dict[int, OSError] = {}
        dropped, waiting = list[int](), list(reversed(blocks))

        def drop() -> None:
            while waiting:
                identity = int(ledger.manifest.block_ids[waiting[-1]])
                try:
                    self._disk.unspool(identity)
                except OSError as error:
                    refused[identity] = error
                    with mount.lock:
                        ledger.release([waiting.pop()])
                else:
                    mount.dropped(ledger, waiting.pop())
                    dropped.append(identity)

        try:
            await asyncio.to_thread(drop)
        finally:
            with mount.lock:
                ledger.release(waiting)
        self.dropped += len(dropped)
        for identity in dropped:
            self._refused.pop(identity, None)
        for identity in refused:
            failures = self._refused.get(identity, (0, 0.0))[0] + 1
            self._refused[identity] = (failures, self._clock() + pause(failures))
        if refused:
            _log.warning(
                "the disk refuses to drop %d blocks of %s, which are tried again: %s",
                *(len(refused), mount.path, next(iter(refused.values()))),
            )
        return refused

    def _resting(self, ledger: Ledger) -> Numbers:
        """Blocks that are not tried now."""
        now = self._clock()
        self._refused = {
            identity: (failures, until)
            for identity, (failures, until) in self._refused.items()
            if now <= until + _FORGOTTEN_SECONDS
        }
        ids = [identity for identity, (_, until) in self._refused.items() if now < until]
        numbers = ledger.manifest.blocks_at(np.array(ids, dtype=np.int64))
        return np.asarray(numbers[numbers >= 0])
