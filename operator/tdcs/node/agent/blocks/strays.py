"""Removes what is here and belongs to nothing: in one pass, by what each file says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from tdcs.node.agent.blocks.inventory import Inventory, Rows
from tdcs.node.agent.disk.tier import Disk, Place
from tdcs.node.agent.mount.block_rows import Mask
from tdcs.node.agent.mount.mount_blocks import MountBlocks

_AT_ONCE: Final = 4096
_THREADS: Final = 8
"""That remove files: a disk that frees each one's blocks at once (mounted with `discard`) takes ten times as many."""
_PAUSE_SECONDS: Final = 2.0
KEPT_SECONDS: Final = 3600.0
"""For so long blocks without an id wait for a version that lists them, unless something finds no room."""


class Strays:
    """The strangers among a disk's files. All in one event loop."""

    def __init__(
        self,
        *,
        disk: Disk,
        inventory: Inventory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disk: Final = disk
        self._inventory: Final = inventory
        self._clock: Final = clock
        self._since: Final = clock()
        self._until = 0.0

    def due(self, mounts: Collection[MountBlocks], *, emptied: bool) -> bool:
        """Whether there are some to remove now; see `removable`."""
        if not self._inventory.complete or self._clock() < self._until:
            return False
        rows = self._inventory.strangers
        return len(rows) > 0 and bool(self._removable(rows, mounts, emptied=emptied).any())

    def any_of(self, mounts: Collection[str]) -> bool:
        """Whether files are here that say that they are of one of these mounts."""
        owners = [self._inventory.owner(mount) for mount in mounts]
        return bool(np.isin(self._inventory.strangers["owner"], owners).any())

    def _removable(self, rows: Rows, mounts: Collection[MountBlocks], *, emptied: bool) -> Mask:
        """Files that nothing needs any more.

        Of a mount those that its version does not list, once the agent works by the version that is assigned: whatever
        other mounts wait for. Of no mount that the agent knows, all: once the operator has assigned or taken something,
        since an agent without any may only not know of them yet. Blocks without an id wait for a version that lists
        them, while there is room.

        Args:
            emptied: whether a mount was forgotten.
        """
        assigned = any(mount.assignment is not None for mount in mounts)
        of_no_mount = assigned or emptied
        of_owner = np.full(int(rows["owner"].max()) + 1, of_no_mount, dtype=np.bool_)
        settled = {self._inventory.owner(mount.path): self._is_settled(mount) for mount in mounts}
        for owner, is_settled in settled.items():
            if 0 < owner < len(of_owner):
                of_owner[owner] = is_settled
        chosen = of_owner[rows["owner"]]
        waits = self._clock() - self._since < KEPT_SECONDS and not any(mount.room_failure for mount in mounts)
        if waits:
            listed = [owner for owner, is_settled in settled.items() if is_settled]
            chosen &= (rows["place"] != Place.KEPT) | np.isin(rows["owner"], listed)
        return np.asarray(chosen)

    def _is_settled(self, mount: MountBlocks) -> bool:
        """Whether what the last look did not find in a mount is no part of it: it is forgotten, or the agent works by
        what is assigned, and the look was made by that version."""
        if mount.forgotten:
            return True
        assignment, ledger = mount.assignment, mount.ledger
        if assignment is None or ledger is None or ledger.manifest.digest != assignment.manifest:
            return False
        return self._inventory.has_looked_by(ledger, mount=mount.path)

    async def remove(self, mounts: Collection[MountBlocks], *, emptied: bool) -> int:
        """Remove them; how many are gone."""
        rows = self._inventory.strangers
        removed = 0
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="strays") as threads:
            for begin in range(0, len(rows), _AT_ONCE):
                part = rows[begin : begin + _AT_ONCE]
                # Another version may have come meanwhile that lists some of them.
                part = part[self._removable(part, mounts, emptied=emptied)]
                removed_mask = np.zeros(len(part), dtype=np.bool_)
                await self._remove(part, removed_mask, threads)
                self._inventory.removed(part[removed_mask])
                removed += int(np.count_nonzero(removed_mask))
        self._until = self._clock() + _PAUSE_SECONDS
        return removed

    async def _remove(self, part: Rows, removed_mask: Mask, threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        for place in Place:
            rows = np.flatnonzero(part["place"] == place)
            names = part["name"][rows]
            work = [
                loop.run_in_executor(threads, self._disk.remove, place, names[share::_THREADS].tolist())
                for share in range(min(_THREADS, len(names)))
            ]
            for done in await asyncio.gather(*work):
                removed_mask[rows] |= np.isin(names, done)
