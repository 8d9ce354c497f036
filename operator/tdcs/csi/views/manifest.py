"""What one version of a dataset consists of, in columns: a million files take some 60 MB in memory and on disk,
and are read back in milliseconds.
"""

import hashlib
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import chain, pairwise
from typing import Final

import msgspec

from tdcs.engine.protocol import CachedFile

FORMAT: Final = 2
HIDDEN: Final = ".tdcs"
"""The folder of a view that leads to what is not on the node."""

_SAMPLE: Final = 1024
_PARTS: Final = 64
_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4000  # a symbolic link's target has at most 4,095 bytes, and begins with some `../`


class Kind(IntEnum):
    """What a file can be in a view."""

    EMPTY = 0
    """It has no bytes, so there is no block."""
    BLOCK = 1
    """One block holds all of it: the block's file can be linked."""
    PARTS = 2
    """Several blocks: only the FUSE client can put them together."""


class BadManifestError(ValueError):
    """The text is no manifest of this format."""


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The form on disk. Columns are in the order of bytes of this machine: the file never leaves it."""

    format: int
    path: str
    version: str
    folders: list[bytes]
    starts: memoryview
    names: memoryview
    ends: memoryview
    kinds: memoryview
    blocks: memoryview
    lengths: memoryview
    skipped: int


class Manifest:
    """The files of one version of a dataset, ordered by folder and name; a file's index is its place in that order.

    Attributes:
        path: The dataset's path in the cache, such as `/datasets/0123456789abcdef`.
        version: Changes exactly when a file is added, removed or has another content.
        folders: All folders below the dataset's own, itself (`b""`) included; a parent comes before its children.
        kinds: A `Kind` for each file.
        blocks: Id of the first block of each file, 0 where there is none. It is new whenever the content is.
        lengths: Bytes of each file.
        skipped: Entries of the listing that no file system could hold, such as `a//b`, or `a` beside `a/b`.
    """

    __slots__ = (
        *("path", "version", "folders", "kinds", "blocks", "lengths", "skipped"),
        *("_columns", "_starts", "_names", "_ends", "_sorted_blocks", "_order", "__dict__"),
    )

    def __init__(self, columns: _Columns) -> None:
        self._columns: Final = columns
        self.path: Final = columns.path
        self.version: Final = columns.version
        self.folders: Final = columns.folders
        self.kinds: Final = columns.kinds
        self.blocks: Final = columns.blocks.cast("q")
        self.lengths: Final = columns.lengths.cast("q")
        self.skipped: Final = columns.skipped
        self._starts: Final = columns.starts.cast("Q")
        self._names: Final = columns.names
        self._ends: Final = columns.ends.cast("Q")
        self._order: Final = _by_block(kinds=self.kinds, blocks=self.blocks)
        self._sorted_blocks: Final = array("q", (self.blocks[index] for index in self._order))

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def way_folder(self) -> bytes | None:
        """The folder that can hold HIDDEN with the least harm; None when each has an entry of that name.

        One with files and no folders, if there is one: programs take the folders of a folder for classes, and what
        lies between a class's files for files, of which they pick those with a known ending.
        """
        hidden = os.fsencode(HIDDEN)
        parents = {folder.rpartition(b"/")[0] for folder in self.folders if folder}
        taken = {
            folder.rpartition(b"/")[0] for folder in self.folders if folder.rpartition(b"/")[2] == hidden
        }
        free = [
            folder
            for number, folder in enumerate(self.folders)
            if len(self.in_folder(number))
            and folder not in taken
            and hidden not in folder.split(b"/")
            and not any(self.name(index) == hidden for index in self.in_folder(number))
        ]
        return next((folder for folder in free if folder not in parents), next(iter(free), None))

    def in_folder(self, folder: int) -> range:
        """Indices of the files that lie directly in the folder of this number."""
        return range(self._starts[folder], self._starts[folder + 1])

    def name(self, index: int) -> bytes:
        """The file's own name."""
        return bytes(self._names[self._ends[index - 1] if index else 0 : self._ends[index]])

    def entries(self, indices: Iterable[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """Index, folder and name of files; fast for ascending indices."""
        folder, below = 0, range(0)
        for index in indices:
            if index not in below:
                folder = self._folder_of(index)
                below = self.in_folder(folder)
            yield index, self.folders[folder], self.name(index)

    def index_of_block(self, block: int) -> int | None:
        """The file whose only block this is, if it is one of this dataset's."""
        place = bisect_left(self._sorted_blocks, block)
        if place < len(self._sorted_blocks) and self._sorted_blocks[place] == block:
            return self._order[place]
        return None

    def _folder_of(self, index: int) -> int:
        # The last folder that starts at or before it: of several that start there all but the last are empty.
        return bisect_left(self._starts, index + 1) - 1

    def encode(self) -> bytes:
        """The form on disk."""
        return msgspec.msgpack.encode(self._columns)


def _by_block(*, kinds: Sequence[int], blocks: Sequence[int]) -> "array[int]":
    """Indices of the files of one block, by the block's id.

    Sorted in parts: a million indices at once are a hundred megabytes of numbers.
    """
    sample = sorted(blocks[index] for index in range(0, len(blocks), len(blocks) // _SAMPLE + 1))
    bounds = sample[:: _SAMPLE // _PARTS]
    parts = [array("Q") for _ in range(len(bounds) + 1)]
    for index, kind in enumerate(kinds):
        if kind == Kind.BLOCK:
            parts[bisect_left(bounds, blocks[index])].append(index)
    order = array("Q")
    for part in parts:
        order.extend(sorted(part, key=blocks.__getitem__))
    return order


def decode(content: bytes) -> Manifest:
    """A manifest from its form on disk; raises BadManifestError."""
    try:
        columns = msgspec.msgpack.decode(content, type=_Columns)
    except msgspec.MsgspecError as error:
        raise BadManifestError(f"not a manifest: {error}") from error
    if columns.format != FORMAT:
        raise BadManifestError(f"a manifest of format {columns.format}, this version reads {FORMAT}")
    return Manifest(columns)


class _Folder:
    """The files of one folder, in columns and in the order in which they were listed."""

    __slots__ = ("blocks", "ends", "kinds", "lengths", "names")

    def __init__(self) -> None:
        self.names: Final = bytearray()
        self.ends: Final = array("Q")
        self.kinds: Final = bytearray()
        self.blocks: Final = array("q")
        self.lengths: Final = array("q")

    def add(self, *, name: bytes, kind: Kind, block: int, length: int) -> None:
        self.names.extend(name)
        self.ends.append(len(self.names))
        self.kinds.append(kind)
        self.blocks.append(block)
        self.lengths.append(length)

    def in_order(self) -> Iterator[tuple[bytes, int]]:
        """Name and place of each file by name; of two of one name the later one."""
        names = [bytes(self.names[begin:end]) for begin, end in pairwise(chain((0,), self.ends))]
        order: Sequence[int] = range(len(names))
        if any(one >= other for one, other in pairwise(names)):  # a listing comes in order as a rule
            order = sorted(order, key=names.__getitem__)  # stable
        for position, place in enumerate(order, 1):
            if position == len(order) or names[place] != names[order[position]]:
                yield names[place], place


class Builder:
    """Makes a manifest from the pages of a listing. A million files take some 50 MB meanwhile."""

    def __init__(self, *, path: str) -> None:
        self._path: Final = path
        self._by_folder: Final[dict[bytes, _Folder]] = {b"": _Folder()}
        self._skipped = 0

    def add(self, files: Iterable[CachedFile]) -> None:
        """Take in a page."""
        for file in files:
            folder, _, name = os.fsencode(file.path).rpartition(b"/")
            if not name or not _can_exist(folder, name):
                self._skipped += 1
                continue
            blocks = file.blocks
            kind = Kind.PARTS if len(blocks) > 1 else Kind.BLOCK if blocks else Kind.EMPTY
            if sum(block.length for block in blocks) != file.length:
                kind = Kind.PARTS  # the master does not know all of its blocks: leave it to the client
            self._folder(folder).add(
                name=name, kind=kind, block=blocks[0].id if blocks else 0, length=file.length
            )

    def finish(self) -> Manifest:
        """The manifest of all pages. The builder is empty then."""
        folders = sorted(self._by_folder)
        starts, ends, blocks, lengths = array("Q"), array("Q"), array("q"), array("q")
        names, kinds = bytearray(), bytearray()
        digest = hashlib.sha256(b"%d" % FORMAT)  # a tree of another format is another tree
        known = frozenset(folders)
        for folder in folders:
            starts.append(len(kinds))
            digest.update(b"\0%s\0" % folder)
            files = self._by_folder.pop(folder)
            for name, place in files.in_order():
                if (folder + b"/" + name if folder else name) in known:
                    # An object store can have both `a` and `a/b`, a file system cannot.
                    self._skipped += 1
                    continue
                kind, block, length = files.kinds[place], files.blocks[place], files.lengths[place]
                names += name
                ends.append(len(names))
                kinds.append(kind)
                blocks.append(block)
                lengths.append(length)
                digest.update(b"%s\0%d %d %d\0" % (name, kind, length, block))
        starts.append(len(kinds))
        return Manifest(
            _Columns(
                format=FORMAT,
                path=self._path,
                version=digest.hexdigest()[:16],
                folders=folders,
                starts=_bytes_of(starts),
                names=memoryview(names),
                ends=_bytes_of(ends),
                kinds=memoryview(kinds),
                blocks=_bytes_of(blocks),
                lengths=_bytes_of(lengths),
                skipped=self._skipped,
            )
        )

    def _folder(self, folder: bytes) -> _Folder:
        found = self._by_folder.get(folder)
        if found is None:
            self._folder(folder.rpartition(b"/")[0])  # parents have an entry too
            found = self._by_folder[folder] = _Folder()
        return found


def _bytes_of(column: "array[int]") -> memoryview:
    # An empty view cannot be cast.
    return memoryview(column).cast("B") if column else memoryview(b"")


def _can_exist(folder: bytes, name: bytes) -> bool:
    if len(folder) + len(name) >= _LONGEST_PATH or b"\0" in name or b"\0" in folder:
        return False
    pieces = [*folder.split(b"/"), name] if folder else [name]
    return all(0 < len(piece) <= _LONGEST_NAME and piece not in (b".", b"..") for piece in pieces)
