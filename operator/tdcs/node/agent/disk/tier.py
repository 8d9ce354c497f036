"""The agent's part of a tier's folder: where blocks lie, how they come there, and what the disk has left.

`<tier>/alluxioworker/<id>` are the worker's blocks. Below `<tier>/agent` lie `spool/<id>` (verified, readable, not yet
registered), `partial` (being written), `manifests`, `assignments`, `checks`, `failures`, `refused` and `epoch`. All of
it is one file system: a block gets from one folder to the next by a rename or a hard link.
"""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.node.agent.disk.file_names import Done, FileNames, WrittenFile
from tdcs.node.agent.disk.partial_file import DiskError, PartialFile, disk_error
from tdcs.node.agent.disk.refused_blocks import RefusedBlocks
from tdcs.node.agent.disk.shutdown_mark import ShutdownMark
from tdcs.node.file_facts import FileFacts

Ids = npt.NDArray[np.int64]

_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CLOSE_SECONDS: Final = 10.0


class Disk:
    """The folders of one tier. Thread-safe.

    Args:
        tier: the tier's folder, at the same path as in the worker.
        boot: identity of the running kernel; None: it is asked.

    Attributes:
        refused: blocks that were found wrong: they count as not being here.
        mark: whether all that has a name is on the disk.
        names: gives what was written its name once it is there.
    """

    def __init__(self, tier: Path, *, boot: str | None = None) -> None:
        self.tier: Final = tier
        self.blocks: Final = tier / names.BLOCK_FOLDER
        own = tier / names.AGENT_FOLDER
        self.spool: Final = own / "spool"
        self.partial: Final = own / "partial"
        self.manifests: Final = own / "manifests"
        self.assignments: Final = own / "assignments"
        self.checks: Final = own / "checks"
        self.failures: Final = own / "failures"
        self.refused: Final = RefusedBlocks(tier)
        self.epoch: Final = own / "epoch"
        self.mark: Final = ShutdownMark(own, boot=boot)
        self.names: Final = FileNames(folder=own, mark=self.mark)
        self._partial: Final = f"{self.partial}/"
        self._spool: Final = f"{self.spool}/"
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """Make the folders, and remove what an earlier process was writing when it ended."""
        for folder in (
            self.spool,
            self.partial,
            self.manifests,
            self.assignments,
            self.checks,
            self.failures,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        for entry in os.scandir(self.partial):
            with suppress(FileNotFoundError):
                os.unlink(entry.path)

    def open(self, block: int) -> int | None:
        """A descriptor of a readable block; None when it is not here.

        The spool is looked at first: a block that leaves it is in the worker's folder already.
        """
        if block in self.refused:
            return None
        for folder in (self.spool, self.blocks):
            with suppress(FileNotFoundError, PermissionError):
                return os.open(f"{folder}/{block}", os.O_RDONLY | os.O_CLOEXEC)
        return None

    def create(self, block: int) -> PartialFile:
        """A new file for a block, to be used in a `with`: whatever is not kept by its end is removed.

        Raises:
            DiskError: The disk is full, or refuses.
        """
        path = f"{self._partial}{block}.{next(self._numbers)}"
        try:
            try:
                fd = os.open(path, _NEW_FILE, 0o644)
            except FileNotFoundError:  # the disk was wiped
                self.prepare()
                self.mark.restore()
                fd = os.open(path, _NEW_FILE, 0o644)
        except OSError as error:
            raise disk_error(error) from error
        return PartialFile(path=path, fd=fd)

    def keep_later(
        self, partial: PartialFile, *, block: int, length: int, content_hash: int, done: Done
    ) -> None:
        """Make a block that was written completely and verified readable under its id, as soon as it is on the disk.

        Args:
            done: called in another thread, when it is readable, or with the reason why it was removed instead.

        Raises:
            DiskError: The disk refuses, or the process ends.
        """
        try:
            os.fchmod(partial.fd, 0o444)
        except OSError as error:
            raise disk_error(error) from error
        facts = FileFacts(length, content_hash)
        self.names.add(WrittenFile(path=partial.path, name=f"{self._spool}{block}", facts=facts, done=done))
        partial.handed_over = True

    def keep(self, partial: PartialFile, *, block: int, length: int, content_hash: int) -> None:
        """The same, and wait for it; raises DiskError when the block was removed instead, too."""
        ended, errors = threading.Event(), list[DiskError]()

        def done(error: DiskError | None) -> None:
            if error is not None:
                errors.append(error)
            ended.set()

        self.keep_later(partial, block=block, length=length, content_hash=content_hash, done=done)
        ended.wait()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Name what was written, and note that the process ends in order; nothing can be kept from now on."""
        self.names.close(seconds=_CLOSE_SECONDS)

    def lend(self, block: int, *, worker_file: str) -> None:
        """Put a spooled block in the place of the empty file that the worker has made for it, as a hard link.

        Raises:
            FileNotFoundError: The block has left the spool, or the worker has given up.
        """
        link = f"{self.partial}/{block}.{next(self._numbers)}.link"
        os.link(f"{self.spool}/{block}", link)
        try:
            os.rename(link, worker_file)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(link)
            raise

    def unspool(self, block: int) -> None:
        """Remove the spool's name of a block; none is fine."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.spool}/{block}")

    def registered(self, block: int) -> bool:
        return os.path.exists(f"{self.blocks}/{block}")

    def remove_registered(self, block: int) -> None:
        """Remove a file that the worker does not know from its folder; none is fine."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.blocks}/{block}")

    def has(self, block: int) -> bool:
        return any(os.path.exists(f"{folder}/{block}") for folder in (self.spool, self.blocks))

    def size(self, block: int) -> int:
        """Bytes of a block's file, 0 when it is not here."""
        for folder in (self.spool, self.blocks):
            with suppress(FileNotFoundError):
                return os.stat(f"{folder}/{block}").st_size
        return 0

    def free_bytes(self) -> int:
        found = os.statvfs(self.tier)
        return found.f_bavail * found.f_frsize

    def changed_at(self) -> tuple[int, int]:
        """When names in the two folders changed last, in nanoseconds; 0 for a folder that is away."""
        return _changed(self.spool), _changed(self.blocks)

    def spooled(self) -> Ids:
        return _ids(self.spool)

    def registered_ids(self) -> Ids:
        return _ids(self.blocks)


def _ids(folder: Path) -> Ids:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    if not "".join(names).isdecimal():  # other files lie there, too
        names = [name for name in names if name.isdecimal()]
    array = np.fromiter(map(int, names), dtype=np.int64, count=len(names))
    array.sort()
    return array


def _changed(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
