"""Blocks that were found wrong: they count as not being here, for the agent and for the node plugin next to it.

On the disk each is an empty file with the block's id as its name, in a folder of its mount, so that one more wrong
block costs the same however many there are, and the node plugin learns of it by the folder's time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tdcs.api import names

_log: Final = logging.getLogger(__name__)

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


class RefusedBlocks:
    """The wrong blocks of one tier. Thread-safe.

    Args:
        tier: the tier's folder.
    """

    def __init__(self, tier: Path) -> None:
        self.folder: Final = tier / names.AGENT_REFUSED
        self._tier: Final = tier
        self._of: Final[dict[str, set[int]]] = {}
        self._all: Final[set[int]] = set()

    def __contains__(self, block: int) -> bool:
        return block in self._all

    def read(self) -> frozenset[int]:
        """Take up what an earlier process has noted; all of it."""
        with suppress(FileNotFoundError):
            for folder in os.listdir(self.folder):
                with suppress(FileNotFoundError, NotADirectoryError):
                    blocks = {int(name) for name in os.listdir(self.folder / folder) if name.isdecimal()}
                    self._of.setdefault(folder, set()).update(blocks)
                    self._all.update(blocks)
        return frozenset(self._all)

    def of(self, mount: str) -> frozenset[int]:
        return frozenset(self._of.get(self._of_mount(mount).name, ()))

    def add(self, mount: str, blocks: Iterable[int]) -> None:
        """Refuse blocks of a mount: at once for whoever asks this process, and on the disk when it returns.

        Raises:
            OSError: They are not noted on the disk. Noting them again is fine.
        """
        folder, new = self._of_mount(mount), list(blocks)
        self._of.setdefault(folder.name, set()).update(new)
        self._all.update(new)
        if not new:
            return
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for block in new:
                os.close(os.open(str(block), _NEW_FILE, 0o444, dir_fd=opened))
            os.fsync(opened)
        finally:
            os.close(opened)

    def discard(self, mount: str, blocks: Iterable[int]) -> frozenset[int]:
        """Refuse these blocks of a mount no more; those of which the disk has no note any more."""
        folder, discarded = self._of_mount(mount), set[int]()
        for block in blocks:
            try:
                with suppress(FileNotFoundError):
                    os.unlink(folder / str(block))
                discarded.add(block)
            except OSError as error:
                _log.warning("block %d stays refused: %s cannot be removed: %s", block, folder, error)
        self._of.get(folder.name, set()).difference_update(discarded)
        self._all.difference_update(discarded)
        return frozenset(discarded)

    def remove(self, mount: str) -> frozenset[int]:
        """Refuse nothing of a mount any more; those of which the disk has no note any more."""
        discarded = self.discard(mount, self.of(mount))
        with suppress(OSError):
            self._of_mount(mount).rmdir()
        return discarded

    def _of_mount(self, mount: str) -> Path:
        return self._tier / names.refused_folder(mount=mount)
