"""Keeps on the disk which blocks could not be brought, so that a restart does not forget it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from tdcs.node.agent.disk.mount_notes import MountNotes
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.failed_fetches import FailedBlocks
from tdcs.node.agent.mount.mount_blocks import MountBlocks

_log: Final = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 5.0
_MOST: Final = 10_000
"""Blocks of a mount that are noted; others are missing after a restart, until they are tried."""


class FailureNotes:
    """The notes of one agent. All calls in one event loop."""

    def __init__(self, *, disk: Disk, clock: Callable[[], float]) -> None:
        self._notes: Final = MountNotes(disk.failures, kind=FailedBlocks)
        self._clock: Final = clock
        self._until = 0.0
        self._earlier: Final = {note.mount: note for note in self._notes.read()}
        self._noted_changes: Final[dict[str, tuple[int, int]]] = {}

    def restore(self, mount: str, ledger: Ledger) -> None:
        """Tell the first ledger of a mount what an earlier process has noted. The blocks are tried at once."""
        note = self._earlier.pop(mount, None)
        if note is not None:
            ledger.restore_failures(note.blocks)

    def due(self, mounts: Collection[MountBlocks]) -> bool:
        return self._clock() >= self._until and any(
            self._noted_changes.get(mount.path) != _change(mount) for mount in mounts
        )

    async def keep(self, mounts: Collection[MountBlocks]) -> None:
        """Note what has changed; a disk that refuses is asked again after the next change."""
        self._until = self._clock() + _PAUSE_SECONDS
        for mount in mounts:
            change, ledger = _change(mount), mount.ledger
            if (
                ledger is None
                or change is None
                or mount.forgotten
                or self._noted_changes.get(mount.path) == change
            ):
                continue
            with mount.lock:
                blocks = ledger.failed_blocks(most=_MOST)
            try:
                if blocks:
                    note = FailedBlocks(mount=mount.path, blocks=blocks)
                    await asyncio.to_thread(self._notes.write, note)
                else:
                    await asyncio.to_thread(self._notes.remove, mount.path)
            except OSError as error:
                _log.warning("what failed of %s cannot be noted on the disk: %s", mount.path, error)
            self._noted_changes[mount.path] = change

    def remove(self, mount: str) -> None:
        """A mount is gone; raises OSError."""
        self._noted_changes.pop(mount, None)
        self._notes.remove(mount)


def _change(mount: MountBlocks) -> tuple[int, int] | None:
    ledger = mount.ledger
    return None if ledger is None else (id(ledger), ledger.failure_changes)
