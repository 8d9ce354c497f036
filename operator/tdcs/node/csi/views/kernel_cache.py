"""What the kernel remembers of files that are read through FUSE: has it forget those that have changed at their source.

A FUSE mount of the cache remembers sizes and pages for minutes, which is most of its speed. The client has no way to
tell the kernel of a change. There are two others:

* A reconfiguration that changes nothing makes the kernel drop all that is not open, of the whole mount, in one
  call (`shrink_dcache_sb`).
* Whoever asks for a file's size *and insists* (`AT_STATX_FORCE_SYNC`) makes the kernel ask the client, and a new size
  or time makes it drop the file's pages, also of an open file. That is a question a file.
"""

import ctypes
import errno
import os
from typing import Final

import numpy as np

from tdcs.model.manifest import Manifest

_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_STATX_FORCE_SYNC: Final = 0x2000
_STATX_BASIC_STATS: Final = 0x7FF
_STATX_BYTES: Final = 256

_SYS_FSCONFIG: Final = 431
_SYS_FSPICK: Final = 433
_FSPICK_CLOEXEC: Final = 0x1
_FSCONFIG_SET_FLAG: Final = 0
_FSCONFIG_CMD_RECONFIGURE: Final = 7

_libc = ctypes.CDLL(None, use_errno=True)


def changed_files(*, old: Manifest, new: Manifest) -> list[bytes]:
    """Paths of the files of `old` that are gone, or have another content, in `new`."""
    counts = np.diff(old.block_ends, prepend=np.uint32(0))
    blocks = old.block_ends[counts > 0] - counts[counts > 0]
    found = new.blocks_at(old.block_ids[blocks])
    changed = np.ones(len(old), dtype=np.bool_)
    with_blocks = np.flatnonzero(counts)
    known = np.flatnonzero(found >= 0)
    files, others = with_blocks[known], new.files_of(found[known])
    # A cache that was set up anew begins its ids anew: the same id alone does not say that it is the same file.
    same = (
        (old.block_slots[blocks[known]] == new.block_slots[found[known]])
        & (old.lengths[files] == new.lengths[others])
        & (old.tags()[files] == new.tags()[others])
    )
    changed[files[same]] = False
    return [
        path
        for file in np.flatnonzero(changed).tolist()
        for path in (old.file_path(file),)
        if counts[file] or not _same(old, file, new, path)
    ]


def _same(old: Manifest, file: int, new: Manifest, path: bytes) -> bool:
    """Whether a file without blocks is the same in `new`."""
    other = new.file_at(path)
    return (
        other is not None
        and int(old.lengths[file]) == int(new.lengths[other])
        and len(new.blocks_of(other)) == 0
        and old.tag(file) == new.tag(other)
    )


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


def forget_unused(*, point: str, read_only: bool = False) -> None:
    """Have the kernel forget all of the mount at `point` that is not open at this moment.

    Args:
        point: Where it is mounted.
        read_only: Whether its file system can be mounted read-only alone, as an overlay without an upper layer.

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
        if read_only:
            _configure(picked, _FSCONFIG_SET_FLAG, b"ro", point=point)
        _configure(picked, _FSCONFIG_CMD_RECONFIGURE, None, point=point)
    finally:
        os.close(picked)


def _configure(picked: int, command: int, key: bytes | None, *, point: str) -> None:
    arguments = (ctypes.c_long(picked), ctypes.c_long(command), ctypes.c_char_p(key), ctypes.c_void_p(None))
    if _libc.syscall(ctypes.c_long(_SYS_FSCONFIG), *arguments, 0) < 0:
        raise _last_error(point)


def _last_error(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
