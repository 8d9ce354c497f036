"""Makes a manifest from the pages of a listing: columns grow as files come, and are put in order at the end."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tdcs.model.cache_engine import CachedFile
from tdcs.model.file_ids import ID_BYTES, FileIds, known_tag
from tdcs.model.manifest import Manifest, id_texts
from tdcs.model.manifest_format import (
    ALIGNMENT,
    COLUMNS,
    DIGEST_LENGTH,
    MAGIC,
    Header,
    Skipped,
    decoded,
    encoded,
)
from tdcs.model.slots import slot_of

Write = Callable[[memoryview], object]

_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4000  # a symbolic link's target has at most 4,095 bytes, and begins with some `../`
_NAMED: Final = 100
"""How many of the skipped entries are named."""

_STRETCH: Final = 1 << 16
"""Files that get their names in order at once: the indices take eight bytes for each byte of a name."""


class ManifestBuilder:
    """Takes in the files of a listing, page by page, in any order. A million files take some 100 MB meanwhile.

    The same files give the same manifest, to the byte. Files that have one id are left out, all of them: nothing
    could tell the bytes of one from those of another.

    Args:
        source: URI of the mount's source.
    """

    def __init__(self, *, path: str, source: str) -> None:
        self._path: Final = path
        self._source: Final = source
        self._file_ids: Final = FileIds(mount=path, source=source)
        self._mount_id = 0
        self._folders: Final[dict[bytes, int]] = {b"": 0}
        self._last: Final = [b""]
        self._unsorted: Final[set[int]] = set()
        self._file_folders: Final = array("I")
        self._names = bytearray()
        self._name_lengths: Final = array("H")
        self._lengths: Final = array("q")
        self._tags = bytearray()
        self._tag_lengths: Final = array("B")
        self._ids = bytearray()
        self._block_counts: Final = array("I")
        self._block_ids: Final = array("q")
        self._block_lengths: Final = array("q")
        self._block_slots: Final = array("H")
        self._skipped: Final[list[Skipped]] = []
        self._skipped_count = 0
        self._incomplete = 0

    def add(self, files: Iterable[CachedFile]) -> None:
        for file in files:
            path = encoded(file.path)
            folder, _, name = path.rpartition(b"/")
            number = self._folders.get(folder)
            if unfit := _unfit(folder, name, known=number is not None):
                self._skip(path, unfit)
                continue
            if number is None:
                number = self._folder(folder)
            if name <= self._last[number]:
                self._unsorted.add(number)
            self._last[number] = name
            self._file_folders.append(number)
            self._names += name
            self._name_lengths.append(len(name))
            self._lengths.append(file.length)
            tag = known_tag(file.tag).encode("utf-8", "replace")
            self._tags += tag
            self._tag_lengths.append(len(tag))
            self._ids += self._file_ids.of(path=path, length=file.length, tag=tag)
            self._add_blocks(file, path)

    def _add_blocks(self, file: CachedFile, path: bytes) -> None:
        offset = 0
        for block in file.blocks:
            if block.offset != offset:
                break
            offset += block.length
        if offset != file.length:  # the master does not know all of its blocks
            self._incomplete += 1
            self._block_counts.append(0)
            return
        self._block_counts.append(len(file.blocks))
        for number, block in enumerate(file.blocks):
            self._mount_id = self._mount_id or block.mount_id
            self._block_ids.append(block.id)
            self._block_lengths.append(block.length)
            self._block_slots.append(slot_of(path, number))

    def finish(self, write: Write) -> str:
        """Write the manifest piece by piece; its digest. The builder is of no use afterwards."""
        digest = hashlib.sha256()

        def put(piece: memoryview) -> None:
            digest.update(piece)
            write(piece)

        for piece in self._pieces():
            put(memoryview(piece).cast("B") if len(piece) else memoryview(b""))
        return digest.hexdigest()[:DIGEST_LENGTH]

    def manifest(self) -> Manifest:
        content = bytearray()
        digest = self.finish(content.extend)
        return Manifest(bytes(content), digest=digest)

    def _folder(self, folder: bytes) -> int:
        found = self._folders.get(folder)
        if found is None:
            if folder:
                self._folder(folder.rpartition(b"/")[0])  # parents have an entry, too
            found = self._folders[folder] = len(self._folders)
            self._last.append(b"")
        return found

    def _skip(self, path: bytes, reason: str) -> None:
        self._skipped_count += 1
        if len(self._skipped) < _NAMED:
            self._skipped.append(Skipped(path=path, reason=reason))

    def _pieces(self) -> Iterator[Any]:
        folders = sorted(self._folders, key=_parts)
        order, of_file = self._order(folders)
        order, of_file, file_ids, by_id = self._without_collisions(order, of_file, folders)
        whole = len(order) == len(self._lengths) and bool((order[1:] > order[:-1]).all())
        name_lengths = np.asarray(self._name_lengths, dtype=np.int64)
        counts = np.asarray(self._block_counts, dtype=np.int64)
        blocks = None if whole else _positions(counts, order)
        ids = _taken(self._block_ids, blocks, dtype="<i8")
        folder_lengths = np.fromiter((len(folder) for folder in folders), dtype=np.uint64, count=len(folders))
        width = max(self._tag_lengths, default=0)
        fixed: dict[str, npt.NDArray[Any]] = {
            "folders": np.frombuffer(b"".join(folders), dtype=np.uint8),
            "folder_ends": np.cumsum(folder_lengths).astype("<u8"),
            "folder_files": np.searchsorted(of_file, np.arange(len(folders) + 1)).astype("<u4"),
            "name_ends": np.cumsum(name_lengths[order]).astype("<u8"),
            "lengths": _taken(self._lengths, order, dtype="<i8"),
            "file_ids": file_ids.reshape(-1),
            "file_order": by_id.astype("<u4"),
            "block_ends": np.cumsum(counts[order]).astype("<u4"),
            "block_ids": ids,
            "block_lengths": _taken(self._block_lengths, blocks, dtype="<i8"),
            "block_slots": _taken(self._block_slots, blocks, dtype="<u2"),
            "block_order": np.argsort(ids, kind="stable").astype("<u4"),
        }
        sizes = {name: column.nbytes for name, column in fixed.items()}
        sizes["names"] = int(name_lengths[order].sum())
        sizes["tags"] = len(order) * width
        header, places = self._header(sizes=sizes, tag_width=width)
        yield header
        at = len(header)
        for name, (offset, length) in places.items():
            yield bytes(offset - at)
            at = offset + length
            if name == "names":
                yield from _texts(self._names, self._name_lengths, order, whole=whole, width=None)
            elif name == "tags":
                yield from _texts(self._tags, self._tag_lengths, order, whole=whole, width=width)
            else:
                yield fixed.pop(name)

    def _order(self, folders: list[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Numbers of the files that are kept, in their final order, and the folder's place for each of them."""
        places = np.empty(len(folders), dtype=np.int64)
        places[[self._folders[folder] for folder in folders]] = np.arange(len(folders))
        of_file = places[np.asarray(self._file_folders, dtype=np.int64)]
        order = np.argsort(of_file, kind="stable")
        starts = np.searchsorted(of_file[order], np.arange(len(folders) + 1))
        ends = np.cumsum(np.asarray(self._name_lengths, dtype=np.int64))
        kept = np.ones(len(order), dtype=np.bool_)

        def name(file: int) -> bytes:
            return bytes(self._names[ends[file] - self._name_lengths[file] : ends[file]])

        for number in self._unsorted:
            low, high = starts[places[number]], starts[places[number] + 1]
            by_name = sorted(order[low:high].tolist(), key=name)
            order[low:high] = by_name
            for place in range(len(by_name) - 1):
                if name(by_name[place]) == name(by_name[place + 1]):
                    kept[low + place] = False  # of two of one name the later one counts
        for folder in folders[1:]:
            # An object store can have both `a` and `a/b`, a file system cannot.
            parent, _, own = folder.rpartition(b"/")
            low, high = (int(starts[places[self._folders[parent]] + more]) for more in (0, 1))
            for place in range(_first(order, low, high, own, name), high):
                if name(order[place]) != own:
                    break
                if kept[place]:
                    self._skip(folder, "a folder of the source has the same name")
                kept[place] = False
        order = order[kept]
        return order, of_file[order]

    def _without_collisions(
        self, order: npt.NDArray[np.int64], of_file: npt.NDArray[np.int64], folders: list[bytes]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The files without those of which another one has the id, the place of the folder and the id of each, and
        their numbers, ordered by id."""
        ids = np.frombuffer(self._ids, dtype=np.uint8).reshape(-1, ID_BYTES)[order]
        texts = id_texts(ids)
        by_id = np.argsort(texts, kind="stable")
        same = np.flatnonzero(texts[by_id[1:]] == texts[by_id[:-1]])
        if not len(same):
            return order, of_file, ids, by_id
        ends = np.cumsum(np.asarray(self._name_lengths, dtype=np.int64))
        kept = np.ones(len(order), dtype=np.bool_)
        for place in np.unique(by_id[np.concatenate((same, same + 1))]).tolist():
            kept[place] = False
            file, folder = order[place], folders[of_file[place]]
            name = bytes(self._names[ends[file] - self._name_lengths[file] : ends[file]])
            self._skip(folder + b"/" + name if folder else name, "it has the id of another file")
        order, of_file, ids = order[kept], of_file[kept], ids[kept]
        return order, of_file, ids, np.argsort(id_texts(ids), kind="stable")

    def _header(self, *, sizes: dict[str, int], tag_width: int) -> tuple[bytes, dict[str, tuple[int, int]]]:
        def encode(places: dict[str, tuple[int, int]]) -> bytes:
            header = msgspec.msgpack.encode(
                Header(
                    path=self._path,
                    source=self._source,
                    mount_id=self._mount_id,
                    tag_width=tag_width,
                    columns=places,
                    skipped_count=self._skipped_count,
                    skipped=tuple(self._skipped),
                    incomplete=self._incomplete,
                )
            )
            return MAGIC + len(header).to_bytes(8, "little") + header

        # Offsets make the header longer and move by that: room for the longest numbers is left.
        at = _aligned(len(encode(dict.fromkeys(COLUMNS, (1 << 60, 1 << 60)))))
        places = {}
        for name in COLUMNS:
            places[name] = (at, sizes[name])
            at = _aligned(at + sizes[name])
        return encode(places), places


def _unfit(folder: bytes, name: bytes, *, known: bool) -> str:
    """Why a file system cannot hold a file of this path; empty when it can. A folder that is `known` can be held."""
    if len(folder) + len(name) >= _LONGEST_PATH:
        return f"its path is longer than {_LONGEST_PATH} bytes"
    if b"\0" in name or b"\0" in folder:
        return "its name holds a NUL"
    for part in (name,) if known else (*folder.split(b"/"), name):
        if part in (b"", b".", b".."):
            return f"a part of its path is {decoded(part)!r}"
        if len(part) > _LONGEST_NAME:
            return f"a part of its path is longer than {_LONGEST_NAME} bytes"
    return ""


def _parts(folder: bytes) -> bytes:
    # Parts of paths in order: `a`, `a/b`, `a-c`. No name holds the NUL.
    return folder.replace(b"/", b"\0")


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _first(
    order: npt.NDArray[np.int64], low: int, high: int, wanted: bytes, name: Callable[[int], bytes]
) -> int:
    """The first place from `low` to `high` with a file that is not before `wanted`."""
    while low < high:
        middle = (low + high) // 2
        if name(order[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _positions(counts: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the items of files lie, when each file has `counts` of them and files are taken in `order`."""
    begins = np.cumsum(counts) - counts
    taken = counts[order]
    shifts = begins[order] - (np.cumsum(taken) - taken)
    return np.repeat(shifts, taken) + np.arange(int(taken.sum()))


def _taken(column: "array[int]", which: npt.NDArray[np.int64] | None, *, dtype: str) -> npt.NDArray[Any]:
    values = np.asarray(column)
    return (values if which is None else values[which]).astype(dtype, copy=False)


def _texts(
    text: bytearray,
    lengths: "array[int]",
    order: npt.NDArray[np.int64],
    *,
    whole: bool,
    width: int | None,
) -> Iterator[bytes | memoryview]:
    """Texts in their final order, each filled up with zeros to `width` bytes, in pieces."""
    sizes = np.asarray(lengths, dtype=np.int64)
    if whole and (width is None or bool((sizes == width).all())):
        yield memoryview(text)
        return
    characters = np.frombuffer(text, dtype=np.uint8)
    for begin in range(0, len(order), _STRETCH):
        files = order[begin : begin + _STRETCH]
        low, high = int(files.min()), int(files.max()) + 1
        within = _positions(sizes[low:high], files - low) + int(sizes[:low].sum())
        if width is None:
            yield characters[within].tobytes()
            continue
        filled = np.zeros((len(files), width), dtype=np.uint8)
        filled[np.arange(width)[None, :] < sizes[files][:, None]] = characters[within]
        yield filled.tobytes()
