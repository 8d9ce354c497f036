"""How files of several blocks are on the disk: each with a table of its blocks, among the whole ones or the parts."""

from __future__ import annotations

import ctypes
import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.model.block_identity import BlockIdentity
from tdcs.model.manifest_builder import own_block_after
from tdcs.node import extents
from tdcs.node.extents import ROW, ExtentPlace, Header, LargeFile, Rows
from tdcs.node.file_facts import FactsStore, FileFacts

OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PUNCH_HOLE: Final = 3
"""FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE."""
_COPIED_AT_ONCE: Final = 16 << 20
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class StoredFile:
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


class LargeFileFolders:
    """The folders of one tier. It remembers no file, and holds no lock: whoever changes one sees to that.

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
        self._numbers: Final = itertools.count()

    def take_copies(self) -> None:
        """Give a copy that has its table already its name, which the process before could not do any more. Run it
        before `partial` is cleared."""
        for draft in self._partial.glob("*.large"):
            name = draft.name.partition(".")[0]
            with suppress(OSError):
                table = os.open(self.tables / name, os.O_RDONLY | OPEN)
                try:
                    header = extents.read_header(table)
                finally:
                    os.close(table)
                if header is not None and header.inode == os.stat(draft, follow_symlinks=False).st_ino:
                    os.rename(draft, self.parts / name)

    def prepare(self) -> None:
        for folder in (self.parts, self.whole, self.tables):
            folder.mkdir(parents=True, exist_ok=True)

    def is_prepared(self) -> bool:
        """Whether there are the folders in which files are written."""
        return all(map(os.path.isdir, (self.parts, self.whole, self.tables)))

    def read(self, name: int) -> StoredFile | None:
        """What a table says, if it is of the file next to it."""
        path = extents.table_path(self._tier, name)
        with suppress(OSError):
            table = os.open(path, os.O_RDONLY | OPEN)
            try:
                header = extents.read_header(table)
                if header is None or os.fstat(table).st_size != extents.row_place(header.file.extents):
                    return None
                stored = StoredFile(name, header, extents.read_rows(table, header.file))
            finally:
                os.close(table)
            in_parts, in_whole = (folder / str(name) for folder in (self.parts, self.whole))
            stored.whole = not in_parts.exists()
            status = os.stat(in_whole if stored.whole else in_parts, follow_symlinks=False)
            alone = stored.whole or not in_whole.exists()
            fits = (status.st_ino, status.st_size) == (header.inode, header.file.length)
            if fits and alone and stored.present.any() and (header.frozen or not stored.whole):
                return stored
        return None

    def all_names(self) -> set[int]:
        """Of files, and of tables."""
        return _names_in(self.tables) | self.file_names()

    def file_names(self) -> set[int]:
        return _names_in(self.parts) | _names_in(self.whole)

    def create(self, place: ExtentPlace) -> StoredFile:
        """A file without a block, and its table. Raises OSError."""
        draft, file = self.draft(place.name), place.file
        fd = os.open(draft, _NEW, 0o644)
        try:
            os.ftruncate(fd, file.length)
            header = Header(file, os.fstat(fd).st_ino)
        finally:
            os.close(fd)
        self._facts.write(draft, FileFacts(BlockIdentity(file.mount, file.file, 0), file.length, 0))
        stored = StoredFile(place.name, header, np.zeros(file.extents, dtype=ROW))
        # Its table first: no file is without one.
        self._write_table(stored)
        os.rename(draft, self.parts / str(place.name))
        return stored

    def complete(self, stored: StoredFile) -> None:
        """Have views see a file of which all blocks are here. Raises OSError."""
        source, header = self.path(stored), stored.header._replace(frozen=True)
        table = os.open(extents.table_path(self._tier, stored.name), os.O_RDWR | OPEN)
        try:
            os.pwrite(table, extents.header_bytes(header), 0)
            stored.header = header  # on the disk, or perhaps: it is not written any more
            os.fsync(table)
        finally:
            os.close(table)
        os.chmod(source, 0o444)
        os.rename(source, self.whole / str(stored.name))
        stored.whole = True

    def hide(self, stored: StoredFile) -> None:
        """Have views see a file no more. Raises OSError."""
        if stored.whole:
            os.rename(self.path(stored), self.parts / str(stored.name))
            stored.whole = False

    # A copy in the place of a file.

    def draft(self, name: int) -> str:
        """Where a file is made that gets this name."""
        return str(self._partial / f"{name}.{next(self._numbers)}.large")

    def copy(self, stored: StoredFile, source: int, draft: str) -> int:
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

    def replace(self, stored: StoredFile, draft: str, *, inode: int) -> None:
        """Put the copy of a file in its place. Raises OSError."""
        stored.header = Header(stored.file, inode)
        self._write_table(stored)
        os.rename(draft, self.path(stored))  # or the next process does it: `take_copies`

    # Files and tables.

    def path(self, stored: StoredFile) -> str:
        return f"{self.whole if stored.whole else self.parts}/{stored.name}"

    def punch(self, stored: StoredFile, number: int) -> None:
        """Give the room of a block back that is not here. Raises OSError."""
        _punch(self.path(stored), number * stored.file.extent, stored.file.length_of(number))

    def write_row(self, stored: StoredFile, number: int, row: np.void) -> None:
        table = os.open(extents.table_path(self._tier, stored.name), os.O_RDWR | OPEN)
        try:
            os.pwrite(table, row.tobytes(), extents.row_place(number))
        finally:
            os.close(table)

    def sync_table(self, stored: StoredFile) -> None:
        table = os.open(extents.table_path(self._tier, stored.name), os.O_RDONLY | OPEN)
        try:
            os.fdatasync(table)
        finally:
            os.close(table)

    def _write_table(self, stored: StoredFile) -> None:
        path = extents.table_path(self._tier, stored.name)
        draft = f"{self._partial}/{stored.name}.{next(self._numbers)}.table"
        with open(draft, "wb") as opened:
            opened.write(extents.header_bytes(stored.header) + stored.rows.tobytes())
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(draft, path)

    def unlink(self, name: int) -> None:
        for folder in (self.tables, self.parts, self.whole):
            with suppress(FileNotFoundError):
                os.unlink(folder / str(name))


def _names_in(folder: Path) -> set[int]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return {int(entry.name) for entry in entries if entry.name.isdecimal()}
    return set()


def _punch(path: str, offset: int, length: int) -> None:
    """Give the room of a part of a file back, where the file system can: it is written again before it is read."""
    fd = os.open(path, os.O_RDWR | OPEN)
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
