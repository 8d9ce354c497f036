"""Cuts the power of a disk at random moments of what was written to it, and mounts what is left each time."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.power.logged_disk import ENTRY, NAME
from tests.support.waiting import eventually

DISK_BYTES = 96 << 20
_JOURNAL_MB = "4"
_SECTOR = 4096
"""Bytes that a disk writes whole or not at all; file systems rely on it for their own first block."""


def lacking() -> str:
    """What this machine lacks for it, or an empty text."""
    if os.geteuid():
        return "root is needed to mount a disk"
    for path in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(path):
            return f"{path} is not there"
    return "" if shutil.which("mkfs.ext4") else "mkfs.ext4 (package e2fsprogs) is not installed"


@dataclass(frozen=True)
class LoggedDisk:
    """A file system on a disk whose power can be cut.

    Attributes:
        folder: where it is mounted.
        before: the disk as it was before anything was written to it by the test.
        log: what was written since, and when it was flushed.
    """

    folder: Path
    before: Path
    log: Path

    def written(self) -> int:
        """Bytes of the log by now: a moment at which the power can be cut."""
        return self.log.stat().st_size


@contextmanager
def logged_disk(work: Path) -> Iterator[LoggedDisk]:
    """An ext4 file system with its default options, mounted while the body runs."""
    point, folder = work / "fuse", work / "mounted"
    image, before, log = work / "image", work / "before", work / "log"
    for path in (point, folder):
        path.mkdir()
    _run("truncate", "-s", str(DISK_BYTES), str(image))
    _run(
        "mkfs.ext4",
        "-q",
        "-J",
        f"size={_JOURNAL_MB}",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
        str(image),
    )
    shutil.copyfile(image, before)
    arguments = [sys.executable, "-m", "tests.support.power.logged_disk", str(point), str(image), str(log)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline(), "the logged disk did not start"
            with _mounted(point / NAME, folder):
                yield LoggedDisk(folder=folder, before=before, log=log)
        finally:
            subprocess.run(["umount", str(point)], check=False, capture_output=True)
            server.kill()


class _Write(NamedTuple):
    """A write in the log; a flush has no length."""

    offset: int
    length: int
    at: int


def cuts(disk: LoggedDisk, *, count: int, seed: int, work: Path, until: int) -> Iterator[Path]:
    """The disk's folder after each of so many power cuts, mounted until the next is asked for.

    What was flushed before the cut is there. Of what was written after the last flush each write is there or not, or,
    if it was the last, a part of its sectors: a disk writes its cache in the order that it likes.

    Args:
        until: moments later than this one are not chosen (`LoggedDisk.written`).
    """
    rng = random.Random(seed)
    entries = list(_entries(disk.log, until=until))
    moments = sorted(rng.randrange(1, len(entries) + 1) for _ in range(count))
    base, folder = work / "flushed", work / "after"
    folder.mkdir()
    shutil.copyfile(disk.before, base)
    applied = 0
    with open(base, "r+b", buffering=0) as flushed, open(disk.log, "rb", buffering=0) as log:
        for number, moment in enumerate(moments):
            last_flush = max((n for n in range(applied, moment) if not entries[n].length), default=applied)
            for entry in entries[applied:last_flush]:
                _apply(entry, log=log.fileno(), to=flushed.fileno())
            applied = last_flush
            # A file of its own: another mount namespace can have the last one mounted still, and its loop device, with
            # what the kernel remembers of its content, would be used again.
            image = work / f"cut-{number}"
            shutil.copyfile(base, image)
            with open(image, "r+b", buffering=0) as torn:
                for entry in entries[applied:moment]:
                    if rng.random() < 0.5:
                        _apply(
                            entry,
                            log=log.fileno(),
                            to=torn.fileno(),
                            sectors=rng.choice((None, rng.random())),
                        )
            with _mounted(image, folder):
                yield folder
            image.unlink()


def _apply(entry: _Write, *, log: int, to: int, sectors: float | None = None) -> None:
    if not entry.length:
        return
    length = entry.length if sectors is None else int(entry.length * sectors) // _SECTOR * _SECTOR
    os.pwrite(to, os.pread(log, length, entry.at), entry.offset)


def _entries(log: Path, *, until: int) -> Iterator[_Write]:
    with open(log, "rb") as opened:
        at = 0
        while at < until and len(header := os.pread(opened.fileno(), ENTRY.size, at)) == ENTRY.size:
            offset, length = ENTRY.unpack(header)
            yield _Write(offset, length, at + ENTRY.size)
            at += ENTRY.size + length


@contextmanager
def _mounted(image: Path, folder: Path) -> Iterator[None]:
    _run("mount", "-o", "loop", str(image), str(folder))
    try:
        yield
    finally:
        eventually(lambda: _ends("umount", str(folder)), deadline=60)  # others look at new file systems, too


def _ends(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
