"""Bytes of blocks that left the cache and that native views keep alive: a view's link holds a file's content."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tdcs.agent.disk.tier import Disk
from tdcs.api import names

_SHARE: Final = 50
_LEAST_SECONDS: Final = 10.0


class KeptByViews:
    """Counts them by looking through the views, when blocks have gone and while there are some.

    Args:
        disk: with the views.
        clock: seconds that only grow.
    """

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
        links: dict[int, list[int]] = {}
        for found in _files(self._views):
            # What only stands for a file that is elsewhere has a length, and no bytes on the disk.
            size = min(found.st_size, 512 * found.st_blocks)
            seen = links.setdefault(found.st_ino, [0, found.st_nlink, size])
            seen[0] += 1
        # A file that has no names but those in views is in no folder of blocks any more.
        self.bytes = sum(size for count, names_, size in links.values() if count >= names_)
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
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                            waiting.append(entry.path)
                        elif stat.S_ISREG(found.st_mode):
                            yield found
                    except OSError:
                        continue
        except OSError:
            continue
