"""Makes the kernel forget what it remembers of files that have changed at their source.

A FUSE mount of the cache remembers sizes and pages for minutes, which is most of its speed. The client has no way to
tell the kernel of a change, but whoever asks for a file's size *and insists* (`AT_STATX_FORCE_SYNC`) makes the kernel
ask the client, and a new size or time makes it drop the file's pages.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from typing import Final

from tdcs.csi.views.manifest import Manifest

_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_STATX_FORCE_SYNC: Final = 0x2000
_STATX_BASIC_STATS: Final = 0x7FF
_STATX_BYTES: Final = 256

_libc = ctypes.CDLL(None, use_errno=True)


def changed_files(*, old: Manifest, new: Manifest) -> Iterator[bytes]:
    """Paths of the files that both versions have, with different content."""
    before = {folder + b"/" + name: index for index, folder, name in old.entries(range(len(old)))}
    for index, folder, name in new.entries(range(len(new))):
        path = folder + b"/" + name
        other = before.get(path)
        if other is not None and (old.blocks[other], old.lengths[other]) != (
            new.blocks[index],
            new.lengths[index],
        ):
            yield path.lstrip(b"/")


def freshen(*, path: bytes) -> None:
    """Have the kernel ask the FUSE client about a file. Blocks while the client does.

    A file that is gone is fine. Raises OSError when the client does not answer.
    """
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    flags = _AT_SYMLINK_NOFOLLOW | _AT_STATX_FORCE_SYNC
    if _libc.statx(_AT_FDCWD, path, flags, _STATX_BASIC_STATS, buffer) < 0:
        number = ctypes.get_errno()
        if number not in (errno.ENOENT, errno.ENOTDIR):
            raise OSError(number, os.strerror(number), os.fsdecode(path))
