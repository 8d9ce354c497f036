"""Compares the lengths of blocks that were found on the disk with the manifest: one may have been cut off when the
machine lost power, and nothing else would say so before somebody reads it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tdcs.node.agent.blocks.inventory import Found, Inventory
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.mount_blocks import MountBlocks

_log: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


class BlockLengths:
    """Refuses blocks of another length at once, for every reader of the node, and lets them be brought again when they
    are gone. All in one event loop.
    """

    def __init__(
        self, *, disk: Disk, inventory: Inventory, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._disk: Final = disk
        self._inventory: Final = inventory
        self._clock: Final = clock
        self._refused: Final[dict[str, tuple[MountBlocks, set[int]]]] = {}
        self._look_at = 0.0

    def due(self) -> bool:
        """Whether there is something to measure, or refused blocks may be gone by now."""
        return bool(self._inventory.appeared) or (bool(self._refused) and self._clock() >= self._look_at)

    async def check(self) -> int:
        """Measure what appeared, and admit what is gone; how many blocks that concerned."""
        done = 0
        while self._inventory.appeared:
            appeared = self._inventory.appeared.popleft()
            wrong = await asyncio.to_thread(_of_another_length, self._disk, appeared)
            if wrong:
                await self._refuse(appeared, wrong)
            done += len(wrong)
        for mount, identities in list(self._refused.values()):
            done += self._admit(mount, identities)
        self._look_at = self._clock() + _LOOK_SECONDS
        return done

    async def _refuse(self, appeared: Found, wrong: list[int]) -> None:
        mount, ledger = appeared.mount, appeared.ledger
        ledger.warn_of_cut_off(mount.path, wrong)
        identities = ledger.manifest.block_ids[wrong].tolist()
        mount.refuse(identities)
        self._refused.setdefault(mount.path, (mount, set()))[1].update(identities)
        try:
            await asyncio.to_thread(self._disk.refused.add, mount.path, identities)
        except OSError as error:
            _log.warning("wrong blocks of %s cannot be noted on the disk: %s", mount.path, error)

    def _admit(self, mount: MountBlocks, identities: set[int]) -> int:
        identities &= self._disk.refused.of(mount.path)  # whoever compares contents has admitted the others
        refused_here = mount.refused_here()
        removed = {
            block for block in identities - refused_here if mount.forgotten or not self._disk.has(block)
        }
        if removed and not mount.forgotten:
            mount.admit(self._disk.refused.discard(mount.path, removed))
        identities -= removed
        if not identities:
            del self._refused[mount.path]
        return len(removed)


def _of_another_length(disk: Disk, appeared: Found) -> list[int]:
    """Which of these blocks have another length than the manifest says."""
    manifest = appeared.ledger.manifest
    wrong: list[int] = []
    blocks, lengths = appeared.blocks, manifest.block_lengths[appeared.blocks].tolist()
    with suppress(FileNotFoundError):
        opened = os.open(disk.spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for block, identity, length in zip(blocks.tolist(), appeared.ids, lengths, strict=True):
                with suppress(FileNotFoundError):
                    if os.stat(str(identity), dir_fd=opened).st_size != length:
                        wrong.append(block)
        finally:
            os.close(opened)
    return wrong
