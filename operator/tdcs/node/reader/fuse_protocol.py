"""The FUSE protocol as a read-only file system needs it: numbers, layouts, and the answers.

Source: include/uapi/linux/fuse.h, protocol 7.31 and later (Linux 5.4). Numbers are those of a little-endian machine.
"""

import struct
from typing import Final, NamedTuple

LOOKUP: Final = 1
FORGET: Final = 2
GETATTR: Final = 3
OPEN: Final = 14
READ: Final = 15
STATFS: Final = 17
INIT: Final = 26
READDIR: Final = 28
INTERRUPT: Final = 36
DESTROY: Final = 38
BATCH_FORGET: Final = 42
READDIRPLUS: Final = 44

UNANSWERED: Final = frozenset({FORGET, DESTROY, BATCH_FORGET})
"""Requests that have no answer, or need none."""

ROOT: Final = 1
"""Number of the file system's own root."""

REQUEST: Final = struct.Struct("<IIQQIIII")
"""Length, opcode, unique, node, uid, gid, pid, rest: the header of every request."""
INTERRUPT_BODY: Final = struct.Struct("<Q")
"""Unique of the request that a signal reached the thread of."""
_SIGNALLED_AT: Final = 38
_SIGNALLED: Final = b"\x01\x00"
_THREAD: Final = struct.Struct("<I")
_THREAD_AT: Final = 32
ANSWER: Final = struct.Struct("<IiQ")
"""Length, error (0 or negative), unique: the header of every answer."""
READ_BODY: Final = struct.Struct("<QQI")
"""Handle, offset, size."""
DIRECTORY_ENTRY: Final = struct.Struct("<QQII")
"""Node, offset of the next one, length of the name, kind."""

_ATTRIBUTES: Final = "QQQQQQIIIIIIIIII"
_ENTRY: Final = struct.Struct("<QQQQII" + _ATTRIBUTES)
_ENTRY_ANSWER: Final = struct.Struct("<IiQ" + "QQQQII" + _ATTRIBUTES)
_ATTRIBUTE_ANSWER: Final = struct.Struct("<IiQ" + "QII" + _ATTRIBUTES)
_INVALIDATE_INODE: Final = 2
_INVALIDATION: Final = struct.Struct("<IiQ" + "Qqq")
_INIT_BODY: Final = struct.Struct("<IIII")
_INIT_ANSWER: Final = struct.Struct("<IIIIHHIIHHIIH22x")
_STATFS_ANSWER: Final = struct.Struct("<IiQ" + "QQQQQIIII24x")

_ASYNC_READ: Final = 1 << 0
_DO_READDIRPLUS: Final = 1 << 13
_READDIRPLUS_AUTO: Final = 1 << 14
_NO_OPEN_SUPPORT: Final = 1 << 17
_PARALLEL_DIROPS: Final = 1 << 18
_MAX_PAGES: Final = 1 << 22
_NO_OPENDIR_SUPPORT: Final = 1 << 24
_EXPLICIT_INVAL_DATA: Final = 1 << 25
_WANTED: Final = (
    _ASYNC_READ
    | _DO_READDIRPLUS
    | _READDIRPLUS_AUTO
    | _NO_OPEN_SUPPORT
    | _PARALLEL_DIROPS
    | _MAX_PAGES
    | _NO_OPENDIR_SUPPORT
    | _EXPLICIT_INVAL_DATA
)
"""With NO_OPEN_SUPPORT and an OPEN that is refused once, the kernel opens files alone, and keeps what was read of them
in its page cache from one open to the next."""

_MAJOR: Final = 7
_NEWEST_MINOR: Final = 40
OLDEST_MINOR: Final = 31

REQUEST_BYTES: Final = 8192
"""The smallest buffer for requests that the kernel accepts."""
LARGEST_READ: Final = 1 << 20
MOST_WAITING: Final = 65536
"""How many requests may be without an answer for long."""
_BACKGROUND: Final = (1 << 16) - 1
"""How many requests for which no thread waits, as those of the kernel's read-ahead are, are under way at a time: of all
pods together: as many as the protocol can say. What programs ask for ahead of slow sources is given up long before
(`PlaceShares`)."""
_CONGESTED: Final = _BACKGROUND - 1024
"""From so many on the kernel leaves out read-ahead that nothing waits for."""

FOLDER_KIND: Final = 4
FILE_KIND: Final = 8
_FOLDER_MODE: Final = 0o40555
_FILE_MODE: Final = 0o100444

FOR_EVER: Final = 86400
"""Seconds for which the kernel may keep names and attributes: those of a version never change."""


_OWN_NUMBERS: Final = (1 << 40) - 1


class Attributes(NamedTuple):
    """What `stat` says of a file or folder; `size` in bytes, `time` in seconds since 1970. The number of its inode is
    that of its node without that of its version, which another node has another one for."""

    node: int
    size: int
    time: int
    is_file: bool


class Unsupported(Exception):
    """The kernel speaks an older protocol than this file system needs."""


def _inode(node: int) -> int:
    file_number = node & _OWN_NUMBERS
    return file_number + 1 if file_number != node else _OWN_NUMBERS + 1


def _flat(attrs: Attributes) -> tuple[int, ...]:
    mode, links = (_FILE_MODE, 1) if attrs.is_file else (_FOLDER_MODE, 2)
    blocks, time = (attrs.size + 511) >> 9, attrs.time
    return (_inode(attrs.node), attrs.size, blocks, time, time, time, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


def init_answer(request: bytes | memoryview, *, unique: int) -> bytes:
    """The answer to the kernel's first request.

    Raises:
        Unsupported: the kernel is older than Linux 5.4.
    """
    major, minor, readahead, flags = _INIT_BODY.unpack_from(request, REQUEST.size)
    if major != _MAJOR or minor < OLDEST_MINOR:
        raise Unsupported(
            f"the kernel speaks FUSE {major}.{minor}; {_MAJOR}.{OLDEST_MINOR} (Linux 5.4) is needed"
        )
    body = _INIT_ANSWER.pack(
        *(_MAJOR, min(minor, _NEWEST_MINOR), readahead, flags & _WANTED, _BACKGROUND, _CONGESTED, 4096, 1),
        *(LARGEST_READ // 4096, 0, 0, 0, 0),
    )
    return ANSWER.pack(ANSWER.size + len(body), 0, unique) + body


def thread_of(request: bytes | memoryview) -> int:
    """The thread that asks, as the process that mounted the file system sees it; 0: it cannot see it."""
    thread: int = _THREAD.unpack_from(request, _THREAD_AT)[0]
    return thread


def is_signalled(request: bytes | memoryview) -> bool:
    """Whether `mark_signalled` was called for a request."""
    return bool(request[_SIGNALLED_AT : _SIGNALLED_AT + 2] == _SIGNALLED)


def mark_signalled(request: memoryview) -> None:
    """Note in a request, where the kernel says nothing, that a signal has reached the thread that asks."""
    request[_SIGNALLED_AT : _SIGNALLED_AT + 2] = _SIGNALLED


def failure(unique: int, *, number: int) -> bytes:
    return ANSWER.pack(ANSWER.size, -number, unique)


def invalidation(node: int, *, offset: int, length: int) -> bytes:
    """Says to the kernel that what it has in memory of a part of a file is not right any more."""
    return _INVALIDATION.pack(_INVALIDATION.size, _INVALIDATE_INODE, 0, node, offset, length)


def entry_answer(unique: int, attrs: Attributes, *, seconds: int = FOR_EVER) -> bytes:
    """The answer to LOOKUP; the kernel asks again after so many seconds."""
    return _ENTRY_ANSWER.pack(
        *(_ENTRY_ANSWER.size, 0, unique, attrs.node, 0, seconds, seconds, 0, 0), *_flat(attrs)
    )


def no_entry_answer(unique: int) -> bytes:
    """The answer to LOOKUP of a name that there is not, and never will be in this version."""
    return _ENTRY_ANSWER.pack(_ENTRY_ANSWER.size, 0, unique, 0, 0, FOR_EVER, 0, 0, 0, *([0] * 16))


def attribute_answer(unique: int, attrs: Attributes) -> bytes:
    return _ATTRIBUTE_ANSWER.pack(_ATTRIBUTE_ANSWER.size, 0, unique, FOR_EVER, 0, 0, *_flat(attrs))


def directory_entry(attrs: Attributes, *, name: bytes, following: int, plus: bool) -> bytes:
    """An entry of a folder; with `plus`, its attributes as well. The next one is asked for by `following`."""
    kind = FILE_KIND if attrs.is_file else FOLDER_KIND
    entry = (
        DIRECTORY_ENTRY.pack(_inode(attrs.node), following, len(name), kind) + name + bytes(-len(name) % 8)
    )
    return _ENTRY.pack(attrs.node, 0, FOR_EVER, FOR_EVER, 0, 0, *_flat(attrs)) + entry if plus else entry


def statfs_answer(unique: int) -> bytes:
    """The answer to STATFS: a full file system, as read-only ones are."""
    return _STATFS_ANSWER.pack(_STATFS_ANSWER.size, 0, unique, 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
