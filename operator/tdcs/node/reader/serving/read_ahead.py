"""What will be asked for next, by the order in which files and parts of files were asked for so far."""

from array import array
from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt

_FILES_KNOWN: Final = 4096
_RECENT: Final = 32
_SURE: Final = 6
_MOST_SURE: Final = 12
_TURNS: Final = 8
"""Places by which the turns of several readers shift a file between two epochs."""
_SHORTEST_EPOCH: Final = 64
FILES_AHEAD: Final = 32
PARTS_AHEAD: Final = 4


class FileOrder:
    """Notices when the files of a version are read in the order of their listing.

    Several readers take turns, so a file counts as in order when one shortly before it was read lately.

    Args:
        gap: how many places before it that may be.
    """

    def __init__(self, *, gap: int = 4) -> None:
        self._gap: Final = gap
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._sure = 0
        self._until = 0

    def next(self, file: int, *, files: int) -> range:
        """The files to fetch now that a file is read for the first time; none while the order is another one."""
        in_order = not self._recent.keys().isdisjoint(range(file - self._gap, file))
        self._sure = min(self._sure + 1, _MOST_SURE) if in_order else max(self._sure - 3, 0)
        self._recent[file] = None
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if self._sure < _SURE:
            self._until = file + 1
            return range(0)
        end = min(file + 1 + FILES_AHEAD, files)
        if not file < self._until <= end:
            self._until = file + 1
        if end - self._until < FILES_AHEAD // 2 and end < files:
            return range(0)
        begin, self._until = self._until, end
        return range(begin, end)


class EpochOrder:
    """Notices when the files of a version are read in the order of the epoch before, whatever order that is.

    An epoch ends when a file is read for the second time. What the kernel has in its page cache is not asked for, so an
    epoch may lack files. Keeps 13 bytes for each file of the version.
    """

    def __init__(self, *, files: int) -> None:
        self._last: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._places: Final = np.full(files, -1, dtype=np.int32)
        self._place_of: Final = self._places.data
        self._read: Final = bytearray(files)
        self._now = array("i")
        self._order = FileOrder(gap=_TURNS)

    def next(self, file: int) -> list[int]:
        """The files to fetch now that a file is read; none while the order is another one."""
        if self._read[file]:
            if len(self._now) < max(_SHORTEST_EPOCH, len(self._last) // 2):
                return []  # one that several jobs read, or that is read at random
            self._end_epoch()
        self._read[file] = 1
        self._now.append(file)
        place = self._place_of[file]
        if place < 0:
            return []
        ahead = self._order.next(place, files=len(self._last))
        return [int(each) for each in self._last[ahead.start : ahead.stop]]

    def _end_epoch(self) -> None:
        self._last = np.array(self._now, dtype=np.int32)
        self._places[:] = -1
        self._places[self._last] = np.arange(len(self._last), dtype=np.int32)
        self._read[:] = bytes(len(self._read))
        self._now = array("i")
        self._order = FileOrder(gap=_TURNS)


class OffsetOrder:
    """Notices which files are read from their beginning to their end."""

    def __init__(self) -> None:
        self._next: OrderedDict[tuple[int, int], int] = OrderedDict()

    def in_order(self, version: int, file: int, *, offset: int, size: int, slack: int) -> bool:
        """Whether a read goes on where earlier ones ended, within `slack` bytes, or begins at the file's beginning."""
        key = (version, file)
        expected = self._next.get(key, 0)
        found = abs(offset - expected) <= slack
        if found:
            self._next[key] = max(expected, offset + size) if offset else size
            self._next.move_to_end(key)
            if len(self._next) > _FILES_KNOWN:
                self._next.popitem(last=False)
        return found
