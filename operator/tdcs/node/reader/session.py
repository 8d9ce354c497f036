"""A FUSE session: mounting it, its first request, and the descriptor that all who serve it share."""

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.node.reader import fuse_protocol

_SOURCE: Final = "tdcs"
"""What mountinfo names as the source of the mount."""

INIT_SECONDS: Final = 5
"""How long the kernel may take to begin a session."""

_READ_ONLY: Final = 1
_NO_SUID: Final = 2
_NO_DEVICES: Final = 4
_NO_ACCESS_TIMES: Final = 1024
_DETACH: Final = 2
_READAHEAD_KB: Final = 512
"""How much the kernel reads ahead, and what a program that maps a file pays for a first page anywhere: with half of the
largest read such a page takes half the time, and reads in order cost the same (docs/explanation/remote-reads.md)."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


class SessionEndedError(Exception):
    """The file system was unmounted, or its session was aborted."""


def mount(*, point: str) -> int:
    """Mount a new session there; its descriptor, which never blocks.

    Raises:
        OSError: the kernel refuses, or does not answer.
        Unsupported: the kernel's FUSE is too old.
    """
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        options = (
            f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={fuse_protocol.LARGEST_READ}"
        )
        flags = _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_ACCESS_TIMES
        name, kind = _SOURCE.encode(), names.READER_FILE_SYSTEM.encode()
        if _libc.mount(name, os.fsencode(point), kind, ctypes.c_ulong(flags), options.encode()):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), point)
        _answer_init(fd)
        _set_readahead(point)
    except BaseException:
        unmount(point=point)
        os.close(fd)
        raise
    return fd


def unmount(*, point: str) -> None:
    _libc.umount2(os.fsencode(point), _DETACH)


def is_mounted(*, point: str) -> bool:
    """Whether a session of this kind is mounted there, dead or alive."""
    return bool(_device(point))


def _device(point: str) -> str:
    """Number of the session's device, from mountinfo: to ask the file system itself would wait for a reader."""
    resolved = os.path.realpath(os.path.dirname(point)) + "/" + os.path.basename(point)
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    device = ""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after.startswith(f"{names.READER_FILE_SYSTEM} ") and fields[4] == resolved:
            device = fields[2]
    return device


def _answer_init(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(1000 * INIT_SECONDS):
        raise TimeoutError("the kernel did not begin the FUSE session")
    request = os.read(fd, fuse_protocol.REQUEST_BYTES)
    _, opcode, unique, *_ = fuse_protocol.REQUEST.unpack_from(request)
    if opcode != fuse_protocol.INIT:
        raise OSError(f"the FUSE session began with request {opcode}")
    os.write(fd, fuse_protocol.init_answer(request, unique=unique))


def _set_readahead(point: str) -> None:
    """Let the kernel ask for whole pieces of large files: its own default is 128 KiB."""
    with suppress(OSError):
        file = Path(f"/sys/class/bdi/{_device(point)}/read_ahead_kb")
        file.write_text(str(_READAHEAD_KB), encoding="ascii")
