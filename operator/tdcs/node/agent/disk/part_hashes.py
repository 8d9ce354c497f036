"""Hashes of parts of blocks that were given before, so that a large block that many nodes read is hashed once."""

import os
import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from tdcs.node.file_facts import hash_of

SMALL_PART: Final = 64 << 10
"""Bytes up to which a part's hash is not kept: there may be very many of them."""
MOST: Final = 65_536
"""Parts of 1 MiB of 64 GiB; some 10 MB of memory."""


class _Part(NamedTuple):
    """A part of a file as it is: one that is written again has another inode or time."""

    inode: int
    changed: int
    size: int
    offset: int
    length: int


class PartHashes:
    """The hashes. Thread-safe. The oldest ones are forgotten."""

    def __init__(self, most: int = MOST) -> None:
        self._most: Final = most
        self._hashes: Final[OrderedDict[_Part, int]] = OrderedDict()
        self._lock: Final = threading.Lock()

    def get(self, fd: int, *, status: os.stat_result, offset: int, length: int) -> int:
        """xxh3_64 of a part of an open file, as it was when the part was first asked for; `status` is that of the file.

        Raises OSError.
        """
        if length < SMALL_PART:
            return hash_of(fd, offset=offset, length=length)
        part = _Part(status.st_ino, status.st_mtime_ns, status.st_size, offset, length)
        with self._lock:
            part_hash = self._hashes.get(part)
        if part_hash is not None:
            return part_hash
        part_hash = hash_of(fd, offset=offset, length=length)
        with self._lock:
            self._hashes[part] = part_hash
            while len(self._hashes) > self._most:
                self._hashes.popitem(last=False)
        return part_hash
