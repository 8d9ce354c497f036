"""What will be asked for next, by the order in which files and parts of files were asked for so far. Pure."""

from collections import OrderedDict
from typing import Final

_FILES_KNOWN: Final = 4096
_RECENT: Final = 64
_SURE: Final = 6
_MOST_SURE: Final = 12
FILES_AHEAD: Final = 32
PARTS_AHEAD: Final = 4


class FileOrder:
    """Notices when the files of a version are read in the order of their listing.

    Several readers take turns, so a file counts as in order when one shortly before it was read lately.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._sure = 0
        self._until = 0

    def next(self, file: int, *, files: int) -> range:
        """The files to fetch now that a file is read for the first time; none while the order is another one.

        Args:
            files: how many the version has.
        """
        in_order = any(file - back in self._recent for back in (1, 2, 3, 4))
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
