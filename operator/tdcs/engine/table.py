"""The blocks of a listing, packed: a million files take about 100 MB here, and more than a gigabyte as objects."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tdcs.engine.protocol import Block, CachedFile

_NONE: frozenset[str] = frozenset()


class BlockTable:
    """Files and their blocks by number, in the order of a listing.

    Numbers, not objects: one entry a block in a few arrays, all paths in one byte string, and the sets of
    holders once each. `block` makes the object when it is needed.

    Only grows: `add` takes the pages of a listing one after the other.
    """

    def __init__(self) -> None:
        self._paths = bytearray()
        self._path_ends = array("Q")
        self._file_ends = array("I")  # the number of the first block after each file's blocks
        self._ids = array("q")
        self._lengths = array("q")
        self._offsets = array("q")
        self._held_by = array("I")
        self._holders: list[frozenset[str]] = [_NONE]
        self._holder_numbers: dict[frozenset[str], int] = {_NONE: 0}
        self._origin: tuple[str, int] | None = None  # what all source paths begin with, and the mount
        self._elsewhere: dict[int, tuple[str, int]] = {}  # files whose source path is not that and their path

    @property
    def files(self) -> int:
        """How many files there are, empty ones included."""
        return len(self._path_ends)

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._ids)

    def add(self, page: Iterable[CachedFile]) -> None:
        """Append the files of a page."""
        for file in page:
            number = self.files
            self._paths += file.path.encode("utf-8", "surrogateescape")
            self._path_ends.append(len(self._paths))
            for block in file.blocks:
                self._note_origin(number, file.path, block)
                self._ids.append(block.id)
                self._lengths.append(block.length)
                self._offsets.append(block.offset)
                self._held_by.append(self._holder_number(block.workers))
            self._file_ends.append(len(self._ids))

    def version(self) -> str:
        """Changes exactly when a file is added, removed or has another content: blocks have new ids then."""
        digest = hashlib.sha256()
        for column in (self._paths, self._path_ends, self._file_ends, self._ids, self._lengths):
            digest.update(len(column).to_bytes(8, "big"))
            digest.update(column)
        return digest.hexdigest()[:16]

    def path(self, file: int) -> str:
        """A file's path, relative to the mounted path."""
        begin = self._path_ends[file - 1] if file else 0
        return self._paths[begin : self._path_ends[file]].decode("utf-8", "surrogateescape")

    def file_of(self, block: int) -> int:
        """The file that a block is of."""
        return bisect_right(self._file_ends, block)

    def blocks_of(self, file: int) -> range:
        """The blocks of a file."""
        return range(self._file_ends[file - 1] if file else 0, self._file_ends[file])

    def size(self, file: int) -> int:
        """A file's length in bytes."""
        return sum(self._lengths[block] for block in self.blocks_of(file))

    def id(self, block: int) -> int:
        """A block's id, the same on every worker."""
        return self._ids[block]

    def length(self, block: int) -> int:
        """A block's length in bytes."""
        return self._lengths[block]

    def holders(self, block: int) -> frozenset[str]:
        """The workers that held a block when it was listed."""
        return self._holders[self._held_by[block]]

    def key(self, block: int) -> str:
        """A name of a block that is the same in every listing, unlike its id: path and offset."""
        return f"{self.path(self.file_of(block))}@{self._offsets[block]}"

    def block(self, number: int) -> Block:
        """A block as the engine wants it."""
        file = self.file_of(number)
        known = self._elsewhere.get(file)
        if known is None:
            prefix, mount_id = self._origin or ("", 0)
            known = (prefix + self.path(file), mount_id)
        return Block(
            id=self._ids[number],
            length=self._lengths[number],
            offset=self._offsets[number],
            source_path=known[0],
            mount_id=known[1],
            workers=self.holders(number),
        )

    def blocks(self, numbers: Iterable[int]) -> list[Block]:
        """Some blocks as the engine wants them."""
        return [self.block(number) for number in numbers]

    def ids(self, numbers: Sequence[int]) -> array[int]:
        """The ids of some blocks."""
        return array("q", (self._ids[number] for number in numbers))

    def _holder_number(self, workers: frozenset[str]) -> int:
        number = self._holder_numbers.get(workers)
        if number is None:
            number = self._holder_numbers[workers] = len(self._holders)
            self._holders.append(workers)
        return number

    def _note_origin(self, file: int, path: str, block: Block) -> None:
        if self._origin is None and block.source_path.endswith(path):
            self._origin = (block.source_path.removesuffix(path), block.mount_id)
        if self._origin != (block.source_path.removesuffix(path), block.mount_id) or not (
            block.source_path.endswith(path)
        ):
            self._elsewhere[file] = (block.source_path, block.mount_id)
