"""The manifest: the immutable table of one version of a dataset, with its files, blocks, lengths, tags and slots.

A manifest is one file of columns, named by its digest (the first 32 hexadecimal digits of the SHA-256 of its content).
It is read in place: `Manifest` takes the content as a buffer, usually a memory map, and copies nothing, so a manifest
of a million files opens in milliseconds. `tdcs.model.manifest_builder` makes one from a listing, `tdcs.listing`
stores, opens and transfers them. This module does no I/O.

`tdcs.model.manifest_format` has the format.

Each file has an id of its own (`tdcs.model.file_ids`), which it keeps from version to version while its path, length
and tag stay: `file_ids`, `file_id`, `files_at`. The blocks next to them are those of the cache's master, and of one
mount of it only.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tdcs.model.file_ids import ID_BYTES
from tdcs.model.manifest_format import (
    ALIGNMENT,
    COLUMNS,
    FORMAT,
    MAGIC,
    BadManifestError,
    Header,
    Totals,
    aligned,
    encoded,
)
from tdcs.model.near_path import PATHS_NAMED, near_path
from tdcs.model.slots import SLOTS

_STRETCH = 1 << 17
"""Files that are added up at a time, so that sums take no memory for each file."""
_MANY = 16
"""Of ids that are asked for: a part of the blocks that is larger than one in so many."""
_FEW = 4096
"""One that is smaller than one in so many: they are looked up one by one."""


class Manifest:
    """The files of one version, ordered by folder and name. A file and a block are known by their numbers.

    Folders are in the order of their paths' parts, so a folder and all that is below it are one range of files.
    The columns are numpy arrays on the buffer, which lives as long as any of them. Safe to read from many threads.

    Args:
        content: all of it.
        digest: its name; it is not compared with the content here (`tdcs.listing` does when it gets a file).

    Raises:
        BadManifestError: The content is no manifest of this format, or was cut off.
    """

    folder_files: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.int64]
    file_ids: npt.NDArray[np.uint8]
    """A row of 16 bytes for each file."""
    block_ends: npt.NDArray[np.uint32]
    block_ids: npt.NDArray[np.int64]
    block_lengths: npt.NDArray[np.int64]
    block_slots: npt.NDArray[np.uint16]

    def __init__(self, content: Any, *, digest: str) -> None:
        view = memoryview(content).cast("B")
        self.digest: Final = digest
        self.header: Final = _header(view)
        self._check_places()
        columns = {name: self._column(view, name=name) for name in COLUMNS}
        self._folders: Final = columns["folders"]
        self._folder_ends: Final = columns["folder_ends"]
        self.folder_files = columns["folder_files"]
        # Not as arrays: one number or name is taken of them at a time, which is three times as fast this way.
        self._folder_firsts: Final = self.folder_files.data
        self._names: Final = columns["names"].data
        ends = columns["name_ends"].view(np.uint8).data
        self._name_ends: Final = ends.cast("Q") if len(ends) else ends
        self.lengths = columns["lengths"]
        self._tags: Final = columns["tags"]
        self._ids: Final = columns["file_ids"]
        self._id_order: Final = columns["file_order"]
        self.block_ends = columns["block_ends"]
        self._block_ends: Final = self.block_ends.data
        self.block_ids = columns["block_ids"]
        self.block_lengths = columns["block_lengths"]
        self.block_slots = columns["block_slots"]
        self._block_order: Final = columns["block_order"]
        self._block_ids: Final = self.block_ids.data
        self._order_of_ids: Final = self._block_order.data
        self._check()
        self.file_ids = self._ids.reshape(-1, ID_BYTES)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def path(self) -> str:
        return self.header.path

    @property
    def blocks(self) -> int:
        return len(self.block_ids)

    # Files.

    @cached_property
    def folders(self) -> list[bytes]:
        """Full paths of all folders, the mount's own (`b""`) first, parents before what is in them."""
        text, ends = self._folders.tobytes(), self._folder_ends.tolist()
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    @property
    def folder_lengths(self) -> npt.NDArray[np.uint64]:
        """Bytes of the paths of all folders, in the same order."""
        return np.diff(self._folder_ends, prepend=np.uint64(0))

    def in_folder(self, folder: int) -> range:
        return range(int(self.folder_files[folder]), int(self.folder_files[folder + 1]))

    def folder_of(self, file: int) -> int:
        return bisect_right(self._folder_firsts, file) - 1

    def name(self, file: int) -> bytes:
        ends = self._name_ends
        return bytes(self._names[ends[file - 1] if file else 0 : ends[file]])

    def file_path(self, file: int) -> bytes:
        folder = self.folders[self.folder_of(file)]
        return folder + b"/" + self.name(file) if folder else self.name(file)

    def entries(self, files: Iterable[int]) -> Iterator[tuple[int, bytes, bytes]]:
        folder, below = 0, range(0)
        for file in files:
            if file not in below:
                folder = self.folder_of(file)
                below = self.in_folder(folder)
            yield int(file), self.folders[folder], self.name(file)

    def find(self, *, folder: int, name: bytes) -> int | None:
        low, high = self._folder_firsts[folder], self._folder_firsts[folder + 1]
        end, names, ends = high, self._names, self._name_ends
        while low < high:
            middle = (low + high) // 2
            if bytes(names[ends[middle - 1] if middle else 0 : ends[middle]]) < name:
                low = middle + 1
            else:
                high = middle
        return low if low < end and self.name(low) == name else None

    def folder_at(self, path: bytes) -> int | None:
        return self._folder_numbers.get(path)

    def file_at(self, path: bytes) -> int | None:
        parent, _, name = path.rpartition(b"/")
        folder = self._folder_numbers.get(parent)
        return None if folder is None else self.find(folder=folder, name=name)

    def tag(self, file: int) -> str:
        """What a source says of the content: for S3 the ETag as in its header, quotes included; else `mtime-ms`.

        Empty when the source gave none.
        """
        width = self.header.tag_width
        return (
            self._tags[file * width : (file + 1) * width].tobytes().rstrip(b"\0").decode("utf-8", "replace")
        )

    def tags(self) -> npt.NDArray[np.bytes_]:
        """The tags of all files, as they are in the column."""
        width = self.header.tag_width
        return self._tags.view(f"S{width}") if width else np.zeros(len(self), dtype="S1")

    def file_id(self, file: int) -> bytes:
        return self._ids[file * ID_BYTES : (file + 1) * ID_BYTES].tobytes()

    def file_with(self, file_id: bytes) -> int | None:
        """The file with this id; None when it is not in this version."""
        number = int(self.files_at(np.frombuffer(file_id, dtype=np.uint8).reshape(1, ID_BYTES))[0])
        return None if number < 0 else number

    def files_at(self, file_ids: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Numbers of the files with these ids, a row of 16 bytes each; -1 for ids that are not in this version."""
        texts = id_texts(file_ids)
        if not len(self):
            return np.full(len(texts), -1, dtype=np.int64)
        ascending = np.argsort(
            texts, kind="stable"
        )  # a search that jumps through the columns takes far longer
        own_texts = id_texts(self.file_ids)
        if len(texts) * _MANY > len(self):  # a copy of all ids in order is worth its making
            places = np.searchsorted(own_texts[self._id_order], texts[ascending])
        else:
            places = np.searchsorted(own_texts, texts[ascending], sorter=self._id_order)
        numbers = self._id_order[np.minimum(places, len(self) - 1)].astype(np.int64)
        files = np.empty(len(texts), dtype=np.int64)
        files[ascending] = np.where(own_texts[numbers] == texts[ascending], numbers, -1)
        return files

    # Blocks.

    def blocks_of(self, file: int) -> range:
        """Numbers of a file's blocks. None for an empty file."""
        return range(int(self.block_ends[file - 1]) if file else 0, int(self.block_ends[file]))

    def file_of(self, block: int) -> int:
        return bisect_right(self._block_ends, block)

    def files_of(self, blocks: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        # Of one type: numpy would copy the whole column for a few blocks of another one.
        numbers = blocks.astype(self.block_ends.dtype)
        return np.searchsorted(self.block_ends, numbers, side="right").astype(np.int64, copy=False)

    def offset(self, block: int) -> int:
        """Where a block begins in its file, in bytes."""
        first = self.blocks_of(self.file_of(block)).start
        return int(self.block_lengths[first:block].sum())

    def block_at(self, block_id: int) -> int | None:
        ids, order = self._block_ids, self._order_of_ids
        place = bisect_left(order, block_id, key=ids.__getitem__)
        return order[place] if place < len(order) and ids[order[place]] == block_id else None

    def blocks_at(self, block_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of the blocks of these ids; -1 for ids that are not in this version."""
        if not self.blocks:
            return np.full(len(block_ids), -1, dtype=np.int64)
        if len(block_ids) * _FEW < self.blocks:  # numpy would copy the column of their order
            numbers_of = map(self.block_at, block_ids.tolist())
            return np.array([-1 if number is None else number for number in numbers_of], dtype=np.int64)
        # In order: a search that jumps through the columns takes ten times as long.
        ascending = np.argsort(block_ids)
        ascending_ids = np.asarray(block_ids)[ascending]
        if len(ascending_ids) * _MANY > self.blocks:  # a copy of all ids in order is worth its making
            places = np.searchsorted(self.block_ids[self._block_order], ascending_ids)
        else:
            places = np.searchsorted(self.block_ids, ascending_ids, sorter=self._block_order)
        numbers = self._block_order[np.minimum(places, self.blocks - 1)].astype(np.int64)
        block_numbers = np.empty(len(ascending_ids), dtype=np.int64)
        block_numbers[ascending] = np.where(self.block_ids[numbers] == ascending_ids, numbers, -1)
        return block_numbers

    def blocks_among(
        self, block_ids: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which of these ids, ascending and each once, are in this version: their places, and the blocks' numbers.

        It takes as long as the smaller side has ids, and no memory that grows with a large version.
        """
        none = np.zeros(0, dtype=np.int64)
        if not self.blocks or not len(block_ids):
            return none, none
        order = self._block_order
        if self.blocks <= len(block_ids) * _MANY:  # a copy of all ids in order is worth its making
            mine = self.block_ids[order]
            if len(mine) <= len(block_ids):
                places = np.minimum(np.searchsorted(block_ids, mine), len(block_ids) - 1)
                is_same = block_ids[places] == mine
                return places[is_same].astype(np.int64), order[is_same].astype(np.int64)
            last = np.maximum(np.searchsorted(mine, block_ids, side="right") - 1, 0)
        else:
            last = self._last_up_to(block_ids)
        numbers = order[last].astype(np.int64)
        places = np.flatnonzero(self.block_ids[numbers] == block_ids)
        return places, numbers[places]

    def _last_up_to(self, block_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The place, in the order of ids, of the last one that is no higher than each of these; by halving, since
        numpy's own search copies the whole order."""
        places, span = np.zeros(len(block_ids), dtype=np.int64), self.blocks
        while span > 1:
            half = span // 2
            probe = places + half
            places = np.where(self.block_ids[self._block_order[probe]] <= block_ids, probe, places)
            span -= half
        return places

    def names_in(self, folder: int, *, most: int) -> list[bytes]:
        """The first names of folders and of files that are directly in a folder, each at most so many."""
        names: list[bytes] = []
        next_folder = folder + 1
        prefix = len(self.folders[folder]) + 1 if self.folders[folder] else 0
        while next_folder < self._below(folder) and len(names) < most:
            names.append(self.folders[next_folder][prefix:])
            next_folder = self._below(next_folder)
        return names + [self.name(file) for file in self.in_folder(folder)[:most]]

    # Sums and selections.

    def file_ranges(self, paths: Sequence[str]) -> list[tuple[int, int]]:
        """Files under any of these paths, as ranges that are ascending and apart. No paths: all files."""
        plain = [path.strip("/") for path in paths]
        if not any(plain):
            return [(0, len(self))]
        ranges: list[tuple[int, int]] = []
        for path in filter(None, plain):
            raw = encoded(path)
            folder, file = self.folder_at(raw), self.file_at(raw)
            if folder is not None:
                ranges.append((int(self.folder_files[folder]), int(self.folder_files[self._below(folder)])))
            elif file is not None:
                ranges.append((file, file + 1))
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(ranges):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged

    def selected(self, paths: Sequence[str]) -> tuple[npt.NDArray[np.bool_], tuple[str, ...]]:
        """Files under any of these paths (folders or files), and the paths that name nothing. No paths: all files."""
        plain = [path.strip("/") for path in paths]
        if not any(plain):
            return np.ones(len(self), dtype=np.bool_), ()
        chosen = np.zeros(len(self), dtype=np.bool_)
        unknown = []
        for path in filter(None, plain):
            raw = encoded(path)
            folder, file = self.folder_at(raw), self.file_at(raw)
            if folder is not None:
                chosen[self.folder_files[folder] : self.folder_files[self._below(folder)]] = True
            elif file is not None:
                chosen[file] = True
            else:
                unknown.append(path)
        return chosen, tuple(unknown)

    def blocks_in(self, files: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The blocks of some files, given and answered as a boolean for each file and each block."""
        return np.repeat(files, np.diff(self.block_ends, prepend=np.uint32(0)))

    def totals(self, paths: Sequence[str] = ()) -> Totals:
        """Sums over the files under these paths; over all without paths. Some 20 ms for a million files."""
        chosen, unknown = self.selected(paths) if any(path.strip("/") for path in paths) else (None, ())
        slot_bytes, slot_files = np.zeros(SLOTS, dtype=np.int64), np.zeros(SLOTS, dtype=np.int64)
        files = blocks = largest = 0
        for begin in range(0, len(self), _STRETCH):
            ends = self.block_ends[begin : begin + _STRETCH].astype(np.int64)
            first = int(self.block_ends[begin - 1]) if begin else 0
            begins = np.concatenate(([first], ends[:-1]))
            lengths = self.block_lengths[first : int(ends[-1])]
            slots = self.block_slots[first : int(ends[-1])]
            count, with_blocks = len(ends), ends > begins
            if chosen is not None:
                mask = chosen[begin : begin + _STRETCH]
                of_blocks = np.repeat(mask, ends - begins)
                lengths, slots, count = lengths[of_blocks], slots[of_blocks], int(mask.sum())
                with_blocks &= mask
            slot_bytes += _sums(slots, lengths)
            in_slots = self.block_slots[begins[with_blocks]]
            slot_files += np.bincount(in_slots, minlength=SLOTS)
            # Files without blocks count in slot 0: there is nothing to hold, they are had wherever anything is.
            slot_files[0] += count - len(in_slots)
            files, blocks = files + count, blocks + len(lengths)
            largest = max(largest, int(lengths.max()) if len(lengths) else 0)
        return Totals(
            files=files,
            blocks=blocks,
            block_bytes=int(slot_bytes.sum()),
            largest_block=largest,
            slot_bytes=slot_bytes.astype("<i8").tobytes(),
            slot_files=slot_files.astype("<u4").tobytes(),
            unknown_paths=unknown,
            near_paths=tuple(near_path(self, path) for path in unknown[:PATHS_NAMED]),
        )

    # Inside.

    @cached_property
    def _folder_numbers(self) -> dict[bytes, int]:
        return {folder: number for number, folder in enumerate(self.folders)}

    def _below(self, folder: int) -> int:
        """Number of the folder behind the last one that is below this one."""
        within = self.folders[folder] + b"/"
        low, high = folder + 1, len(self.folders)
        while low < high:
            middle = (low + high) // 2
            if self.folders[middle].startswith(within):
                low = middle + 1
            else:
                high = middle
        return low if self.folders[folder] else len(self.folders)

    def _check_places(self) -> None:
        """That the columns follow each other without a gap: one at another place would be read as numbers that no
        other column knows."""
        places = self.header.columns
        if places.keys() != COLUMNS.keys():
            raise BadManifestError(
                f"manifest {self.digest}: its header names other columns than format {FORMAT} has"
            )
        end = 0
        for name in COLUMNS:
            offset, length = places[name]
            if offset % ALIGNMENT or (end and offset != aligned(end)):
                raise BadManifestError(
                    f"manifest {self.digest}: column {name} is not behind the one before it"
                )
            end = offset + length

    def _column(self, view: memoryview, *, name: str) -> npt.NDArray[Any]:
        kind = np.dtype(COLUMNS[name])
        offset, length = self.header.columns.get(name, (0, -1))
        if length < 0 or offset < 0 or offset + length > len(view) or length % kind.itemsize:
            raise BadManifestError(f"manifest {self.digest}: column {name} is not where its header says")
        return np.frombuffer(view, dtype=kind, count=length // kind.itemsize, offset=offset)

    def _check(self) -> None:
        """That the columns fit each other; their content is covered by the digest."""
        files, blocks = len(self.lengths), len(self.block_ids)
        fits = (
            len(self.folder_files) == len(self._folder_ends) + 1 >= 2
            and int(self.folder_files[-1]) == files
            and len(self._name_ends) == files == len(self.block_ends)
            and len(self._tags) == files * self.header.tag_width
            and len(self._ids) == files * ID_BYTES
            and len(self._id_order) == files
            and len(self.block_lengths) == len(self.block_slots) == len(self._block_order) == blocks
            and (int(self.block_ends[-1]) if files else 0) == blocks
            and (self._name_ends[-1] if files else 0) == len(self._names)
            and int(self._folder_ends[-1]) == len(self._folders)
        )
        if not fits:
            raise BadManifestError(f"manifest {self.digest}: its columns do not fit each other")


def id_texts(file_ids: npt.NDArray[np.uint8]) -> npt.NDArray[np.bytes_]:
    """Rows of 16 bytes as values that can be ordered and compared, as bytes are."""
    return np.ascontiguousarray(file_ids).view(f"S{ID_BYTES}").reshape(-1)


def _header(view: memoryview) -> Header:
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise BadManifestError(f"not a manifest of format {FORMAT}")
    length = int.from_bytes(view[8:16], "little")
    if 16 + length > len(view):
        raise BadManifestError("a manifest that was cut off in its header")
    try:
        return msgspec.msgpack.decode(view[16 : 16 + length], type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadManifestError(f"a manifest with a header that cannot be read: {error}") from error


def _sums(slots: npt.NDArray[np.uint16], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Exact sums by slot (`bincount` alone adds up in floating point)."""
    high = np.bincount(slots, weights=lengths >> 32, minlength=SLOTS).astype(np.int64)
    low = np.bincount(slots, weights=lengths & 0xFFFFFFFF, minlength=SLOTS).astype(np.int64)
    return (high << 32) + low
