"""Says that the blocks on a disk are named by TDCS's own ids, and takes those of a release that named them by Alluxio's
their names: such an id means nothing without the journal of the master that gave it."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.node.agent.disk.tier import Disk

_log: Final = logging.getLogger(__name__)


def has_own_ids(disk: Disk) -> bool:
    """Whether the disk was made ready by `enter_own_ids`."""
    try:
        return disk.epoch.read_text().strip() == names.OWN_BLOCK_IDS
    except FileNotFoundError:
        return False


def enter_own_ids(disk: Disk) -> int:
    """Make the folders, on a disk whose blocks have TDCS's own ids from now on. Run it while the worker is away.

    Blocks under other ids that say what they are stay, and get the ids of whichever version lists them next; how many
    others were removed. The note is written last, so a process that is killed in between does the rest when it starts
    again.
    """
    removed = 0
    if not has_own_ids(disk):
        disk.prepare()
        if count := disk.set_aside():
            _log.info("%d blocks of %s stay for whoever lists their files again", count, disk.tier)
        removed = _empty(disk.lent) + _empty(disk.spool)
        notes = (disk.assignments, disk.checks, disk.failures, disk.refused.folder)
        for folder in (disk.partial, disk.manifests, *notes):
            _empty(folder)
        disk.prepare()
        draft = disk.epoch.with_suffix(".new")
        draft.write_text(f"{names.OWN_BLOCK_IDS}\n")
        os.replace(draft, disk.epoch)
    disk.prepare()
    return removed


def _empty(folder: Path) -> int:
    """Remove all that is in a folder, which stays as it is; how many files."""
    count = 0
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return 0
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
            count += 1
    return count
