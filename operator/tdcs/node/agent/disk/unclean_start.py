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
    twice and are not read again. Run it before anybody is given a file.

    Raises:
        OSError: The store cannot be read or written.
    """
    since = disk.mark.doubtful_since()
    checked = Looked() if since is None else _look_through(disk, since=since)
    disk.drop_facts_of_removed_files()
    disk.mark.begin()
    return checked


def _look_through(disk: Disk, *, since: int) -> Looked:
    began, compared, removed = time.monotonic(), 0, 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="unclean-start") as threads:
        for folder in (disk.spool, disk.kept_folder):
            for names in _names(folder):
                results = threads.map(lambda name, at=folder: _is_right(disk, at / name, since=since), names)
                for name, right in zip(names, results, strict=True):
                    compared += right is not None
                    if right is False:
                        removed += 1
                        _disown(folder / name)
                        with suppress(FileNotFoundError):
                            os.unlink(folder / name)
    large, large_removed = _look_through_large(disk, since=since)
    compared, removed = compared + large, removed + large_removed
    if compared:
        _log.warning(
            "the machine of %s was not shut down in order: %d files were compared with their hash in %.1f s, and %d "
            "that differ or say nothing were removed; they are loaded again",
            *(disk.tier, compared, time.monotonic() - began, removed),
        )
    return Looked(compared, removed)


def _look_through_large(disk: Disk, *, since: int) -> tuple[int, int]:
    """The same for blocks that are with others in one file each; how many were compared, and dropped."""
    compared = dropped = 0
    for block in disk.large.ids().tolist():
        facts, opened = disk.large.facts_of(block), None
        if facts is None or facts.era < since:
            continue
        compared += 1
        try:
            opened = disk.large.open(block)
            right = opened is not None and (
                hash_of(opened.fd, offset=opened.base, length=opened.length) == facts.content_hash
            )
            if opened is not None and not right:
                _lengthen(opened.fd)
        except OSError as error:
            _log.warning("block %d cannot be read: %s", block, error.strerror)
            right = False
        finally:
            if opened is not None:
                os.close(opened.fd)
        if not right:
            dropped += disk.large.drop(block)
    return compared, dropped


def _disown(file: Path) -> None:
    """Have a wrong file say so before its name goes: views link it, and see that its length is not their file's."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _set_length(fd, 0)
        finally:
            os.close(fd)
    except OSError as error:
        _log.warning("views may go on showing %s, which is wrong: %s", file, error.strerror)


def _lengthen(fd: int) -> None:
    """The same for a file of which other blocks are right, and are copied from it."""
    try:
        _set_length(fd, os.fstat(fd).st_size + 1)
    except OSError as error:
        _log.warning("views may go on showing a file that has a wrong block: %s", error.strerror)


def _set_length(fd: int, length: int) -> None:
    """Change the length of an open file that has other names, too. Raises OSError."""
    if os.fstat(fd).st_nlink > 1:
        os.fchmod(fd, 0o644)
        os.truncate(f"/proc/self/fd/{fd}", length)


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
