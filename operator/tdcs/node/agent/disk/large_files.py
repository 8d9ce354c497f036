"""Files of several blocks in a store: one sparse file each, filled block by block (`tdcs.node.extents`).

A block is written in its place, and believed once its row is in the table: after a sync of its bytes. A process that is
killed leaves what has a row. When all rows are there the table is synced, and the file gets its name among those that
are whole, which views link.

A file that was once whole is not written any more. When blocks of it go, those that stay are copied to another file.

What a block had on the disk is punched out of its file, or written over, once its row is on the disk without it: a loss
of power would leave a row that says that zeros are the block. A thread does that, and copies, one file after the other.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.model.block_identity import BlockIdentity
from tdcs.model.manifest_builder import own_block_after
from tdcs.node import extents
from tdcs.node.agent.disk.one_worker import OneWorker
from tdcs.node.agent.disk.partial_file import BusyError, DiskError, PartialFile, disk_error
from tdcs.node.extents import ROW, ExtentPlace, Header, LargeFile, Rows
from tdcs.node.file_facts import FactsStore, FileFacts

_log: Final = logging.getLogger(__name__)

_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PUNCH_HOLE: Final = 3
"""FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE."""
_COPIED_AT_ONCE: Final = 16 << 20
_libc: Final = ctypes.CDLL(None, use_errno=True)


class OpenedBlock(NamedTuple):
    """A block that lies here, opened.

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


@dataclass(slots=True)
class _Stored:
    """A file as its table has it.

    Attributes:
        writing: numbers of blocks that are begun.
        freed: numbers of blocks that have gone, of which the disk may have the row and the bytes still.
    """

    name: int
    header: Header
    rows: Rows
    whole: bool = False
    writing: set[int] = field(default_factory=set)
    freed: set[int] = field(default_factory=set)

    @property
    def file(self) -> LargeFile:
        return self.header.file

    def id_of(self, number: int) -> int:
        return own_block_after(self.name, number)

    def has(self, number: int) -> bool:
        return bool(self.rows["turns"][number] & 1)

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        return (self.rows["turns"] & 1).astype(np.bool_)


class LargeFiles:
    """The files of several blocks of one tier. Thread-safe.

    Args:
        tier: the tier's folder.
        facts: takes what each file says of itself.
        partial: folder of what is being written.
    """

    def __init__(self, tier: Path, *, facts: FactsStore, partial: Path) -> None:
        self._tier: Final = str(tier)
        self._facts: Final = facts
        self._partial: Final = partial
        self.parts: Final = tier / names.AGENT_PARTS
        self.whole: Final = tier / names.AGENT_WHOLE
        self.tables: Final = tier / names.AGENT_EXTENTS
        self._lock: Final = threading.RLock()
        self._files: Final[dict[int, _Stored]] = {}
        self._places: Final[dict[int, tuple[_Stored, int]]] = {}
        """Of each block that is here, by its id."""
        self._numbers: Final = itertools.count()
        self._worker: Final = OneWorker(self._give_back, name="free-extents")

    def take_copies(self) -> None:
        """Give a copy that has its table already its name, which the process before could not do any more. Run it
        before `partial` is cleared."""
        for draft in self._partial.glob("*.large"):
            name = draft.name.partition(".")[0]
            with suppress(OSError):
                table = os.open(self.tables / name, os.O_RDONLY | _OPEN)
                try:
                    header = extents.read_header(table)
                finally:
                    os.close(table)
                if header is not None and header.inode == os.stat(draft, follow_symlinks=False).st_ino:
                    os.rename(draft, self.parts / name)

    def load(self) -> None:
        """Take over what lies here, by what it says of itself, and remove what does not fit. Raises OSError."""
        with self._lock:
            self._files.clear()
            self._places.clear()
            for folder in (self.parts, self.whole, self.tables):
                folder.mkdir(parents=True, exist_ok=True)
            for name in _names_in(self.tables) | _names_in(self.parts) | _names_in(self.whole):
                stored = self._read(name)
                if stored is None:
                    self._unlink(name)
                    continue
                self._files[name] = stored
                for number in np.flatnonzero(stored.present).tolist():
                    self._places[stored.id_of(number)] = stored, number
                self._finish(stored)

    def _finish(self, stored: _Stored) -> None:
        """Do what the process before had begun when it ended."""
        try:
            if not stored.present.all():
                self._hide(stored)
            elif not stored.whole:
                self._complete(stored)
        except OSError as error:
            _log.warning("file %d cannot be put where it belongs: %s", stored.name, error)
        if stored.header.frozen and not stored.present.all():
            self._worker.add(stored)

    def is_prepared(self) -> bool:
        """Whether there are the folders in which files are written."""
        return all(map(os.path.isdir, (self.parts, self.whole, self.tables)))

    def _read(self, name: int) -> _Stored | None:
        """What a table says, if it is of the file beside it."""
        path = extents.table_path(self._tier, name)
        with suppress(OSError):
            table = os.open(path, os.O_RDONLY | _OPEN)
            try:
                header = extents.read_header(table)
                if header is None or os.fstat(table).st_size != extents.row_place(header.file.extents):
                    return None
                stored = _Stored(name, header, extents.read_rows(table, header.file))
            finally:
                os.close(table)
            in_parts, in_whole = (folder / str(name) for folder in (self.parts, self.whole))
            stored.whole = not in_parts.exists()
            found = os.stat(in_whole if stored.whole else in_parts, follow_symlinks=False)
            alone = stored.whole or not in_whole.exists()
            fits = (found.st_ino, found.st_size) == (header.inode, header.file.length)
            if fits and alone and stored.present.any() and (header.frozen or not stored.whole):
                return stored
        return None

    # What lies here.

    def __contains__(self, block: object) -> bool:
        return block in self._places

    def ids(self) -> list[int]:
        """Of all blocks that are here. What others have removed is forgotten."""
        with self._lock:
            lying = _names_in(self.parts) | _names_in(self.whole)
            for name in [name for name in self._files if name not in lying]:
                self._forget(self._files[name])
            return list(self._places)

    def facts_of(self, block: int) -> FileFacts | None:
        with self._lock:
            if block not in self._places:
                return None
            stored, number = self._places[block]
            file, row = stored.file, stored.rows[number]
            identity = BlockIdentity(file.mount, file.file, number * file.extent)
            return FileFacts(identity, file.length_of(number), int(row["hash"]), int(row["era"]))

    def open(self, block: int) -> OpenedBlock | None:
        """A block that lies here; None when it does not. Raises OSError for want of descriptors."""
        with self._lock:
            if block not in self._places:
                return None
            stored, number = self._places[block]
            row, inode = stored.rows[number].copy(), stored.header.inode
            try:
                fd = os.open(self._path(stored), os.O_RDONLY | _OPEN)
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
                stored = self._files.get(place.name) or self._create(place)
                number = place.number
                if stored.file != place.file:
                    raise DiskError("another file lies here under the id of this one")
                if stored.header.frozen or stored.has(number) or number in stored.writing:
                    raise BusyError("its file is being changed")
                fd = os.open(self._path(stored), os.O_RDWR | _OPEN)
                stored.writing.add(number)
                doubtful = number in stored.freed
            if doubtful:
                self._sync_begun(stored, number, fd)
        except OSError as error:
            raise disk_error(error) from error
        return PartialFile(
            path=self._path(stored),
            fd=fd,
            base=number * place.file.extent,
            given_up=lambda: self._give_up(stored, number),
            note=lambda content_hash, era: self._note(stored, number, content_hash=content_hash, era=era),
        )

    def _sync_begun(self, stored: _Stored, number: int, fd: int) -> None:
        """Have the disk know that a block is not here, before its place is written. Raises OSError."""
        try:
            self._sync_table(stored)
        except OSError:
            os.close(fd)
            with self._lock:
                stored.writing.discard(number)
            raise

    def _create(self, place: ExtentPlace) -> _Stored:
        draft, file = str(self._partial / f"{place.name}.{next(self._numbers)}.large"), place.file
        fd = os.open(draft, _NEW, 0o644)
        try:
            os.ftruncate(fd, file.length)
            header = Header(file, os.fstat(fd).st_ino)
        finally:
            os.close(fd)
        self._facts.write(draft, FileFacts(BlockIdentity(file.mount, file.file, 0), file.length, 0))
        stored = _Stored(place.name, header, np.zeros(file.extents, dtype=ROW))
        # Its table first: no file is without one.
        self._write_table(stored)
        os.rename(draft, self.parts / str(place.name))
        self._files[place.name] = stored
        return stored

    def _note(self, stored: _Stored, number: int, *, content_hash: int, era: int) -> None:
        """A block that was begun is on the disk. Raises OSError."""
        with self._lock:
            if self._files.get(stored.name) is not stored or number not in stored.writing:
                raise FileNotFoundError(
                    2, "the file was removed meanwhile", str(self.parts / str(stored.name))
                )
            stored.writing.discard(number)
            stored.freed.discard(number)
            row = stored.rows[number].copy()
            row["hash"], row["era"], row["turns"] = content_hash, era, row["turns"] + 1
            self._write_row(stored, number, row)
            stored.rows[number] = row
            self._places[stored.id_of(number)] = stored, number
            if stored.present.all():
                try:
                    self._complete(stored)
                except OSError as error:  # all of it can be read, but not through links
                    _log.warning("file %d is here and gets no name: %s", stored.name, error)

    def _complete(self, stored: _Stored) -> None:
        """Have views see a file of which all blocks are here. Raises OSError."""
        source, header = self._path(stored), stored.header._replace(frozen=True)
        table = os.open(extents.table_path(self._tier, stored.name), os.O_RDWR | _OPEN)
        try:
            os.pwrite(table, extents.header_bytes(header), 0)
            stored.header = header  # on the disk, or perhaps: it is not written any more
            os.fsync(table)
        finally:
            os.close(table)
        os.chmod(source, 0o444)
        os.rename(source, self.whole / str(stored.name))
        stored.whole = True

    def _hide(self, stored: _Stored) -> None:
        """Have views see a file no more. Raises OSError."""
        if stored.whole:
            os.rename(self._path(stored), self.parts / str(stored.name))
            stored.whole = False

    def _give_up(self, stored: _Stored, number: int) -> None:
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
                self._write_row(stored, number, row)  # before its bytes go: whoever reads looks again
                stored.rows[number] = row
                del self._places[block]
                self._free(stored, number)
            except FileNotFoundError:  # somebody has removed the file, or its table
                self._lose(stored)
            return True

    def _free(self, stored: _Stored, number: int) -> None:
        """Give the room of a block back that is not here. Raises OSError."""
        if not stored.present.any() and not stored.writing:
            self._lose(stored)
            return
        stored.freed.add(number)
        self._hide(stored)
        self._worker.add(stored)

    def _lose(self, stored: _Stored) -> None:
        """Remove what is left of a file. Raises OSError."""
        with self._lock:
            if self._files.get(stored.name) is stored:
                self._forget(stored)
                self._unlink(stored.name)

    def _give_back(self, stored: _Stored) -> None:
        """Give back what blocks had that have gone from a file. In the worker's thread."""
        try:
            if stored.whole:  # it could not be hidden
                return
            if stored.header.frozen:
                self._thaw(stored)
            with self._lock:
                freed = [(number, int(stored.rows["turns"][number])) for number in stored.freed]
            self._sync_table(stored)
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
                        _punch(self._path(stored), number * stored.file.extent, stored.file.length_of(number))
        except (OSError, MemoryError) as error:
            with self._lock:
                if self._files.get(stored.name) is not stored:  # all of it has gone
                    return
            _log.warning("what is left of file %d cannot be changed, and goes: %s", stored.name, error)
            with suppress(OSError):
                self._lose(stored)

    def _thaw(self, stored: _Stored) -> None:
        """Put a copy of the blocks that are here in the place of a file that was once whole: pods may have that one
        open, and find zeros where a block was cut out of it. Raises OSError and MemoryError."""
        draft = str(self._partial / f"{stored.name}.{next(self._numbers)}.large")
        try:
            with self._lock:
                if self._files.get(stored.name) is not stored:
                    return
                source = os.open(self._path(stored), os.O_RDONLY | _OPEN)
            try:
                inode = self._copy(stored, source, draft)
            finally:
                os.close(source)
            with self._lock:
                if self._files.get(stored.name) is not stored:
                    return
                # What went while it was copied is in the copy.
                stored.freed.update(np.flatnonzero(~stored.present).tolist())
                stored.header = Header(stored.file, inode)
                self._write_table(stored)
                os.rename(draft, self._path(stored))  # or the next process does it: `take_copies`
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)

    def _copy(self, stored: _Stored, source: int, draft: str) -> int:
        """Copy the blocks that are here, and bring them to the disk; the inode of the copy. Raises OSError."""
        file = stored.file
        target = os.open(draft, _NEW, 0o644)
        try:
            os.ftruncate(target, file.length)
            for number in range(file.extents):
                if not stored.has(number):
                    continue
                begin, end = number * file.extent, number * file.extent + file.length_of(number)
                while begin < end:
                    begin += _copy_range(source, target, begin, min(end - begin, _COPIED_AT_ONCE))
            self._facts.write(draft, FileFacts(BlockIdentity(file.mount, file.file, 0), file.length, 0))
            os.fsync(target)
            return os.fstat(target).st_ino
        finally:
            os.close(target)

    def clear(self) -> None:
        """Remove all. Raises OSError."""
        with self._lock:
            self._files.clear()
            self._places.clear()
            for name in _names_in(self.tables) | _names_in(self.parts) | _names_in(self.whole):
                self._unlink(name)

    # Files and tables.

    def _path(self, stored: _Stored) -> str:
        return f"{self.whole if stored.whole else self.parts}/{stored.name}"

    def _write_row(self, stored: _Stored, number: int, row: np.void) -> None:
        table = os.open(extents.table_path(self._tier, stored.name), os.O_RDWR | _OPEN)
        try:
            os.pwrite(table, row.tobytes(), extents.row_place(number))
        finally:
            os.close(table)

    def _sync_table(self, stored: _Stored) -> None:
        table = os.open(extents.table_path(self._tier, stored.name), os.O_RDONLY | _OPEN)
        try:
            os.fdatasync(table)
        finally:
            os.close(table)

    def _write_table(self, stored: _Stored) -> None:
        path = extents.table_path(self._tier, stored.name)
        draft = f"{self._partial}/{stored.name}.{next(self._numbers)}.table"
        with open(draft, "wb") as opened:
            opened.write(extents.header_bytes(stored.header) + stored.rows.tobytes())
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(draft, path)

    def _forget(self, stored: _Stored) -> None:
        del self._files[stored.name]
        for number in range(stored.file.extents):
            self._places.pop(stored.id_of(number), None)

    def _unlink(self, name: int) -> None:
        for folder in (self.tables, self.parts, self.whole):
            with suppress(FileNotFoundError):
                os.unlink(folder / str(name))


def _names_in(folder: Path) -> set[int]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return {int(entry.name) for entry in entries if entry.name.isdecimal()}
    return set()


def _punch(path: str, offset: int, length: int) -> None:
    """Give the room of a part of a file back, where the file system can: it is written again before it is read."""
    fd = os.open(path, os.O_RDWR | _OPEN)
    try:
        _libc.fallocate(fd, _PUNCH_HOLE, ctypes.c_longlong(offset), ctypes.c_longlong(length))
    finally:
        os.close(fd)


def _copy_range(source: int, target: int, offset: int, count: int) -> int:
    """Copy bytes at the same place of another file, by reference where the file system can; how many."""
    with suppress(OSError):  # some file systems have no such call
        if done := os.copy_file_range(source, target, count, offset, offset):
            return done
    content = os.pread(source, count, offset)
    if not content:
        raise OSError(5, "the file is shorter than it says")
    return os.pwrite(target, content, offset)
