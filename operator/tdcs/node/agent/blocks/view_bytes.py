"""Bytes of blocks that left the cache and that native views keep alive: a view's link holds a file's content."""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from tdcs.api import names
from tdcs.node.agent.disk.tier import Disk

_SHARE: Final = 50
_LEAST_SECONDS: Final = 10.0


class KeptByViews:
    """Counts them by looking through the views, when blocks have gone and while there are some."""

    def __init__(self, *, disk: Disk, clock: Callable[[], float] = time.monotonic) -> None:
        self._disk: Final = disk
        self._views: Final = disk.tier / names.VIEWS_FOLDER
        self._clock: Final = clock
        self._held = -1
        self._earliest = 0.0
        self.bytes = 0

    def due(self, *, held: int) -> bool:
        """Whether a look may find another number.

        Args:
            held: another number whenever blocks have gone.
        """
        if self._clock() < self._earliest:
            return False
        changed, self._held = held != self._held, held
        return changed or self.bytes > 0

    def look(self) -> None:
        """Count. Run it in a thread: it reads the attributes of every file of every view."""
        began = self._clock()
        # Columns: as objects, a million files would take 160 MB.
        columns = array("q"), array("q"), array("q")
        for status in _files(self._views):
            # What only stands for a file that is elsewhere has a length, and no bytes on the disk.
            size = min(status.st_size, 512 * status.st_blocks)
            for column, value in zip(columns, (status.st_ino, status.st_nlink, size), strict=True):
                column.append(value)
        inodes, links, sizes = (np.frombuffer(column, dtype=np.int64) for column in columns)
        _, first, counts = np.unique(inodes, return_index=True, return_counts=True)
        # A file that has no names but those in views is in no folder of blocks any more.
        self.bytes = int(sizes[first][counts >= links[first]].sum())
        took = self._clock() - began
        self._earliest = self._clock() + max(_LEAST_SECONDS, took * _SHARE)


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Attributes of all plain files below, on the folder's own file system: what is mounted in views shows files of it
    again, and others. What vanishes meanwhile, or may not be read, is left out."""
    try:
        device, waiting = os.stat(folder).st_dev, [str(folder)]
    except OSError:
        return
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                            waiting.append(entry.path)
                        elif stat.S_ISREG(status.st_mode):
                            yield status
                    except OSError:
                        continue
        except OSError:
            continue
