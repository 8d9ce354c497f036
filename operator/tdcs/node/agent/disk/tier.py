"""The agent's part of a tier's folder: where blocks are, how they come there, and what the disk has left.

Below `<tier>/agent` are `spool/<id>` (verified and readable), `partial` (being written), `manifests`, `assignments`,
`checks`, `failures`, `refused` and `epoch`. All of it is one file system: a block gets from one folder to the next by a
rename. Blocks of one file are in one file (`large_files`), and count as being in the spool. In `<tier>/alluxioworker`
are Alluxio's names of files that are here, which are hard links, and what others had Alluxio cache.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.model.block_identity import BlockIdentity
from tdcs.model.sorted_numbers import union
from tdcs.node.agent.disk.file_names import Done, FileNames, WrittenFile
from tdcs.node.agent.disk.large_files import LargeFiles, OpenedBlock
from tdcs.node.agent.disk.partial_file import DiskError, PartialFile, disk_error
from tdcs.node.agent.disk.refused_blocks import RefusedBlocks
from tdcs.node.agent.disk.shutdown_mark import ShutdownMark
from tdcs.node.extents import ExtentPlace
from tdcs.node.file_facts import Facts, FactsStore, FileFacts

_log: Final = logging.getLogger(__name__)

Ids = npt.NDArray[np.int64]

_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CLOSE_SECONDS: Final = 10.0
_LARGEST_ID: Final = str((1 << 63) - 1)
"""TDCS's own ids are spread over all of these numbers."""


class Place(IntEnum):
    """A folder of blocks."""

    SPOOL = 0
    KEPT = 1
    """Of those that have no id: their names are any numbers."""


class Disk:
    """The folders of one tier. Thread-safe.

    Args:
        tier: the tier's folder, at the same path as in the worker.
        boot: identity of the running kernel; None: it is asked.

    Attributes:
        large: files of several blocks.
        lent: the folder of Alluxio's worker: its files are further names of blocks, under ids of its own (`Exporter`).
        refused: blocks that were found wrong: they count as not being here.
        mark: whether all that has a name is on the disk.
        names: gives what was written its name once it is there.
    """

    def __init__(self, tier: Path, *, boot: str | None = None) -> None:
        self.tier: Final = tier
        agent_folder = tier / names.AGENT_FOLDER
        self.lent: Final = tier / names.BLOCK_FOLDER
        self.spool: Final = agent_folder / "spool"
        self.kept_folder: Final = tier / names.AGENT_KEPT
        self.partial: Final = agent_folder / "partial"
        self.manifests: Final = agent_folder / "manifests"
        self.assignments: Final = agent_folder / "assignments"
        self.checks: Final = agent_folder / "checks"
        self.failures: Final = agent_folder / "failures"
        self.refused: Final = RefusedBlocks(tier)
        self.epoch: Final = agent_folder / "epoch"
        self.exported_journal: Final = agent_folder / "exported"
        self.facts: Final = FactsStore(str(tier))
        self.mark: Final = ShutdownMark(agent_folder, boot=boot)
        self.names: Final = FileNames(folder=agent_folder, facts=self.facts, mark=self.mark)
        self.large: Final = LargeFiles(tier, facts=self.facts, partial=self.partial)
        self._folders: Final = {Place.SPOOL: self.spool, Place.KEPT: self.kept_folder}
        self._partial: Final = f"{self.partial}/"
        self._spool: Final = f"{self.spool}/"
        self._numbers = itertools.count()
        self._strange = set[int]()
        self._named = set[int]()
        self._looked_through = True
        self._restoring = threading.Lock()

    def prepare(self) -> None:
        """Make the folders, and remove what an earlier process was writing when it ended."""
        self._make_folders()
        self.partial.mkdir(parents=True, exist_ok=True)
        self.large.folders.take_copies()
        for entry in os.scandir(self.partial):
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
        self.large.load()

    def _make_folders(self) -> None:
        """Make all folders but the one of what is being written."""
        for folder in (
            self.spool,
            self.kept_folder,
            self.manifests,
            self.assignments,
            self.checks,
            self.failures,
        ):
            folder.mkdir(parents=True, exist_ok=True)

    def _restore(self) -> None:
        """Make the folders of a wiped disk again. What others are writing into them meanwhile stays. Raises OSError."""
        with self._restoring:
            if not self.large.folders.is_prepared():
                self.large.load()
            if not self.partial.is_dir():
                self._make_folders()
                self.mark.restore()
                self.partial.mkdir(parents=True, exist_ok=True)  # last: from now on the others write

    def open(self, block: int) -> OpenedBlock | None:
        """A readable block; None when it is not here."""
        is_named = self._looked_through or block in self._named
        if block in self.refused or block in self._strange or not is_named:
            return None
        if block in self.large:
            return self.large.open(block)
        with suppress(FileNotFoundError, PermissionError):
            fd = os.open(f"{self._spool}{block}", os.O_RDONLY | os.O_CLOEXEC)
            return OpenedBlock(fd, 0, os.fstat(fd).st_size, None, _always)
        return None

    def believe_nothing(self) -> None:
        """Give nobody a block before `believe` was called, but what was named since: it is not known yet what the
        others are."""
        self._looked_through = False

    def look(self) -> None:
        """A look at the folders begins: what is named from now on is what it is named as, whatever it finds."""
        self._named.clear()

    def believe(self, *, all_but: set[int]) -> None:
        """Give nobody these blocks, which the look has found to be others than their ids say, or of no version."""
        self._strange, self._looked_through = all_but - self._named, True

    def create(self, block: int, *, place: ExtentPlace | None = None) -> PartialFile:
        """A new file for a block, to be used in a `with`: whatever is not kept by its end is removed.

        Args:
            place: of the block, if it is one of several of a file that are in one file here.

        Raises:
            DiskError: The disk is full, or refuses.
        """
        if place is not None:
            if not (self.large.folders.is_prepared() and self.partial.is_dir()):  # the disk was wiped
                try:
                    self._restore()
                except OSError as error:
                    raise disk_error(error) from error
            return self.large.begin(place)
        path = f"{self._partial}{block}.{next(self._numbers)}"
        try:
            try:
                fd = os.open(path, _NEW_FILE, 0o644)
            except FileNotFoundError:  # the disk was wiped
                self._restore()
                fd = os.open(path, _NEW_FILE, 0o644)
        except OSError as error:
            raise disk_error(error) from error
        return PartialFile(path=path, fd=fd)

    def keep_later(
        self,
        partial: PartialFile,
        *,
        block: int,
        identity: BlockIdentity,
        length: int,
        content_hash: int,
        done: Done,
    ) -> None:
        """Make a block that was written completely and verified readable under its id, as soon as it is on the disk.

        Args:
            identity: what it is, which it says of itself from then on.
            done: called in another thread, when it is readable, or with the reason why it was removed instead.

        Raises:
            DiskError: The disk refuses, or the process ends.
        """
        note = partial.note
        if note is None:
            try:
                os.fchmod(partial.fd, 0o444)
            except OSError as error:
                raise disk_error(error) from error

        def named(error: DiskError | None) -> None:
            if error is None:
                self._named.add(block)
                self._strange.discard(block)
            done(error)

        facts = FileFacts(identity, length, content_hash)
        self.names.add(
            WrittenFile(
                path=partial.path,
                name=f"{self._spool}{block}",
                facts=facts,
                done=named,
                discard=partial.discard,
                note=None if note is None else functools.partial(note, content_hash),
            )
        )
        partial.handed_over = True

    def keep(
        self, partial: PartialFile, *, block: int, identity: BlockIdentity, length: int, content_hash: int
    ) -> None:
        """The same, and wait for it; raises DiskError when the block was removed instead, too."""
        ended, errors = threading.Event(), list[DiskError]()

        def done(error: DiskError | None) -> None:
            if error is not None:
                errors.append(error)
            ended.set()

        self.keep_later(
            partial, block=block, identity=identity, length=length, content_hash=content_hash, done=done
        )
        ended.wait()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Name what was written, and note that the process ends in order; nothing can be kept from now on."""
        self.names.close(seconds=_CLOSE_SECONDS)

    def lend(self, block: int, *, worker_file: str) -> None:
        """Put a spooled block, or a whole large file by the id of its first one, in the place of the empty file that
        the worker has made for it, as a hard link.

        Raises:
            FileNotFoundError: The block has left the spool, or the worker has given up.
        """
        link = f"{self.partial}/{block}.{next(self._numbers)}.link"
        try:
            os.link(f"{self.spool}/{block}", link)
        except FileNotFoundError:
            os.link(f"{self.large.folders.whole}/{block}", link)
        try:
            os.rename(link, worker_file)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(link)
            raise

    def unspool(self, block: int) -> None:
        """Remove a block; none is fine."""
        if self.large.drop(block):
            return
        with suppress(FileNotFoundError):
            os.unlink(f"{self.spool}/{block}")

    def has(self, block: int) -> bool:
        return block in self.large or os.path.exists(f"{self._spool}{block}")

    def size_at(self, place: Place, name: int) -> int:
        if place is Place.SPOOL and (facts := self.large.facts_of(name)) is not None:
            return facts.length
        with suppress(FileNotFoundError):
            return os.stat(f"{self._folders[place]}/{name}").st_size
        return 0

    def facts_at(self, place: Place, ids: Iterable[int]) -> Facts:
        """What files in a folder say of themselves."""
        large_facts = self.large.facts_of if place is Place.SPOOL and len(self.large) else None
        return self.facts.read_many(str(self._folders[place]), ids, facts_of=large_facts)

    def ids_at(self, place: Place) -> Ids:
        """Names in a folder, ascending."""
        ids = _ids(self._folders[place])
        return union(ids, self.large.ids()) if place is Place.SPOOL else ids

    def adopt(self, place: Place, name: int, *, block: int) -> None:
        """Put a file that is a block, by what it says of itself, under the block's id. Raises OSError."""
        self._named.add(block)
        os.rename(f"{self._folders[place]}/{name}", f"{self._spool}{block}")
        self._strange.discard(block)

    def set_aside(self) -> int:
        """Take the names of all blocks, which are ids of Alluxio's; how many stay, for whoever lists them again: those
        that say what they are. Run it while the worker is away.
        """
        self.large.clear()
        count, wrong = 0, self.refused.read()
        number = int(max(self.ids_at(Place.KEPT), default=0))
        for folder in (self.spool, self.lent):
            for name in _ids(folder).tolist():
                path = f"{folder}/{name}"
                if name not in wrong and self.facts.read(path) is not None:
                    number += 1
                    os.rename(path, f"{self.kept_folder}/{number}")
                    count += 1
        return count

    def take_exports_back(self) -> None:
        """Remove the worker's names of blocks, of which each has another one here. Run it while the worker is away."""
        for name in _ids(self.lent).tolist():
            path = f"{self.lent}/{name}"
            if self.facts.read(path) is not None:
                os.unlink(path)

    def drop_facts_of_removed_files(self) -> None:
        """Keep the index of what files say short, where there is one. Raises OSError."""
        if not self.facts.indexed:
            return
        inodes = set(self.large.inodes())
        for folder in self._folders.values():
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                inodes.update(entry.inode() for entry in entries)
        self.facts.keep_only(inodes)

    def remove(self, place: Place, names: Iterable[int]) -> list[int]:
        """Remove files that the last look has found in a folder; those that are gone. What was named since stays."""
        removed = []
        with suppress(FileNotFoundError):
            folder = os.open(self._folders[place], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for name in names:
                    if place is Place.SPOOL and name in self._named:
                        continue
                    try:
                        with suppress(FileNotFoundError):
                            if (
                                place is not Place.SPOOL
                                or name not in self.large
                                or not self.large.drop(name)
                            ):
                                os.unlink(str(name), dir_fd=folder)
                        removed.append(name)
                    except OSError as error:
                        _log.warning(
                            "%s/%d cannot be removed: %s", self._folders[place], name, error.strerror
                        )
            finally:
                os.close(folder)
        return removed

    def free_bytes(self) -> int:
        """What the file system has left but for copies of large files, without which these would go."""
        status = os.statvfs(self.tier)
        return max(0, status.f_bavail * status.f_frsize - self.large.copy_bytes())

    def changed_at(self) -> tuple[int, ...]:
        """When names in the folders changed last, in nanoseconds; 0 for a folder that is away."""
        return tuple(
            map(_changed, (*self._folders.values(), self.large.folders.parts, self.large.folders.whole))
        )


def _ids(folder: Path) -> Ids:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    all_ids = "".join(names).isdecimal() and max(map(len, names)) <= len(_LARGEST_ID)
    try:
        array = _numbers(names if all_ids else [])
    except OverflowError:
        all_ids = False
    if not all_ids:  # others may be there, too
        array = _numbers([name for name in names if _is_id(name)])
    array.sort()
    return array


def _numbers(names: list[str]) -> Ids:
    return np.fromiter(map(int, names), dtype=np.int64, count=len(names))


def _always() -> bool:
    return True


def _is_id(name: str) -> bool:
    digits = len(_LARGEST_ID)
    return name.isdecimal() and (len(name) < digits or (len(name) == digits and name <= _LARGEST_ID))


def _changed(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
