"""A worker's folders of blocks, as this node's disks have them: one file a block, named by its id."""

import contextlib
import logging
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from tdcs.api import names
from tdcs.csi.views.manifest import Manifest

_log: Final = logging.getLogger(__name__)

_POSITIVE: Final = (1 << 63) - 1
_CLOCK_TICK: Final = 50_000_000
"""Nanoseconds: a folder's time moves in steps, so a change right after a look may not show in it."""


class Store:
    """The blocks that views can link: those of the views' own tier, and of others on the same file system."""

    def __init__(self, *, tiers: Sequence[str]) -> None:
        """`tiers` are the tiers' folders; views lie in the first one."""
        self._home: Final = tiers[0]
        self._folders: Final = [
            os.path.join(os.fsencode(tier), os.fsencode(names.BLOCK_FOLDER)) for tier in tiers
        ]
        self._told = False

    def stamp(self) -> int:
        """Changes whenever a block comes or goes; -1 when that cannot be relied on yet.

        Take it before `scan`.
        """
        stamps = [_stamp(folder) for folder in self._folders]
        if len(stamps) == 1:
            return stamps[0]
        return -1 if -1 in stamps else hash(tuple(stamps)) & _POSITIVE

    def scan(self, *, manifest: Manifest) -> "array[int]":
        """Inode of the block of each file of a dataset, 0 where it is not here."""
        local = array("Q", bytes(8 * len(manifest)))
        for folder in self._linkable():
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.isdigit():
                        index = manifest.index_of_block(int(entry.name))
                        if index is not None:
                            local[index] = entry.inode()
        return local

    def block(self, identifier: int) -> bytes:
        """Path of a block's file, whether it is there or not."""
        name = b"%d" % identifier
        paths = [os.path.join(folder, name) for folder in self._folders]
        return next((path for path in paths[:-1] if os.path.lexists(path)), paths[-1])

    def _linkable(self) -> Iterator[bytes]:
        """The folders on the file system of the views: no link leads to another one."""
        home, *others = self._folders
        yield home
        for folder in others:
            try:
                if os.stat(folder).st_dev == os.stat(self._home).st_dev:
                    yield folder
                    continue
            except FileNotFoundError:
                continue
            if not self._told:
                self._told = True
                _log.warning(
                    "tier %s is on another file system than the views in %s: what it holds is read through FUSE",
                    *(os.path.dirname(os.fsdecode(folder)), self._home),
                )


def _stamp(folder: bytes) -> int:
    """When a folder last changed; 0 when it is not there, -1 when another change may not show yet."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
    return -1 if abs(time.time_ns() - changed) < _CLOCK_TICK else changed
