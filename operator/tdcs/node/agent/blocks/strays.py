"""Removes what lies here and belongs to nothing: blocks of older versions, and spooled ones of no mount."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import numpy as np

from tdcs.listing.folder import ManifestFolder
from tdcs.model.manifest_format import BadManifestError
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.transfer.registrar import Registrar

_AT_ONCE: Final = 256
_LOOK_AGAIN: Final = -1


class Strays:
    """The strangers among a disk's blocks. All in one event loop."""

    def __init__(
        self, *, disk: Disk, manifests: ManifestFolder, inventory: Inventory, registrar: Registrar
    ) -> None:
        self._disk: Final = disk
        self._manifests: Final = manifests
        self._inventory: Final = inventory
        self._registrar: Final = registrar
        self._seen = 0

    def look_again(self) -> None:
        """Something has changed besides the folders: there may be some to remove although there were none."""
        self._seen = _LOOK_AGAIN

    def due(self, mounts: Collection[MountWork], *, emptied: bool) -> bool:
        """Whether there may be some to remove: not after a look that left only what is others'.

        Only when every mount is known by an assignment of the operator and by its manifest. Blocks in the worker's
        folder that no manifest of ours ever named may be others' and stay.

        Args:
            emptied: whether a mount was forgotten. Without that an agent that has none may only not know of them yet.
        """
        if not (mounts or emptied) or not self._inventory.complete:
            return False
        if not self._inventory.strangers and self._seen != _LOOK_AGAIN:
            return False
        known = all(
            mount.wanted is not None
            and mount.ledger is not None
            and mount.ledger.manifest.digest == mount.wanted.manifest
            for mount in mounts
        )
        return known and self._seen != self._inventory.looks

    async def remove(self, *, current: Collection[str]) -> tuple[int, int]:
        """Remove some; how many were, and how many of older versions there were.

        Args:
            current: digests of the manifests that are worked by. All other manifests name older versions.
        """
        looks = self._inventory.looks
        old = await asyncio.to_thread(self._outdated, current)
        removed = 0
        for identity in old[:_AT_ONCE]:
            removed += await self._registrar.remove(identity)
        for identity in self._inventory.stray_spooled.tolist()[:_AT_ONCE]:
            await asyncio.to_thread(self._disk.unspool, identity)
            removed += 1
        if removed:
            self._inventory.require()
            self.look_again()
        elif not old:
            self._seen = looks
        return removed, len(old)

    def _outdated(self, current: Collection[str]) -> list[int]:
        strangers = np.fromiter(self._inventory.strangers, dtype=np.int64)
        found: list[int] = []
        for digest in self._manifests.digests().difference(current):
            with suppress(FileNotFoundError, BadManifestError):
                manifest = self._manifests.open(digest)
                found += strangers[manifest.blocks_at(strangers) >= 0].tolist()
        return found
