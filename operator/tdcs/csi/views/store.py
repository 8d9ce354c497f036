"""A worker's folder of blocks, as this node's disk has it: one file a block, named by its id."""

import os
import time
from array import array
from typing import Final

from tdcs.api import names
from tdcs.csi.views.manifest import Manifest

_CLOCK_TICK: Final = 50_000_000
"""Nanoseconds: a folder's time moves in steps, so a change right after a look may not show in it."""


class Store:
    """The blocks of one tier."""

    def __init__(self, *, tier: str) -> None:
        self.folder: Final = os.path.join(os.fsencode(tier), os.fsencode(names.BLOCK_FOLDER))

    def stamp(self) -> int:
        """Changes whenever a block comes or goes; 0 when the folder is not there, -1 when it cannot be relied on yet.

        Take it before `scan`.
        """
        try:
            changed = os.stat(self.folder).st_mtime_ns
        except FileNotFoundError:
            return 0
        return -1 if abs(time.time_ns() - changed) < _CLOCK_TICK else changed

    def scan(self, *, manifest: Manifest) -> "array[int]":
        """Inode of the block of each file of a dataset, 0 where it is not here."""
        local = array("Q", bytes(8 * len(manifest)))
        try:
            entries = os.scandir(self.folder)
        except FileNotFoundError:
            return local
        with entries:
            for entry in entries:
                if entry.name.isdigit():
                    index = manifest.index_of_block(int(entry.name))
                    if index is not None:
                        local[index] = entry.inode()
        return local

    def block(self, identifier: int) -> bytes:
        """Path of a block's file."""
        return os.path.join(self.folder, b"%d" % identifier)
