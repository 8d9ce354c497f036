"""What one version of a dataset consists of, in columns: a million files take some 60 MB in memory and on disk,
and are read back in milliseconds.
"""

import hashlib
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

import msgspec

from tdcs.engine.protocol import CachedFile

FORMAT: Final = 1
HIDDEN: Final = ".tdcs"
"""The folder of a view that leads to what is not on the node; no dataset may have an entry of that name."""

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
    starts: bytes
    names: bytes
    ends: bytes
    kinds: bytes
    blocks: bytes
    lengths: bytes
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
        *("_starts", "_names", "_ends", "_sorted_blocks", "_order"),
    )

    def __init__(self, columns: _Columns) -> None:
        self.path: Final = columns.path
        self.version: Final = columns.version
        self.folders: Final = columns.folders
        self.kinds: Final = columns.kinds
        self.blocks: Final = array("q", columns.blocks)
        self.lengths: Final = array("q", columns.lengths)
        self.skipped: Final = columns.skipped
        self._starts: Final = array("Q", columns.starts)
        self._names: Final = columns.names
        self._ends: Final = array("Q", columns.ends)
        order = sorted(
            (index for index, kind in enumerate(self.kinds) if kind == Kind.BLOCK),
            key=self.blocks.__getitem__,
        )
        self._order: Final = array("Q", order)
        self._sorted_blocks: Final = array("q", (self.blocks[index] for index in order))

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def hides_itself(self) -> bool:
        """Whether the dataset has a top-level entry of the name that a view needs for itself."""
        name = os.fsencode(HIDDEN)
        return name in self.folders or any(self.name(index) == name for index in self.in_folder(0))

    def in_folder(self, folder: int) -> range:
        """Indices of the files that lie directly in the folder of this number."""
        return range(self._starts[folder], self._starts[folder + 1])

    def name(self, index: int) -> bytes:
        """The file's own name."""
        return self._names[self._ends[index - 1] if index else 0 : self._ends[index]]

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
        return msgspec.msgpack.encode(
            _Columns(
                format=FORMAT,
                path=self.path,
                version=self.version,
                folders=self.folders,
                starts=self._starts.tobytes(),
                names=self._names,
                ends=self._ends.tobytes(),
                kinds=self.kinds,
                blocks=self.blocks.tobytes(),
                lengths=self.lengths.tobytes(),
                skipped=self.skipped,
            )
        )


def decode(content: bytes) -> Manifest:
    """A manifest from its form on disk; raises BadManifestError."""
    try:
        columns = msgspec.msgpack.decode(content, type=_Columns)
    except msgspec.MsgspecError as error:
        raise BadManifestError(f"not a manifest: {error}") from error
    if columns.format != FORMAT:
        raise BadManifestError(f"a manifest of format {columns.format}, this version reads {FORMAT}")
    return Manifest(columns)


class Builder:
    """Makes a manifest from the pages of a listing."""

    def __init__(self, *, path: str) -> None:
        self._path: Final = path
        self._by_folder: Final[dict[bytes, dict[bytes, tuple[Kind, int, int]]]] = {b"": {}}
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
            self._folder(folder)[name] = (
                kind,
                blocks[0].id if blocks else 0,
                file.length,
            )

    def finish(self) -> Manifest:
        """The manifest of all pages."""
        folders = sorted(self._by_folder)
        for folder in folders[1:]:  # an object store can have both `a` and `a/b`, a file system cannot
            parent, _, name = folder.rpartition(b"/")
            if self._by_folder[parent].pop(name, None) is not None:
                self._skipped += 1
        starts, ends, blocks, lengths = array("Q"), array("Q"), array("q"), array("q")
        names, kinds = bytearray(), bytearray()
        digest = hashlib.sha256()
        for folder in folders:
            starts.append(len(kinds))
            digest.update(b"\0%s\0" % folder)
            for name, (kind, block, length) in sorted(self._by_folder[folder].items()):
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
                starts=starts.tobytes(),
                names=bytes(names),
                ends=ends.tobytes(),
                kinds=bytes(kinds),
                blocks=blocks.tobytes(),
                lengths=lengths.tobytes(),
                skipped=self._skipped,
            )
        )

    def _folder(self, folder: bytes) -> dict[bytes, tuple[Kind, int, int]]:
        found = self._by_folder.get(folder)
        if found is None:
            self._folder(folder.rpartition(b"/")[0])  # parents have an entry too
            found = self._by_folder[folder] = {}
        return found


def _can_exist(folder: bytes, name: bytes) -> bool:
    if len(folder) + len(name) >= _LONGEST_PATH or b"\0" in name or b"\0" in folder:
        return False
    pieces = [*folder.split(b"/"), name] if folder else [name]
    return all(0 < len(piece) <= _LONGEST_NAME and piece not in (b".", b"..") for piece in pieces)
