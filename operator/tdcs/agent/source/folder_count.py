"""Counts the files of a folder that this node sees, no further than it is asked: a cache's master keeps every name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from tdcs.engine.agents import FolderCount, FolderLimit
from tdcs.engine.confined_path import open_beneath, open_plain_folder

_LOOK: Final = 1_000
"""Names between two looks at the clock."""


def count_folder(limit: FolderLimit) -> FolderCount:
    """The files below a folder, until one of them is too many or the time is over.

    A symbolic link counts as a file and is not followed. Folders that cannot be read have no files.
    """
    until, files, size = time.monotonic() + limit.seconds, 0, 0
    try:
        root = open_plain_folder(os.fsencode(limit.folder))
    except OSError:
        return FolderCount()
    try:
        for file in _files(root, until=until):
            if file is None:
                return FolderCount(files=files, bytes=size, cut_off=True)
            files += 1
            size += _length(file) if limit.bytes is not None else 0
            if files > limit.files or (limit.bytes is not None and size > limit.bytes):
                break
    finally:
        os.close(root)
    return FolderCount(files=files, bytes=size)


def _files(root: int, *, until: float) -> Iterator[os.DirEntry[str] | None]:
    """What lies below an open folder and is none; None when the time is over."""
    folders, seen = [b"."], 0
    while folders:
        path = folders.pop()
        try:
            opened = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    seen += 1
                    if seen % _LOOK == 0 and time.monotonic() > until:
                        yield None
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(b"/".join((path, os.fsencode(entry.name))))
                    else:
                        yield entry
        except OSError:
            continue
        finally:
            os.close(opened)


def _length(file: os.DirEntry[str]) -> int:
    try:
        return file.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
