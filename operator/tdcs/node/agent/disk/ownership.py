"""Gives a tier's folder to the user of worker and agent, before they begin: kubelet makes it for root alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.engine.confined_path import open_beneath, plain_folder

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FOLDERS: Final = ((names.BLOCK_FOLDER, 0o750), (names.AGENT_FOLDER, 0o755), (names.VIEWS_FOLDER, 0o755))
_SHARED: Final = 0o1775
"""Of the tier's folder: its group makes folders in it, and cannot rename those of others, such as root's views."""


def give_tier(tier: Path, *, user: int) -> int:
    """Have the blocks and the agent's folder belong to a user; how many files and folders changed hands.

    No symbolic link is followed: whoever had the folder before may have planted some. The folder of the blocks, which
    may be many, is given away after what is in it: one that is the user's already is not looked through again, and what
    a killed process left is.

    Raises:
        OSError: A folder cannot be opened or given away.
    """
    changed = 0
    with plain_folder(str(tier), make=True) as at:
        folder = open_beneath(at, b".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Before the group may: whoever has made a folder can exchange what others put into it.
            for name, mode in _FOLDERS:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=folder)
            if user:
                os.fchown(folder, 0, user)
                os.fchmod(folder, _SHARED)
            changed += _give(folder, os.fsencode(names.BLOCK_FOLDER), user, again=False)
            changed += _give(folder, os.fsencode(names.AGENT_FOLDER), user, again=True)
        finally:
            os.close(folder)
    return changed


def _give(parent: int, name: bytes, user: int, *, again: bool) -> int:
    """Give a folder away with what is in it; `again`: look through one, too, that belongs to the user."""
    folder = open_beneath(parent, name, _OPEN)
    try:
        theirs = os.fstat(folder).st_uid == user
        if theirs and not again:
            return 0
        changed = 0
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    changed += _give(folder, os.fsencode(entry.name), user, again=again)
                elif entry.stat(follow_symlinks=False).st_uid != user:
                    os.chown(entry.name, user, user, dir_fd=folder, follow_symlinks=False)
                    changed += 1
        os.fchown(folder, user, user)
        return changed + (not theirs)
    finally:
        os.close(folder)
