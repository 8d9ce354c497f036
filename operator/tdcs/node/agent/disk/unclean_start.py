"""Makes a store ready after the machine was started: what may have been lost with the power is compared with its hash
before anybody is given it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tdcs.node.agent.disk.tier import Disk
from tdcs.node.file_facts import hash_of

_log: Final = logging.getLogger(__name__)

_THREADS: Final = 8
_LISTED_AT_ONCE: Final = 4096


class Looked(NamedTuple):
    """Files that were compared with their hash, and those of them that were removed."""

    compared: int = 0
    removed: int = 0


def make_ready(disk: Disk) -> Looked:
    """Remove files that are not what was written to them, where the last shutdown was none, and let the store be read.

    A file that does not say what it is goes, too: nothing tells whether it is whole. Files of earlier eras were synced
    twice and are not read again. Run it before anybody is given a file, and before the worker looks at its folder.

    Raises:
        OSError: The store cannot be read or written.
    """
    since = disk.mark.doubtful_since()
    looked = Looked() if since is None else _look_through(disk, since=since)
    disk.forget_facts_of_files_that_are_gone()
    disk.mark.begin()
    return looked


def _look_through(disk: Disk, *, since: int) -> Looked:
    began, compared, removed = time.monotonic(), 0, 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="unclean-start") as threads:
        for folder in (disk.spool, disk.blocks, disk.kept):
            for names in _names(folder):
                found = threads.map(lambda name, at=folder: _is_right(disk, at / name, since=since), names)
                for name, right in zip(names, found, strict=True):
                    compared += right is not None
                    if right is False:
                        removed += 1
                        with suppress(FileNotFoundError):
                            os.unlink(folder / name)
    large, gone = disk.large.drop_wrong(since=since)
    compared, removed = compared + large, removed + gone
    if compared:
        _log.warning(
            "the machine of %s was not shut down in order: %d files were compared with their hash in %.1f s, and %d "
            "that differ or say nothing were removed; they are loaded again",
            *(disk.tier, compared, time.monotonic() - began, removed),
        )
    return Looked(compared, removed)


def _names(folder: Path) -> Iterator[list[str]]:
    with suppress(FileNotFoundError), closing(os.scandir(folder)) as entries:
        names = []
        for entry in entries:
            if entry.name.isdecimal():
                names.append(entry.name)
            if len(names) == _LISTED_AT_ONCE:
                yield names
                names = []
        yield names


def _is_right(disk: Disk, file: Path, *, since: int) -> bool | None:
    """Whether a file is what was written to it; None for one that need not be asked, or is gone."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return False
    try:
        facts = disk.facts.read(fd)
        if facts is None or os.fstat(fd).st_size != facts.length:
            return False
        if facts.era < since:
            return None
        return hash_of(fd, offset=0, length=facts.length) == facts.content_hash
    except OSError as error:
        _log.warning("%s cannot be read: %s", file, error.strerror)
        return False
    finally:
        os.close(fd)
