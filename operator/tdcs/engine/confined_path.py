"""Opens files below a folder that others may write to, so that no link leads out of it.

By openat2 (Linux 5.6), which the kernel does in one step: nothing that is exchanged meanwhile matters. Where there is
no openat2, or it is forbidden, every folder on the way is opened on its own and a symbolic link anywhere is refused.
"""

import contextlib
import ctypes
import errno
import functools
import os
import stat
from collections.abc import Iterator
from typing import Final

BENEATH: Final = 0x08
"""No step leads out of the folder: neither `..`, nor an absolute link."""
NO_SYMLINKS: Final = 0x04
"""No step is a symbolic link."""
NO_MAGICLINKS: Final = 0x02
"""No step is a link of /proc."""

_OPENAT2: Final = 437  # on every architecture
_LOST: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL})
_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AGAIN: Final = 16
"""How often the kernel may say that something on the way was renamed just now (EAGAIN)."""


class _How(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


def open_beneath(folder: int, path: bytes, flags: int, *, mode: int = 0, links: bool = False) -> int:
    """A descriptor of what is at `path` below the open folder, closed when another program is executed.

    Args:
        folder: descriptor of the folder; -100 (AT_FDCWD) is not one.
        path: relative; `..` is refused.
        flags: as for `os.open`.
        mode: of a new file.
        links: follow symbolic links that stay below the folder; else refuse any.

    Raises:
        OSError: ELOOP for a link that is refused, EXDEV for a way out, else as `os.open`.
    """
    if path.startswith(b"/") or b"\0" in path:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path))
    if has_openat2():
        return _openat2(folder, path, flags, mode=mode, resolve=_rules(links))
    return _stepwise(folder, path, flags, mode=mode)


def open_plain_folder(path: bytes) -> int:
    """A descriptor of the folder at an absolute path, no step of which is a symbolic link. Raises OSError."""
    root = os.open("/", _STEP)
    try:
        below = path.strip(b"/")
        return open_beneath(root, below, os.O_PATH | os.O_DIRECTORY) if below else os.dup(root)
    finally:
        os.close(root)


def make_plain_folder(path: bytes, *, mode: int = 0o755) -> int:
    """A descriptor of the folder at an absolute path, which is made where it is missing. Raises OSError."""
    try:
        return open_plain_folder(path)
    except FileNotFoundError:
        above, name = os.path.split(path.rstrip(b"/"))
        parent = make_plain_folder(above, mode=mode)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
        return open_beneath(parent, name, os.O_PATH | os.O_DIRECTORY)
    finally:
        os.close(parent)


@contextlib.contextmanager
def plain_folder(path: str | bytes, *, make: bool = False, mode: int = 0o755) -> Iterator[int]:
    """`open_plain_folder`, or `make_plain_folder`, for the time of a block."""
    encoded = os.fsencode(path)
    folder = make_plain_folder(encoded, mode=mode) if make else open_plain_folder(encoded)
    try:
        yield folder
    finally:
        os.close(folder)


def open_plain_file(path: str | bytes, flags: int = os.O_RDONLY, *, mode: int = 0o600) -> int:
    """A descriptor of the regular file at an absolute path, no step of which is a symbolic link. Raises OSError.

    It does not wait: who owns the file can put a pipe in its place, or hold a lease of it.
    """
    above, name = os.path.split(os.fsencode(path))
    with plain_folder(above) as folder:
        descriptor = open_beneath(folder, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode=mode)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", os.fsdecode(path))


def replace_plain_file(path: str | bytes, content: bytes) -> None:
    """Have a file with this content at an absolute path, its folder made where it is missing. Raises OSError."""
    above, name = os.path.split(os.fsencode(path))
    draft = name + b".new"
    with plain_folder(above, make=True) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder
        )
        with open(descriptor, "wb") as new:
            new.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def is_private(descriptor: int) -> bool:
    """Whether root, or the user of this process, owns an open file, and no one else may write to it.

    What others may write to can change, or become shorter, after it was checked and while it is mapped.
    """
    status = os.fstat(descriptor)
    owned = status.st_uid in (0, os.geteuid())
    return owned and not stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)


def set_mode(folder: int, name: bytes, mode: int) -> None:
    """Set the mode of an entry of an open folder, never of what a symbolic link leads to. Raises OSError."""
    descriptor = open_beneath(folder, name, os.O_PATH | os.O_NOFOLLOW)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(name))
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


@functools.cache
def has_openat2() -> bool:
    """Whether this kernel, and the container's filter of system calls, let openat2 through."""
    root = os.open("/", _STEP)
    try:
        os.close(_openat2(root, b".", _STEP, mode=0, resolve=_rules(False)))
    except OSError as error:
        if error.errno in _LOST:
            return False
        raise
    finally:
        os.close(root)
    return True


def _rules(links: bool) -> int:
    return BENEATH | NO_MAGICLINKS | (0 if links else NO_SYMLINKS)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, path: bytes, flags: int, *, mode: int, resolve: int) -> int:
    how = _How(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)
    for _ in range(_AGAIN):
        descriptor = _libc().syscall(
            _OPENAT2, folder, ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if descriptor >= 0:
            return int(descriptor)
        failure = ctypes.get_errno()
        if failure not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(failure, os.strerror(failure), os.fsdecode(path))


def _stepwise(folder: int, path: bytes, flags: int, *, mode: int) -> int:
    """Without openat2: one step after the other, no links at all."""
    *way, last = [piece for piece in path.split(b"/") if piece not in {b"", b"."}] or [b"."]
    if b".." in (*way, last):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path))
    at = os.dup(folder)
    try:
        for piece in way:
            deeper = _step(piece, at)
            os.close(at)
            at = deeper
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
    finally:
        os.close(at)


def _step(piece: bytes, folder: int) -> int:
    try:
        return os.open(piece, _STEP, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(piece, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(piece)) from None
        raise


def explain_disk(error: OSError, *, at: str) -> str:
    """What a failure of the disk means for people, and what to do: it is full, or somebody planted a link on it.

    Args:
        at: the folder that was worked on, for an error that names none.
    """
    failure = f"{error.strerror or error} ({error.filename or at})"
    if error.errno == errno.ELOOP:
        return (
            f"{failure}: a symbolic link is at {at} or above it, and TDCS makes none there and follows none; see who "
            "could write to the node's disk, such as a cache's pods, and remove the link"
        )
    return f"{failure}; see whether the disk of {at} is full"
