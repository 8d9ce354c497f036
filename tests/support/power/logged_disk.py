"""A disk that remembers the order in which it was written and flushed: its power can be cut afterwards at any moment.

A FUSE file system of one file, for a loop device. Like the volatile cache of a real disk, it may lose whatever was
written since the last flush: `power_cuts` makes the images. A process of its own, since who writes waits for it::

    python -m tests.support.power.logged_disk POINT IMAGE LOG
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from typing import Final

from tdcs.node.reader import fuse_protocol as fuse

NAME: Final = "disk"
"""The one file."""
ENTRY: Final = struct.Struct("<QI")
"""In the log, before each write: its offset and length. A length of 0 is a flush."""

_FILE: Final = 2
_SETATTR, _OPEN, _READ, _WRITE, _RELEASE, _FSYNC, _FLUSH = 4, 14, 15, 16, 18, 20, 25
_OPENED: Final = struct.Struct("<QII")
_WRITTEN: Final = struct.Struct("<II")
_WRITE_BODY: Final = struct.Struct("<QQIIQII")
_INIT_ANSWER: Final = struct.Struct("<IIIIHHIIHHI28x")
_MAX_PAGES: Final = 1 << 22
_BIG_WRITES: Final = 1 << 5
_MOST_WRITTEN: Final = 256 << 10


def serve(*, point: str, image: str, log: str) -> None:
    """Mount the file system, say so on standard output, and answer until it is unmounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"logged-disk", os.fsencode(point), b"fuse.logged-disk", ctypes.c_ulong(0), options):
        raise OSError(ctypes.get_errno(), "FUSE cannot be mounted", point)
    content = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    size = os.fstat(content).st_size
    with open(log, "wb", buffering=0) as written:
        print("mounted", flush=True)
        while True:
            try:
                request = os.read(fd, _MOST_WRITTEN + 8192)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            answer = _answer(request, content=content, size=size, log=written.fileno())
            if answer is not None:
                os.write(fd, answer)


def _answer(request: bytes, *, content: int, size: int, log: int) -> bytes | None:
    _, opcode, unique, node, *_ = fuse.REQUEST.unpack_from(request)
    body = memoryview(request)[fuse.REQUEST.size :]
    file = fuse.Attributes(_FILE, size, 0, is_file=True)
    attributes = file if node == _FILE else fuse.Attributes(fuse.ROOT, 0, 0, is_file=False)
    if opcode == fuse.INIT:
        major, minor, ahead, _ = struct.unpack_from("<IIII", body)
        flags = _MAX_PAGES | _BIG_WRITES
        pages = _MOST_WRITTEN // 4096
        return _data(
            unique,
            _INIT_ANSWER.pack(major, min(minor, 40), ahead, flags, 64, 48, _MOST_WRITTEN, 1, pages, 0, 0),
        )
    if opcode in fuse.UNANSWERED:
        return None
    if opcode == fuse.LOOKUP:
        name = bytes(body).rstrip(b"\0").decode()
        return fuse.entry_answer(unique, file) if name == NAME else fuse.failure(unique, number=errno.ENOENT)
    if opcode in (fuse.GETATTR, _SETATTR):
        return fuse.attribute_answer(unique, attributes)
    if opcode == _OPEN:
        return _data(unique, _OPENED.pack(0, 0, 0))
    if opcode == _READ:
        _, offset, length = fuse.READ_BODY.unpack_from(body)
        return _data(unique, os.pread(content, length, offset))
    if opcode == _WRITE:
        _, offset, length, *_ = _WRITE_BODY.unpack_from(body)
        data = body[_WRITE_BODY.size : _WRITE_BODY.size + length]
        os.writev(log, [ENTRY.pack(offset, length), data])
        os.pwrite(content, data, offset)
        return _data(unique, _WRITTEN.pack(length, 0))
    if opcode == _FSYNC:
        os.write(log, ENTRY.pack(0, 0))
        return _data(unique, b"")
    if opcode in (_RELEASE, _FLUSH):
        return _data(unique, b"")
    if opcode == fuse.STATFS:
        return fuse.statfs_answer(unique)
    return fuse.failure(unique, number=errno.ENOSYS)


def _data(unique: int, body: bytes) -> bytes:
    return fuse.ANSWER.pack(fuse.ANSWER.size + len(body), 0, unique) + body


if __name__ == "__main__":
    serve(point=sys.argv[1], image=sys.argv[2], log=sys.argv[3])
