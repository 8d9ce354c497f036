"""The kernel's own news of what comes to folders and leaves them (inotify(7))."""

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

CREATED: Final = 0x100
MOVED_HERE: Final = 0x80
DELETED: Final = 0x200
MOVED_AWAY: Final = 0x40
OVERFLOWED: Final = 0x4000
ENDED: Final = 0x8000
"""The folder itself is gone, and no more is said of it."""

_ONLY_FOLDERS: Final = 0x01000000
_WANTED: Final = CREATED | MOVED_HERE | DELETED | MOVED_AWAY | _ONLY_FOLDERS
_HEAD: Final = struct.Struct("iIII")
_BUFFER_BYTES: Final = 1 << 16
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    """What happened to an entry of a watched folder; `kind` is one of the above, perhaps with others."""

    watch: int
    kind: int
    name: str


class Inotify:
    """An instance. Its descriptor can be read when something has happened. Raises OSError when there are too many."""

    def __init__(self) -> None:
        self.fd: Final = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify")

    def watch(self, folder: str) -> int:
        """Watch a folder: its number, the same for the same folder. Blocks while its disk does; raises OSError."""
        return _checked(_libc.inotify_add_watch(self.fd, os.fsencode(folder), _WANTED), folder)

    def end(self, watch: int) -> None:
        """Watch a folder no more; unknown ones are fine."""
        _libc.inotify_rm_watch(self.fd, watch)

    def events(self) -> Iterator[Event]:
        """What has happened since the last call."""
        while True:
            try:
                content = os.read(self.fd, _BUFFER_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(content):
                watch, kind, _, length = _HEAD.unpack_from(content, at)
                at += _HEAD.size
                yield Event(watch, kind, os.fsdecode(content[at : at + length].rstrip(b"\0")))
                at += length


def _checked(status: int, path: str) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return status
