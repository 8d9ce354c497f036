"""Takes blocks of another journal their ids before the worker registers: ids begin anew with a new journal. Those that
say what they are stay, and get the ids of whichever version lists them next. While nobody says which journal the master
has, the worker gets none."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tdcs.alluxio.rpc import RpcFailureError
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.disk.tier import Disk

_log: Final = logging.getLogger(__name__)

_MOST_PAUSE: Final = 5.0
_REPORT_SECONDS: Final = 60.0


def read_epoch(disk: Disk) -> str:
    """The journal that the blocks on this disk belong to; empty when none was noted."""
    try:
        return disk.epoch.read_text().strip()
    except FileNotFoundError:
        return ""


def enter_epoch(disk: Disk, *, journal: str) -> int:
    """Make the disk one of this journal; how many blocks of another one were removed: those that do not say what they
    are.

    The note is written last, so a process that is killed in between does the rest when it starts again.
    """
    removed = 0
    if read_epoch(disk) != journal:
        disk.prepare()
        if kept := disk.set_aside():
            _log.info("%d blocks of %s stay for whoever lists their files again", kept, disk.tier)
        removed = _empty(disk.blocks) + _empty(disk.spool)
        notes = (disk.assignments, disk.checks, disk.failures, disk.refused.folder)
        for folder in (disk.partial, disk.manifests, *notes):
            _empty(folder)
        disk.prepare()
        draft = disk.epoch.with_suffix(".new")
        draft.write_text(journal + "\n")
        os.replace(draft, disk.epoch)
    disk.prepare()
    return removed


def keep_from_worker(disk: Disk) -> int:
    """Keep the blocks readable and out of the worker's folder: it is not known whether the master's journal is theirs,
    and to a worker that registers them under another one they are other files, or strangers, which it removes.

    What does not say what it is goes. Run it while the worker is away; how many blocks were removed.
    """
    kept = disk.take_back()
    _log.info("%d blocks of %s are registered again when the master says its journal", kept, disk.tier)
    return _empty(disk.blocks)


async def asked_patiently(
    ask: Callable[[], Awaitable[str]],
    *,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """The journal's identity, as soon as the master says it; None when it has not for so many seconds.

    An init container that ended would be kept away for minutes, also when the master is back.
    """
    begun, reported, failures = clock(), -_REPORT_SECONDS, 0
    while True:
        try:
            return await ask()
        except RpcFailureError as failure:
            failures += 1
            if clock() - begun >= seconds:
                return None
            if clock() - reported >= _REPORT_SECONDS:
                reported = clock()
                _log.warning(
                    "the master does not say its journal's identity yet (%s): waiting; look at its pod and log",
                    failure.code.name,
                )
            await asyncio.sleep(pause(failures, most=_MOST_PAUSE))


def _empty(folder: Path) -> int:
    """Remove all that lies in a folder, which stays as it is; how many files."""
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
