"""What a file of the store says of itself, in an extended attribute: how long it is, the hash of its content, and since
when it is on the disk."""

from __future__ import annotations

import errno
import os
import struct
from contextlib import suppress
from typing import Final, NamedTuple

import xxhash

_ATTRIBUTE: Final = b"user.tdcs.content"
_LAYOUT: Final = struct.Struct("<BxxxIQQ")
_FORMAT: Final = 2
_CHUNK: Final = 1 << 20
_NO_ATTRIBUTES: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENOSPC})


class FileFacts(NamedTuple):
    """What was written to a file.

    Attributes:
        length: bytes.
        content_hash: xxh3_64 of all of them.
        era: in which the file got its name (`tdcs.node.agent.disk.shutdown_mark`).
    """

    length: int
    content_hash: int
    era: int = 0


def write_facts(file: int | str, facts: FileFacts) -> bool:
    """Note them with the file; False where the file system keeps no attributes, as tmpfs before Linux 6.6.

    Raises:
        OSError: The disk does not take them.
    """
    try:
        os.setxattr(file, _ATTRIBUTE, _LAYOUT.pack(_FORMAT, facts.era, facts.length, facts.content_hash))
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTES:
            raise
        return False
    return True


def read_facts(file: int | str | bytes) -> FileFacts | None:
    """None when the file says nothing, or cannot be asked."""
    with suppress(OSError, struct.error):
        form, era, length, content_hash = _LAYOUT.unpack(os.getxattr(file, _ATTRIBUTE))
        if form == _FORMAT:
            return FileFacts(length, content_hash, era)
    return None


def noted_hash(fd: int, *, size: int) -> int | None:
    """xxh3_64 of a file as it was when it was written; None when that was not noted.

    Args:
        size: of the file; another length than the one that was noted says that the note is of something else.
    """
    facts = read_facts(fd)
    return facts.content_hash if facts is not None and facts.length == size else None


def hash_of(fd: int, *, offset: int, length: int) -> int:
    """xxh3_64 of a part of a file, read now."""
    state, end = xxhash.xxh3_64(), offset + length
    while offset < end:
        piece = os.pread(fd, min(_CHUNK, end - offset), offset)
        if not piece:
            break
        state.update(piece)
        offset += len(piece)
    return state.intdigest()
