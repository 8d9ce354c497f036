"""Lists and counts the files of a folder that this node sees, no further than it is asked."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Final

from tdcs.engine.confined_path import open_beneath, open_plain_folder
from tdcs.listing.path_patterns import matcher_of
from tdcs.model.agent_state import FolderCount, FolderLimit, FolderPage
from tdcs.model.file_blocks import NO_LARGE_FILE, block_count, large_file
from tdcs.model.file_folders import folder_count
from tdcs.model.file_selection import FileSelection

_LOOK: Final = 1_000
"""Names in a page, and between two looks at the clock."""
_EMPTY: Final = frozenset({errno.ENOENT, errno.ENAMETOOLONG})
"""Of a folder that has nothing for anybody who asks."""
_UNREADABLE: Final = frozenset({errno.EACCES, errno.EPERM})
"""Of one that this user may not look into: a Dataset without the files there would not be what its folder is."""
_REPLACED: Final = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EXDEV})
"""Of one that became something else after it was seen."""

_Entry = tuple[bytes, os.DirEntry[str]]


def count_folder(limit: FolderLimit) -> FolderCount:
    """See `list_folder`; without the names."""
    *_, last = list_folder(limit)
    return last.end or FolderCount()


def list_folder(limit: FolderLimit) -> Iterator[FolderPage]:
    """The files below a folder in pages, until one of them is too many or the time is over; the last page has the end.

    A symbolic link is a file, with the length of the file of this folder that it leads to, as for a cache's master,
    which does not follow those to folders or elsewhere either. A folder that is gone is empty; one that may not be read
    ends the listing: a Dataset without the files there would not be what its folder is.
    """
    try:
        root = open_plain_folder(os.fsencode(limit.folder))
    except OSError as error:
        yield FolderPage(end=_unopened(limit, error))
        return
    try:
        with closing(_entries(root, is_looked_into=_looked_into(limit.exclude))) as entries:
            yield from _pages(entries, limit, root=root)
    except _UnreadableError as error:
        yield FolderPage(end=_unreadable(os.path.normpath(f"{limit.folder}/{error}")))
    except OSError as error:
        yield FolderPage(end=FolderCount(failure=f"below {limit.folder}: {error.strerror}"))
    finally:
        os.close(root)


def _looked_into(exclude: tuple[str, ...]) -> Callable[[bytes], bool]:
    if not exclude:
        return lambda _: True
    is_taken = matcher_of(FileSelection(exclude=exclude))
    # Patterns of folders say the same of all files of a folder.
    return lambda path: is_taken(path.removeprefix(b"./") + b"/file")


def _unopened(limit: FolderLimit, error: OSError) -> FolderCount:
    folder = limit.folder
    if error.errno in _EMPTY and not limit.required:
        return FolderCount()
    if error.errno in _UNREADABLE:
        return _unreadable(folder)
    refused = error.errno in {errno.ELOOP, errno.ENOTDIR, *_EMPTY}
    return FolderCount(failure=f"{folder}: {error.strerror}", refused=refused)


def _pages(entries: Iterable[_Entry], limit: FolderLimit, *, root: int) -> Iterator[FolderPage]:
    until, files, counted, folders, size = time.monotonic() + limit.seconds, 0, 0, 0, 0
    largest, cut_off, top = NO_LARGE_FILE, False, os.fsencode(limit.folder)
    named: list[tuple[bytes, int, bytes]] = []
    left_out: list[bytes] = []
    for count, (path, entry) in enumerate(entries):
        if count % _LOOK == 0:
            if named or left_out:
                yield FolderPage(files=named, left_out=left_out)
                named, left_out = [], []
            if time.monotonic() > until:
                cut_off = True
                break
        name = path.removeprefix(b"./")
        if _is_folder(entry):
            folders += folder_count(len(name))
        else:
            try:
                status = _file_of(entry, path, folder=top, root=root)
            except FileNotFoundError:
                continue  # it has gone since it was seen
            length = status.st_size if status is not None else 0
            if status is not None:
                named.append((name, length, b"mtime-ms:%d" % (status.st_mtime_ns // 1_000_000)))
            else:
                left_out.append(name)
            files += 1
            counted += block_count(length)
            size += length
            if length > largest.size:
                largest = large_file(length, name.decode("utf-8", "replace"))
        if counted + folders > limit.files or (limit.bytes is not None and size > limit.bytes):
            break
    end = FolderCount(
        files=files, counted=counted, largest=largest, folders=folders, bytes=size, cut_off=cut_off
    )
    yield FolderPage(files=named, left_out=left_out, end=end)


class _UnreadableError(Exception):
    """This user may not look into a folder; the text is its path below the one that is counted."""


def _unreadable(folder: str) -> FolderCount:
    reader = (
        f"user {os.geteuid()} with the groups {', '.join(map(str, sorted({os.getegid(), *os.getgroups()})))}"
    )
    return FolderCount(failure=f"{reader} may not read {folder}", unreadable=True)


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


def _entries(root: int, *, is_looked_into: Callable[[bytes], bool]) -> Generator[_Entry]:
    """What is below an open folder, with its path there. Each folder is looked through before the next one next to it
    is seen: however many there are, only those that are in each other are kept in memory, and these can be no more than
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
            if _is_folder(entry) and not is_looked_into(path):
                continue
            yield path, entry
            if _is_folder(entry):
                enter(path)
    finally:
        for folder in ahead:
            folder.close()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _file_of(entry: os.DirEntry[str], path: bytes, *, folder: bytes, root: int) -> os.stat_result | None:
    """A file, or the file of the same folder that a link leads to; None of what is neither.

    Raises:
        OSError: It is gone, or the file system does not say what it is: that it is no file is not known then.
    """
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        return status if stat.S_ISREG(status.st_mode) else None
    # Not by the link itself: what is elsewhere is no business of who made it.
    folder = os.path.normpath(folder)
    target = os.path.realpath(os.path.join(folder, path))
    if not target.startswith(os.path.join(folder, b"")):
        return None
    try:
        opened = open_beneath(root, os.path.relpath(target, folder), os.O_PATH | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in _EMPTY | _UNREADABLE | _REPLACED:
            return None
        raise
    try:
        status = os.fstat(opened)
    finally:
        os.close(opened)
    return status if stat.S_ISREG(status.st_mode) else None
