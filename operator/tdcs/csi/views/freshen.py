"""Makes the kernel forget what it remembers of files that have changed at their source.

A FUSE mount of the cache remembers sizes and pages for minutes, which is most of its speed. The client has no way to
tell the kernel of a change. There are two others:

* A reconfiguration that changes nothing makes the kernel drop all that nobody has open, of the whole mount, in one
  call (`shrink_dcache_sb`).
* Whoever asks for a file's size *and insists* (`AT_STATX_FORCE_SYNC`) makes the kernel ask the client, and a new size
  or time makes it drop the file's pages, also of an open file. That is a question a file.
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

_SYS_FSCONFIG: Final = 431
_SYS_FSPICK: Final = 433
_FSPICK_CLOEXEC: Final = 0x1
_FSCONFIG_CMD_RECONFIGURE: Final = 7

_libc = ctypes.CDLL(None, use_errno=True)


def changed_files(*, old: Manifest, new: Manifest) -> Iterator[bytes]:
    """Paths of the files of `old` that are gone, or have another content, in `new`."""
    after = new.entries(range(len(new)))
    found = next(after, None)
    for index, folder, name in old.entries(range(len(old))):
        while found is not None and found[1:] < (folder, name):  # both are in this order
            found = next(after, None)
        if (
            found is None
            or found[1:] != (folder, name)
            or (old.blocks[index], old.lengths[index]) != (new.blocks[found[0]], new.lengths[found[0]])
        ):
            yield folder + b"/" + name if folder else name


def freshen(*, path: bytes) -> None:
    """Have the kernel ask the FUSE client about a file. Blocks while the client does.

    A file that is gone is fine. Raises OSError when the client does not answer.
    """
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    flags = _AT_SYMLINK_NOFOLLOW | _AT_STATX_FORCE_SYNC
    if _libc.statx(_AT_FDCWD, path, flags, _STATX_BASIC_STATS, buffer) < 0:
        error = _last_error(os.fsdecode(path))
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise error


def forget_unused(*, point: str) -> None:
    """Have the kernel forget all of the mount at `point` that is not open at this moment.

    Raises OSError, on a kernel before 5.2 for one.
    """
    picked = _libc.syscall(
        ctypes.c_long(_SYS_FSPICK),
        ctypes.c_long(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(point)),
        _FSPICK_CLOEXEC,
    )
    if picked < 0:
        raise _last_error(point)
    try:
        nothing = ctypes.c_void_p(None)
        command = ctypes.c_long(_FSCONFIG_CMD_RECONFIGURE)
        if (
            _libc.syscall(ctypes.c_long(_SYS_FSCONFIG), ctypes.c_long(picked), command, nothing, nothing, 0)
            < 0
        ):
            raise _last_error(point)
    finally:
        os.close(picked)


def _last_error(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
