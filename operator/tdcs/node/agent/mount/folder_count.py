"""Counts the files of a folder that this node sees, no further than it is asked: a cache's master keeps every name."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import Final

from tdcs.engine.confined_path import open_beneath, open_plain_folder
from tdcs.model.agent_state import FolderCount, FolderLimit
from tdcs.model.file_blocks import NO_LARGE_FILE, block_count, large_file
from tdcs.model.file_folders import folder_count

_LOOK: Final = 1_000
"""Names between two looks at the clock."""
_EMPTY: Final = frozenset({errno.ENOENT, errno.ENAMETOOLONG})
"""Of a folder that has nothing for anybody who asks."""
_UNREADABLE: Final = frozenset({errno.EACCES, errno.EPERM})
"""Of one that this user may not look into: a Dataset without the files there would not be what its folder is."""
_REPLACED: Final = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EXDEV})
"""Of one that became something else after it was seen."""

_Entry = tuple[bytes, os.DirEntry[str]]


def count_folder(limit: FolderLimit) -> FolderCount:
    """The files and folders below a folder, until one of them is too many or the time is over.

    A symbolic link counts as a file, with the length of the file of this folder that it leads to, as for a cache's
    master, which does not follow those to folders or elsewhere either. A folder that is gone is empty; one that may not
    be read ends the count, for the master, which runs as the same user, would leave its files out.
    """
    try:
        root = open_plain_folder(os.fsencode(limit.folder))
    except OSError as error:
        if error.errno in _EMPTY:
            return FolderCount()
        if error.errno in _UNREADABLE:
            return _unreadable(limit.folder)
        refused = error.errno in {errno.ELOOP, errno.ENOTDIR}
        return FolderCount(failure=f"{limit.folder}: {error.strerror}", refused=refused)
    try:
        with closing(_entries(root)) as entries:
            return _count(entries, limit, root=root)
    except _UnreadableError as error:
        return _unreadable(os.path.normpath(f"{limit.folder}/{error}"))
    except OSError as error:
        return FolderCount(failure=f"below {limit.folder}: {error.strerror}")
    finally:
        os.close(root)


def _count(entries: Iterable[_Entry], limit: FolderLimit, *, root: int) -> FolderCount:
    until, files, counted, folders, size = time.monotonic() + limit.seconds, 0, 0, 0, 0
    largest, cut_off = NO_LARGE_FILE, False
    for seen, (path, entry) in enumerate(entries):
        if seen % _LOOK == 0 and time.monotonic() > until:
            cut_off = True
            break
        if _is_folder(entry):
            folders += folder_count(len(path.removeprefix(b"./")))
        else:
            length = _length(entry, path, folder=os.fsencode(limit.folder), root=root)
            files += 1
            counted += block_count(length)
            size += length
            if length > largest.size:
                largest = large_file(length, path.decode("utf-8", "replace").removeprefix("./"))
        if counted + folders > limit.files or (limit.bytes is not None and size > limit.bytes):
            break
    return FolderCount(
        files=files, counted=counted, largest=largest, folders=folders, bytes=size, cut_off=cut_off
    )


class _UnreadableError(Exception):
    """This user may not look into a folder; the text is its path below the one that is counted."""


def _unreadable(folder: str) -> FolderCount:
    who = (
        f"user {os.geteuid()} with the groups {', '.join(map(str, sorted({os.getegid(), *os.getgroups()})))}"
    )
    return FolderCount(failure=f"{who} may not read {folder}", unreadable=True)


class _Folder:
    """An open folder, and what of it has not been looked at."""

    def __init__(self, path: bytes, *, root: int) -> None:
        """Open a folder by its path from an open one; raises OSError."""
        self.path = path
        self._opened = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._entries = os.scandir(self._opened)
        except OSError:
            os.close(self._opened)
            raise

    def next(self) -> os.DirEntry[str] | None:
        """The next entry, None after the last; raises OSError."""
        try:
            return next(self._entries, None)
        except OSError as error:
            if error.errno in _EMPTY:
                return None
            raise

    def close(self) -> None:
        self._entries.close()
        os.close(self._opened)


def _entries(root: int) -> Generator[_Entry]:
    """What lies below an open folder, with its path there. Each folder is looked through before the next one beside it
    is seen: however many there are, only those that lie in each other are kept in memory, and these can be no more than
    a path can name.

    Raises:
        _UnreadableError: This user may not look into a folder.
        OSError: A folder is there and cannot be looked through.
    """
    ahead: list[_Folder] = []

    def enter(path: bytes) -> None:
        try:
            ahead.append(_Folder(path, root=root))
        except OSError as error:
            if error.errno in _UNREADABLE:
                raise _UnreadableError(os.fsdecode(path).removeprefix("./")) from error
            if error.errno not in _EMPTY | _REPLACED:
                raise

    enter(b".")
    try:
        while ahead:
            entry = ahead[-1].next()
            if entry is None:
                ahead.pop().close()
                continue
            path = b"/".join((ahead[-1].path, os.fsencode(entry.name)))
            yield path, entry
            if _is_folder(entry):
                enter(path)
    finally:
        for folder in ahead:
            folder.close()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _length(entry: os.DirEntry[str], path: bytes, *, folder: bytes, root: int) -> int:
    """Bytes of a file, or of the file of the same folder that a link leads to; 0 of what is neither."""
    try:
        found = entry.stat(follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            return found.st_size
        # Not by the link itself: what lies elsewhere is no business of who made it.
        folder = os.path.normpath(folder)
        there = os.path.realpath(os.path.join(folder, path))
        if not there.startswith(os.path.join(folder, b"")):
            return 0
        opened = open_beneath(root, os.path.relpath(there, folder), os.O_PATH | os.O_NOFOLLOW)
        try:
            found = os.fstat(opened)
        finally:
            os.close(opened)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
