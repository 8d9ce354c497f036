"""The columns of a manifest while it is made: they grow file by file, and are put in order by id at the end."""

import io
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from tdcs.model.file_blocks import BLOCK_SIZE, block_count
from tdcs.model.file_folders import folder_count
from tdcs.model.file_ids import ID_BYTES
from tdcs.model.manifest import id_texts
from tdcs.model.manifest_format import COLUMNS, Totals
from tdcs.model.slots import SLOTS
from tdcs.model.sorted_rows import Scratch

_PIECE: Final = 1 << 20
_IN_ORDER: Final = 1 << 18
"""Ids that are put in order at a time."""
_FILES_HELD: Final = 1 << 14
"""Files of which the columns are in memory before they are written."""


class Sums:
    """What is added up while columns grow, see `tdcs.model.manifest_format.Totals` and `tdcs.model.listing_limit`."""

    def __init__(self) -> None:
        self.files = self.counted = self.folders = self.blocks = self.largest_block = 0
        self.slot_bytes: Final = [0] * SLOTS
        self.slot_files: Final = [0] * SLOTS

    @property
    def totals(self) -> Totals:
        return Totals(
            files=self.files,
            blocks=self.blocks,
            block_bytes=sum(self.slot_bytes),
            largest_block=self.largest_block,
            slot_bytes=np.array(self.slot_bytes, dtype="<i8").tobytes(),
            slot_files=np.array(self.slot_files, dtype="<u4").tobytes(),
        )


class Columns:
    """The columns of a manifest as they grow, each in a file of its own, or in memory.

    Args:
        scratch: gives the files; None: in memory.
    """

    def __init__(self, scratch: Scratch | None, *, tag_width: int) -> None:
        self._tag_width: Final = tag_width
        self._stack: Final = ExitStack()
        self._files: Final[dict[str, IO[bytes]]] = {
            name: self._stack.enter_context((scratch or io.BytesIO)()) for name in COLUMNS
        }
        self._text: Final = {name: bytearray() for name in ("folders", "names", "tags", "file_ids")}
        self._numbers: Final = {
            name: array(code)
            for name, code in (
                ("folder_ends", "Q"),
                ("folder_files", "I"),
                ("name_ends", "Q"),
                ("lengths", "q"),
                ("block_ends", "I"),
                ("block_ids", "q"),
                ("block_lengths", "q"),
                ("block_slots", "H"),
            )
        }
        # By names of their own: each is used once for each of millions of files.
        self._names, self._tags, self._file_ids = (self._text[name] for name in ("names", "tags", "file_ids"))
        self._name_ends, self._lengths, self._block_ends = (
            self._numbers[name] for name in ("name_ends", "lengths", "block_ends")
        )
        self._block_ids, self._block_lengths, self._block_slots = (
            self._numbers[name] for name in ("block_ids", "block_lengths", "block_slots")
        )
        self._folders_end = self._names_end = 0
        self._blocks = self._blocks_before = 0
        self._held = 0
        self.sums: Final = Sums()

    def __enter__(self) -> "Columns":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # What comes in order.

    def folder(self, path: bytes, *, first: int) -> None:
        """A further folder, and the number of its first file."""
        self._text["folders"] += path
        self._folders_end += len(path)
        self._numbers["folder_ends"].append(self._folders_end)
        self._numbers["folder_files"].append(first)
        if path:
            self.sums.folders += folder_count(len(path))

    def file(self, name: bytes, length: int, tag: bytes, file_id: bytes) -> None:
        """A further file of the last folder; its blocks follow, and `end_file`."""
        self._names += name
        self._names_end += len(name)
        self._name_ends.append(self._names_end)
        self._lengths.append(length)
        self._tags += tag.ljust(self._tag_width, b"\0")
        self._file_ids += file_id
        self.sums.files += 1
        self.sums.counted += 1 if length <= BLOCK_SIZE else block_count(length)

    def block(self, block_id: int, length: int, slot: int) -> None:
        self._block_ids.append(block_id)
        self._block_lengths.append(length)
        self._block_slots.append(slot)
        sums = self.sums
        sums.slot_bytes[slot] += length
        if self._blocks == self._blocks_before:
            sums.slot_files[slot] += 1
        if length > sums.largest_block:
            sums.largest_block = length
        self._blocks += 1

    def end_file(self) -> None:
        if self._blocks == self._blocks_before:
            self.sums.slot_files[0] += 1  # as in `Manifest.totals`
        self._block_ends.append(self._blocks)
        self._blocks_before = self.sums.blocks = self._blocks
        self._held += 1
        if self._held >= _FILES_HELD:
            self._flush()

    def end(self, *, files: int) -> None:
        self._numbers["folder_files"].append(files)
        self._flush()

    def _flush(self) -> None:
        for name, text in self._text.items():
            self._files[name].write(text)
            text.clear()
        for name, numbers in self._numbers.items():
            values = np.frombuffer(numbers, dtype=numbers.typecode).astype(COLUMNS[name], copy=False)
            self._files[name].write(values.tobytes())
            del values
            del numbers[:]
        self._held = 0

    # What follows from all of it.

    def order(self) -> set[int]:
        """Add the columns with the orders; numbers of the files that have an id, or a block with an id, of another."""
        same_files = self._order("file_ids", "file_order", width=ID_BYTES)
        same_blocks = self._order("block_ids", "block_order", width=8)
        if same_blocks:
            ends = np.frombuffer(self._read("block_ends"), dtype=COLUMNS["block_ends"])
            same_files |= set(np.searchsorted(ends, sorted(same_blocks), side="right").tolist())
        return same_files

    def _order(self, ids: str, order: str, *, width: int) -> set[int]:
        """Write the numbers of ids in the order of these; gives the numbers of those that are there more than once.

        Ids spread evenly over their values: a part of the values is taken at a time, as many ids as fit in memory.
        """
        count = self.size(ids) // width
        parts = max(-(-count // _IN_ORDER), 1)
        repeated: set[int] = set()
        for part in range(parts):
            chosen, numbers = [], []
            begin = 0
            for piece in self.pieces(ids, size=_IN_ORDER * width):
                values = np.frombuffer(piece, dtype=np.uint8).reshape(-1, width)
                # The highest bits, as both kinds of ids are ordered: bytes from the first, numbers from the last.
                leading = values[:, 0] if width == ID_BYTES else values[:, -1]
                second = values[:, 1] if width == ID_BYTES else values[:, -2]
                place = leading.astype(np.uint32) << 8 | second
                if width == 8:
                    place ^= 0x8000  # negative ids come first
                inside = np.flatnonzero(place * parts >> 16 == part)
                chosen.append(values[inside])
                numbers.append(inside + begin)
                begin += len(values)
            id_values = np.concatenate(chosen) if chosen else np.empty((0, width), dtype=np.uint8)
            of = np.concatenate(numbers) if numbers else np.empty(0, dtype=np.int64)
            keys: npt.NDArray[Any] = (
                id_texts(id_values)
                if width == ID_BYTES
                else np.ascontiguousarray(id_values).view("<i8").reshape(-1)
            )
            in_order = np.argsort(keys, kind="stable")
            equal = np.flatnonzero(keys[in_order[1:]] == keys[in_order[:-1]])
            repeated.update(of[in_order[np.concatenate((equal, equal + 1))]].tolist())
            self._files[order].write(of[in_order].astype(COLUMNS[order]).tobytes())
        return repeated

    def paths(self, files: set[int]) -> set[bytes]:
        """The paths of some files, for a case that never comes: columns are read whole."""
        folder_ends = np.frombuffer(self._read("folder_ends"), dtype="<u8")
        folder_files = np.frombuffer(self._read("folder_files"), dtype="<u4")
        name_ends = np.frombuffer(self._read("name_ends"), dtype="<u8")
        folders, names = self._read("folders"), self._read("names")
        paths = set()
        for file in files:
            folder = int(np.searchsorted(folder_files, file, side="right")) - 1
            path = folders[int(folder_ends[folder - 1]) if folder else 0 : int(folder_ends[folder])]
            name = names[int(name_ends[file - 1]) if file else 0 : int(name_ends[file])]
            paths.add(path + b"/" + name if path else name)
        return paths

    def size(self, name: str) -> int:
        return self._files[name].seek(0, 2)

    def pieces(self, name: str, *, size: int = _PIECE) -> Iterator[bytes]:
        file, at = self._files[name], 0
        while True:
            file.seek(at)
            piece = file.read(size)
            if not piece:
                break
            at += len(piece)
            yield piece
        file.seek(0, 2)

    def _read(self, name: str) -> bytes:
        return b"".join(self.pieces(name))
