"""The system calls that give a folder to a pod and take it away again.

A volume is attached in one step: a detached copy of the source's tree is made (open_tree), the whole copy
is made read-only, nosuid, nodev and a slave of its source (mount_setattr), and only then it is moved to the
target (move_mount). So a pod never sees it writable, mounts made later below the source arrive in it, and
what is unmounted in it never travels back to the source. Linux 5.12 or newer has these calls; older kernels
get mount(2), which cannot make a whole tree read-only: there, what is mounted below the source keeps its own
restrictions.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tdcs.node.csi import mountinfo

# Numbers of the system calls: the same on every architecture, because they came after the numbering was
# unified.
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_FSCONFIG: Final = 431
_SYS_FSPICK: Final = 433
_SYS_MOUNT_SETATTR: Final = 442

_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 0x4
_FSPICK_CLOEXEC: Final = 0x1
_FSCONFIG_SET_FLAG: Final = 0
_FSCONFIG_CMD_RECONFIGURE: Final = 7
_MOUNT_ATTR_RDONLY: Final = 0x1
_MOUNT_ATTR_NOSUID: Final = 0x2
_MOUNT_ATTR_NODEV: Final = 0x4

_MS_RDONLY: Final = 0x1
_MS_NOSUID: Final = 0x2
_MS_NODEV: Final = 0x4
_MS_REMOUNT: Final = 0x20
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_SLAVE: Final = 1 << 19
_MNT_DETACH: Final = 0x2
_UMOUNT_NOFOLLOW: Final = 0x8

# More mounts than this stacked on one target are not the work of a few repeated calls.
_MAX_STACKED: Final = 64

FILESYSTEMS: Final = Path("/proc/filesystems")
"""It has SELinux's own where the kernel runs with SELinux, enforcing or not; that itself is mounted in no container."""

SELINUX_CONTEXT: Final = "system_u:object_r:container_file_t:s0"
"""What every container may read."""

_libc = ctypes.CDLL(None, use_errno=True)


def attach(*, source: int, target: str) -> None:
    """Show the folder `source` (a file descriptor, O_PATH is enough) read-only at the existing folder
    `target`.

    Returns when it is attached with all its restrictions, or raises OSError with nothing attached. Touches
    no file of the source.
    """
    try:
        tree = _clone(source=source)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        attach_classic(source=source, target=target)
        return
    try:
        _syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def attach_classic(*, source: int, target: str) -> None:
    """What `attach` does on a kernel without the newer calls: mount(2)."""
    _mount(f"/proc/self/fd/{source}", target, _MS_BIND | _MS_REC)
    try:
        _mount(None, target, _MS_SLAVE | _MS_REC)
        _mount(None, target, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    except OSError:
        detach(target=target)
        raise


def overlay(*, layers: Sequence[int], target: str, source: str) -> None:
    """Mount a read-only overlay of two open folders or more at `target`, the first of them on top. `source` is what
    mountinfo has as its source.

    May block while a file server behind one of them does. Raises OSError.
    """
    # By descriptor: a path could have characters that mean something in the option.
    options = "lowerdir=" + ":".join(f"/proc/self/fd/{layer}" for layer in layers) + label_option()
    _mount(source, target, _MS_RDONLY | _MS_NOSUID | _MS_NODEV, kind="overlay", data=options)


def overlay_with_data(*, layer: int, data: int, target: str, source: str) -> None:
    """Mount a read-only overlay at `target`: the entries of the open folder `layer`, with the bytes of its placeholders
    (`tdcs.node.csi.views.overlay`) from the open folder `data`. `source` is what mountinfo has as its source.

    May block while a file server behind `data` does. Raises OSError, on Linux before 6.5 always.
    """
    options = (
        f"lowerdir=/proc/self/fd/{layer}::/proc/self/fd/{data},metacopy=on,redirect_dir=on{label_option()}"
    )
    _mount(source, target, _MS_RDONLY | _MS_NOSUID | _MS_NODEV, kind="overlay", data=options)


def label_option(*, filesystems: Path = FILESYSTEMS) -> str:
    """The option that labels an overlay's files for containers, where the kernel has SELinux; else nothing.

    One view is for all pods of a node, so it has no categories (MCS). With a label for the whole file system the mount
    has no `seclabel` in its options: kubelet takes it for one without labels of single files, and no container runtime
    tries to relabel them, which a read-only volume refuses.
    """
    names = filesystems.read_text(encoding="ascii").split()
    return f',context="{SELINUX_CONTEXT}"' if "selinuxfs" in names else ""


def refresh_overlay(*, point: str) -> None:
    """Have the kernel look up again all files of the overlay at `point` that are not open at this moment.

    A reconfiguration that changes nothing makes the kernel drop all that it remembers of the mount and that is not
    open, in one call (`shrink_dcache_sb`). Raises OSError.
    """
    picked = _syscall(_SYS_FSPICK, _AT_FDCWD, os.fsencode(point), _FSPICK_CLOEXEC)
    try:
        # An overlay without an upper layer can be mounted read-only alone.
        _syscall(_SYS_FSCONFIG, picked, _FSCONFIG_SET_FLAG, b"ro", 0, 0)
        _syscall(_SYS_FSCONFIG, picked, _FSCONFIG_CMD_RECONFIGURE, 0, 0, 0)
    finally:
        os.close(picked)


def detach(*, target: str) -> None:
    """Take away whatever is mounted at `target`, also if readers still use it or its server is dead.

    Returns only when mountinfo shows nothing there any more; raises OSError otherwise. The folder `target`
    stays.
    """
    for _ in range(_MAX_STACKED):
        if mountinfo.top(mounts=mountinfo.read(), point=target) is None:
            return
        if _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) < 0:
            raise _last_error(target)
    raise OSError(errno.EBUSY, f"still a mount after {_MAX_STACKED} unmounts", target)


def _clone(*, source: int) -> int:
    """A detached copy of the tree at `source`, restricted as a whole; the caller closes the returned
    descriptor.
    """
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | _AT_RECURSIVE | os.O_CLOEXEC
    tree = _syscall(_SYS_OPEN_TREE, source, b"", flags)
    try:
        # struct mount_attr: attributes to set, to clear, propagation, user namespace.
        restrict = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
        attributes = struct.pack("=QQQQ", restrict, 0, _MS_SLAVE, 0)
        _syscall(_SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, len(attributes))
    except OSError:
        os.close(tree)
        raise
    return tree


def _syscall(number: int, *arguments: int | bytes) -> int:
    # syscall(2) is variadic: each argument must be passed in its full width.
    converted = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        raise _last_error()
    return result


def _mount(
    source: str | None, target: str, flags: int, *, kind: str | None = None, data: str | None = None
) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) < 0:
        raise _last_error(target)


def _last_error(path: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))
