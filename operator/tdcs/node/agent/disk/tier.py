"""The agent's part of a tier's folder: where blocks lie, how they come there, and what the disk has left.

`<tier>/alluxioworker/<id>` are the worker's blocks. Below `<tier>/agent` lie `spool/<id>` (verified, readable, not yet
registered), `partial` (being written), `manifests`, `assignments`, `checks`, `failures`, `refused` and `epoch`. All of
it is one file system: a block gets from one folder to the next by a rename or a hard link.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import xxhash

from tdcs.api import names
from tdcs.node.agent.disk.refused_blocks import RefusedBlocks

Ids = npt.NDArray[np.int64]

_ATTRIBUTE: Final = b"user.tdcs.content"
"""Extended attribute of a block's file: length and xxh3_64 of what was written."""
_CONTENT: Final = struct.Struct("<QQ")
_CHUNK: Final = 1 << 20
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_ATTRIBUTES: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENOSPC})


class DiskError(Exception):
    """A block cannot be written to this disk; the text says why."""


class PartialFile:
    """A block that is being written. It becomes readable by `Disk.keep` alone."""

    def __init__(self, *, path: str, fd: int) -> None:
        self.path: Final = path
        self.fd: Final = fd
        self.kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if not self.kept:
            with suppress(FileNotFoundError):
                os.unlink(self.path)

    def write(self, data: memoryview, *, offset: int) -> None:
        """Write all of `data` at `offset`; raises DiskError."""
        try:
            done = os.pwrite(self.fd, data, offset)
            while done < len(data):
                done += os.pwrite(self.fd, data[done:], offset + done)
        except OSError as error:
            raise _disk_error(error) from error


class Disk:
    """The folders of one tier. Thread-safe.

    Args:
        tier: the tier's folder, at the same path as in the worker.

    Attributes:
        refused: blocks that were found wrong: they count as not being here.
    """

    def __init__(self, tier: Path) -> None:
        self.tier: Final = tier
        self.blocks: Final = tier / names.BLOCK_FOLDER
        own = tier / names.AGENT_FOLDER
        self.spool: Final = own / "spool"
        self.partial: Final = own / "partial"
        self.manifests: Final = own / "manifests"
        self.assignments: Final = own / "assignments"
        self.checks: Final = own / "checks"
        self.failures: Final = own / "failures"
        self.refused: Final = RefusedBlocks(tier)
        self.epoch: Final = own / "epoch"
        self._partial: Final = f"{self.partial}/"
        self._spool: Final = f"{self.spool}/"
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """Make the folders, and remove what an earlier process was writing when it ended."""
        for folder in (
            self.spool,
            self.partial,
            self.manifests,
            self.assignments,
            self.checks,
            self.failures,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        for entry in os.scandir(self.partial):
            with suppress(FileNotFoundError):
                os.unlink(entry.path)

    def open(self, block: int) -> int | None:
        """A descriptor of a readable block; None when it is not here.

        The spool is looked at first: a block that leaves it is in the worker's folder already.
        """
        if block in self.refused:
            return None
        for folder in (self.spool, self.blocks):
            with suppress(FileNotFoundError, PermissionError):
                return os.open(f"{folder}/{block}", os.O_RDONLY | os.O_CLOEXEC)
        return None

    def create(self, block: int) -> PartialFile:
        """A new file for a block, to be used in a `with`: whatever is not kept by its end is removed.

        Raises:
            DiskError: The disk is full, or refuses.
        """
        path = f"{self._partial}{block}.{next(self._numbers)}"
        try:
            try:
                fd = os.open(path, _NEW_FILE, 0o644)
            except FileNotFoundError:  # the disk was wiped
                self.prepare()
                fd = os.open(path, _NEW_FILE, 0o644)
        except OSError as error:
            raise _disk_error(error) from error
        return PartialFile(path=path, fd=fd)

    def keep(self, partial: PartialFile, *, block: int, length: int, content_hash: int) -> None:
        """Make a block that was written completely and verified readable, under its id.

        Raises:
            DiskError: The folder cannot grow, or is gone.
        """
        try:
            note_hash(partial.fd, length=length, content_hash=content_hash)
        except OSError as error:
            # Not every file system keeps attributes (tmpfs before Linux 6.6): the hash is made when it is asked for.
            if error.errno not in _NO_ATTRIBUTES:
                raise _disk_error(error) from error
        try:
            os.fchmod(partial.fd, 0o444)
            os.rename(partial.path, f"{self._spool}{block}")
        except OSError as error:
            raise _disk_error(error) from error
        partial.kept = True

    def lend(self, block: int, *, worker_file: str) -> None:
        """Put a spooled block in the place of the empty file that the worker has made for it, as a hard link.

        Raises:
            FileNotFoundError: The block has left the spool, or the worker has given up.
        """
        link = f"{self.partial}/{block}.{next(self._numbers)}.link"
        os.link(f"{self.spool}/{block}", link)
        try:
            os.rename(link, worker_file)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(link)
            raise

    def unspool(self, block: int) -> None:
        """Remove the spool's name of a block; none is fine."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.spool}/{block}")

    def registered(self, block: int) -> bool:
        return os.path.exists(f"{self.blocks}/{block}")

    def remove_registered(self, block: int) -> None:
        """Remove a file that the worker does not know from its folder; none is fine."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.blocks}/{block}")

    def has(self, block: int) -> bool:
        return any(os.path.exists(f"{folder}/{block}") for folder in (self.spool, self.blocks))

    def size(self, block: int) -> int:
        """Bytes of a block's file, 0 when it is not here."""
        for folder in (self.spool, self.blocks):
            with suppress(FileNotFoundError):
                return os.stat(f"{folder}/{block}").st_size
        return 0

    def free_bytes(self) -> int:
        found = os.statvfs(self.tier)
        return found.f_bavail * found.f_frsize

    def changed_at(self) -> tuple[int, int]:
        """When names in the two folders changed last, in nanoseconds; 0 for a folder that is away."""
        return _changed(self.spool), _changed(self.blocks)

    def spooled(self) -> Ids:
        return _ids(self.spool)

    def registered_ids(self) -> Ids:
        return _ids(self.blocks)


def note_hash(fd: int, *, length: int, content_hash: int) -> None:
    """Note what was written to a file: xxh3_64 of so many bytes. Raises OSError."""
    os.setxattr(fd, _ATTRIBUTE, _CONTENT.pack(length, content_hash))


def noted_hash(fd: int, *, size: int) -> int | None:
    """xxh3_64 of a block as it was when it was written; None when that was not noted.

    Args:
        size: of the file; another length than the one that was noted says that the note is of something else.
    """
    with suppress(OSError):
        length, found = _CONTENT.unpack(os.getxattr(fd, _ATTRIBUTE))
        if length == size:
            return int(found)
    return None


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


def _ids(folder: Path) -> Ids:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    if not "".join(names).isdecimal():  # other files lie there, too
        names = [name for name in names if name.isdecimal()]
    array = np.fromiter(map(int, names), dtype=np.int64, count=len(names))
    array.sort()
    return array


def _changed(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0


def _disk_error(error: OSError) -> DiskError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DiskError("the disk is full" if full else f"the disk does not take the block: {error.strerror}")
