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
MOST_PARTS_AHEAD: Final = 4
_READS_IN_ORDER: Final = 3
_STREAMS: Final = 4
"""Programs that read a file, each in order, that are told apart."""


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
        return [int(file_number) for file_number in self._last[ahead.start : ahead.stop]]

    def _end_epoch(self) -> None:
        self._last = np.array(self._now, dtype=np.int32)
        self._places[:] = -1
        self._places[self._last] = np.arange(len(self._last), dtype=np.int32)
        self._read[:] = bytes(len(self._read))
        self._now = array("i")
        self._order = FileOrder(gap=_TURNS)


class _Stream:
    """A program that reads a file in order: where it goes on, and how many of its reads were in order."""

    __slots__ = ("end", "reads")

    def __init__(self, end: int, reads: int) -> None:
        self.end, self.reads = end, reads


class OffsetOrder:
    """Notices which files are read in order, from their beginning or from anywhere else.

    Reads at random places are far from one another, and one of a few is near: so a file is read in order once a read
    begins at its very beginning, or exactly where another one ended. From the third read in order on the kernel may ask
    for parts in another order, and a read goes on within some slack. Several programs may read a file, each from
    another place.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[int, int], list[_Stream]] = OrderedDict()

    def in_order(self, version: int, file: int, *, offset: int, size: int, slack: int) -> bool:
        """Whether a read goes on where earlier ones ended, or begins at the file's beginning.

        Args:
            slack: bytes before or behind the end of those that were in order for a while.
        """
        key = (version, file)
        streams = self._streams.get(key)
        if streams is None:
            streams = self._streams[key] = []
            if len(self._streams) > _FILES_KNOWN:
                self._streams.popitem(last=False)
        else:
            self._streams.move_to_end(key)
        for stream in streams:
            if stream.end == offset or (
                stream.reads >= _READS_IN_ORDER and stream.end - size - slack <= offset <= stream.end + slack
            ):
                stream.end = max(stream.end, offset + size)
                stream.reads += 1
                streams.remove(stream)
                streams.append(stream)
                return True
        streams.append(_Stream(offset + size, 0 if offset else 1))
        if len(streams) > _STREAMS:
            del streams[0]
        return offset == 0

    def parts_ahead(self, version: int, file: int) -> int:
        """How many parts to fetch ahead of the last read, which was in order: the more were, the more follow."""
        streams = self._streams.get((version, file))
        return min(1 << max(0, streams[-1].reads - 1), MOST_PARTS_AHEAD) if streams else 0
