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
    """The files and folders below a folder, until one of them is too many or the time is over.

    A symbolic link counts as a file and is not followed. Folders that cannot be read are empty.
    """
    until, files, folders, size = time.monotonic() + limit.seconds, 0, 0, 0
    try:
        root = open_plain_folder(os.fsencode(limit.folder))
    except OSError:
        return FolderCount()
    cut_off = False
    try:
        for seen, entry in enumerate(_entries(root)):
            if seen % _LOOK == 0 and time.monotonic() > until:
                cut_off = True
                break
            if entry is None:
                continue
            if _is_folder(entry):
                folders += 1
            else:
                files += 1
                size += _length(entry) if limit.bytes is not None else 0
            if max(files, folders) > limit.files or (limit.bytes is not None and size > limit.bytes):
                break
    finally:
        os.close(root)
    return FolderCount(files=files, folders=folders, bytes=size, cut_off=cut_off)


def _entries(root: int) -> Iterator[os.DirEntry[str] | None]:
    """What lies below an open folder, and None for each folder that is opened: that takes time as well."""
    folders = [b"."]
    while folders:
        path = folders.pop()
        yield None
        try:
            opened = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    if _is_folder(entry):
                        folders.append(b"/".join((path, os.fsencode(entry.name))))
                    yield entry
        except OSError:
            continue
        finally:
            os.close(opened)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _length(file: os.DirEntry[str]) -> int:
    try:
        return file.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
