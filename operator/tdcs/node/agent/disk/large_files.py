"""Files of several blocks in a store: one sparse file each, filled block by block (`tdcs.node.extents`).

A block is written in its place, and believed once its row is in the table: after a sync of its bytes. A process that is
killed leaves what has a row. When all rows are there the table is synced, and the file gets its name among those that
are whole, which views link.

A file that was once whole is not written any more. When blocks of it go, those that stay are copied to another file.

What a block had on the disk is punched out of its file, or written over, once its row is on the disk without it: a loss
of power would leave a row that says that zeros are the block. A thread does that, and copies, one file after the other.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.model.block_identity import BlockIdentity
from tdcs.node.agent.disk.large_file_folders import OPEN, LargeFileFolders, StoredFile
from tdcs.node.agent.disk.one_worker import OneWorker
from tdcs.node.agent.disk.partial_file import BusyError, DiskError, PartialFile, disk_error
from tdcs.node.extents import ExtentPlace
from tdcs.node.file_facts import FactsStore, FileFacts

_log: Final = logging.getLogger(__name__)


class OpenedBlock(NamedTuple):
    """A block that is here, opened.

    Attributes:
        base: where it begins in the file.
        length: bytes.
        content_hash: xxh3_64 of all of them; None: the file says it, if it is noted.
        is_here: whether what was read until now was the block: asked after reading.
    """

    fd: int
    base: int
    length: int
    content_hash: int | None
    is_here: Callable[[], bool]


class LargeFiles:
    """The files of several blocks of one tier. Thread-safe.

    Args:
        tier: the tier's folder.
        facts: takes what each file says of itself.
        partial: folder of what is being written.

    Attributes:
        folders: where they are.
    """

    def __init__(self, tier: Path, *, facts: FactsStore, partial: Path) -> None:
        self.folders: Final = LargeFileFolders(tier, facts=facts, partial=partial)
        self._lock: Final = threading.RLock()
        self._files: Final[dict[int, StoredFile]] = {}
        self._places: Final[dict[int, tuple[StoredFile, int]]] = {}
        """Of each block that is here, by its id."""
        self._to_copy: Final[dict[int, StoredFile]] = {}
        """Files that are to be copied, or are being copied."""
        self._worker: Final = OneWorker(self._give_back, name="free-extents")

    def load(self) -> None:
        """Take over what is here, by what it says of itself, and remove what does not fit. Raises OSError."""
        with self._lock:
            self._files.clear()
            self._places.clear()
            self._to_copy.clear()
            self.folders.prepare()
            for name in self.folders.all_names():
                stored = self.folders.read(name)
                if stored is None:
                    self.folders.unlink(name)
                    continue
                self._files[name] = stored
                for number in np.flatnonzero(stored.present).tolist():
                    self._places[stored.id_of(number)] = stored, number
                self._finish(stored)

    def _finish(self, stored: StoredFile) -> None:
        """Do what the process before had begun when it ended."""
        try:
            if not stored.present.all():
                self.folders.hide(stored)
            elif not stored.whole:
                self.folders.complete(stored)
        except OSError as error:
            _log.warning("file %d cannot be put where it belongs: %s", stored.name, error)
        if stored.header.frozen and not stored.present.all():
            self._to_copy[stored.name] = stored
            self._worker.add(stored)

    # What is here.

    def __contains__(self, block: object) -> bool:
        return block in self._places

    def __len__(self) -> int:
        return len(self._places)

    def ids(self) -> npt.NDArray[np.int64]:
        """Of all blocks that are here. What others have removed is forgotten."""
        with self._lock:
            file_names = self.folders.file_names()
            for name in [name for name in self._files if name not in file_names]:
                self._drop_entries(self._files[name])
            return np.fromiter(self._places, dtype=np.int64, count=len(self._places))

    def facts_of(self, block: int) -> FileFacts | None:
        with self._lock:
            if block not in self._places:
                return None
            stored, number = self._places[block]
            file, row = stored.file, stored.rows[number]
            identity = BlockIdentity(file.mount, file.file, number * file.extent)
            return FileFacts(identity, file.length_of(number), int(row["hash"]), int(row["era"]))

    def open(self, block: int) -> OpenedBlock | None:
        """A block that is here; None when it does not. Raises OSError for want of descriptors."""
        with self._lock:
            if block not in self._places:
                return None
            stored, number = self._places[block]
            row, inode = stored.rows[number].copy(), stored.header.inode
            try:
                fd = os.open(self.folders.path(stored), os.O_RDONLY | OPEN)
            except FileNotFoundError:
                return None
            if os.fstat(fd).st_ino != inode:  # somebody else has put it there
                os.close(fd)
                return None

        def is_here() -> bool:
            return self._files.get(stored.name) is stored and bool(stored.rows[number] == row)

        file = stored.file
        return OpenedBlock(fd, number * file.extent, file.length_of(number), int(row["hash"]), is_here)

    def inodes(self) -> Iterator[int]:
        """Of all files."""
        with self._lock:
            return iter([stored.header.inode for stored in self._files.values()])

    # What comes.

    def begin(self, place: ExtentPlace) -> PartialFile:
        """Write a block in its place; it is here once `PartialFile.note` was called. Raises DiskError, and
        BusyError when it can be written in a moment."""
        try:
            with self._lock:
                stored = self._files.get(place.name)
                if stored is None:
                    stored = self._files[place.name] = self.folders.create(place)
                number = place.number
                if stored.file != place.file:
                    raise DiskError("another file is here under the id of this one")
                if stored.header.frozen or stored.has(number) or number in stored.writing:
                    raise BusyError("its file is being changed")
                fd = os.open(self.folders.path(stored), os.O_RDWR | OPEN)
                stored.writing.add(number)
                doubtful = number in stored.freed
            if doubtful:
                self._sync_begun(stored, number, fd)
        except OSError as error:
            raise disk_error(error) from error
        return PartialFile(
            path=self.folders.path(stored),
            fd=fd,
            base=number * place.file.extent,
            given_up=lambda: self._give_up(stored, number),
            note=lambda content_hash, era: self._note(stored, number, content_hash=content_hash, era=era),
        )

    def _sync_begun(self, stored: StoredFile, number: int, fd: int) -> None:
        """Have the disk know that a block is not here, before its place is written. Raises OSError."""
        try:
            self.folders.sync_table(stored)
        except OSError:
            os.close(fd)
            with self._lock:
                stored.writing.discard(number)
            raise

    def _note(self, stored: StoredFile, number: int, *, content_hash: int, era: int) -> None:
        """A block that was begun is on the disk. Raises OSError."""
        with self._lock:
            if self._files.get(stored.name) is not stored or number not in stored.writing:
                raise FileNotFoundError(
                    2, "the file was removed meanwhile", str(self.folders.parts / str(stored.name))
                )
            stored.writing.discard(number)
            stored.freed.discard(number)
            row = stored.rows[number].copy()
            row["hash"], row["era"], row["turns"] = content_hash, era, row["turns"] + 1
            self.folders.write_row(stored, number, row)
            stored.rows[number] = row
            self._places[stored.id_of(number)] = stored, number
            if stored.present.all():
                try:
                    self.folders.complete(stored)
                except OSError as error:  # all of it can be read, but not through links
                    _log.warning("file %d is here and gets no name: %s", stored.name, error)

    def _give_up(self, stored: StoredFile, number: int) -> None:
        """A block that was begun does not come."""
        with self._lock:
            stored.writing.discard(number)
            if self._files.get(stored.name) is stored:
                self._free(stored, number)

    # What goes.

    def drop(self, block: int) -> bool:
        """Have a block be here no more; whether it was. Raises OSError."""
        with self._lock:
            if block not in self._places:
                return False
            stored, number = self._places[block]
            row = stored.rows[number].copy()
            row["turns"] += 1
            try:
                self.folders.write_row(stored, number, row)  # before its bytes go: whoever reads looks again
                stored.rows[number] = row
                del self._places[block]
                self._free(stored, number)
            except FileNotFoundError:  # somebody has removed the file, or its table
                self._lose(stored)
            return True

    def _free(self, stored: StoredFile, number: int) -> None:
        """Give the room of a block back that is not here. Raises OSError."""
        if not stored.present.any() and not stored.writing:
            self._lose(stored)
            return
        stored.freed.add(number)
        self.folders.hide(stored)
        if stored.header.frozen:
            self._to_copy[stored.name] = stored
        self._worker.add(stored)

    def _lose(self, stored: StoredFile) -> None:
        """Remove what is left of a file. Raises OSError."""
        with self._lock:
            if self._files.get(stored.name) is stored:
                self._drop_entries(stored)
                self.folders.unlink(stored.name)

    def _give_back(self, stored: StoredFile) -> None:
        """Give back what blocks had that have gone from a file. In the worker's thread."""
        try:
            if stored.whole:  # it could not be hidden
                return
            if stored.header.frozen:
                self._thaw(stored)
            with self._lock:
                freed = [(number, int(stored.rows["turns"][number])) for number in stored.freed]
            self.folders.sync_table(stored)
            for number, turns in freed:
                with self._lock:
                    if self._files.get(stored.name) is not stored:
                        return
                    if (
                        stored.rows["turns"][number] != turns
                    ):  # it has come meanwhile, and may have gone again
                        continue
                    stored.freed.discard(number)
                    if number not in stored.writing:
                        self.folders.punch(stored, number)
        except (OSError, MemoryError) as error:
            with self._lock:
                if self._files.get(stored.name) is not stored:  # all of it has gone
                    return
            _log.warning("what is left of file %d cannot be changed, and goes: %s", stored.name, error)
            with suppress(OSError):
                self._lose(stored)

    def copy_bytes(self) -> int:
        """What copies will take of the disk before what they are of goes."""
        with self._lock:
            return sum(
                stored.file.length_of(number)
                for stored in self._to_copy.values()
                for number in np.flatnonzero(stored.present).tolist()
            )

    def _thaw(self, stored: StoredFile) -> None:
        """Put a copy of the blocks that are here in the place of a file that was once whole: pods may have that one
        open, and find zeros where a block was cut out of it. Raises OSError and MemoryError."""
        draft = self.folders.draft(stored.name)
        try:
            with self._lock:
                if self._files.get(stored.name) is not stored:
                    return
                source = os.open(self.folders.path(stored), os.O_RDONLY | OPEN)
            try:
                inode = self.folders.copy(stored, source, draft)
            finally:
                os.close(source)
            with self._lock:
                if self._files.get(stored.name) is not stored:
                    return
                # What went while it was copied is in the copy.
                stored.freed.update(np.flatnonzero(~stored.present).tolist())
                self.folders.replace(stored, draft, inode=inode)
                self._to_copy.pop(stored.name, None)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)

    def clear(self) -> None:
        """Remove all. Raises OSError."""
        with self._lock:
            self._files.clear()
            self._places.clear()
            self._to_copy.clear()
            for name in self.folders.all_names():
                self.folders.unlink(name)

    def _drop_entries(self, stored: StoredFile) -> None:
        del self._files[stored.name]
        self._to_copy.pop(stored.name, None)
        for number in range(stored.file.extents):
            self._places.pop(stored.id_of(number), None)
