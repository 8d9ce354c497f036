"""Makes a manifest from a listing: files are taken in as they come, and written in order at the end.

Memory does not grow with the number of files when files for what is spilled are given: rows are sorted outside of it
(`tdcs.model.sorted_rows`), and each column is written to a file of its own before all are put together.
"""

import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from tdcs.model.file_blocks import NO_LARGE_FILE, WHOLE_BLOCKS, Cut, large_file
from tdcs.model.file_ids import FileIds
from tdcs.model.listing_limit import SourcesSize
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_columns import Columns, Sums
from tdcs.model.manifest_format import (
    COLUMNS,
    DIGEST_LENGTH,
    MAGIC,
    Header,
    Skipped,
    Totals,
    aligned,
    decoded,
)
from tdcs.model.slots import slot_of
from tdcs.model.sorted_rows import Row, Scratch, SortedRows

Write = Callable[[memoryview], object]

_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4000  # a symbolic link's target has at most 4,095 bytes, and begins with some `../`
_NAMED: Final = 100
"""How many of the skipped entries are named."""

_FOLDER: Final = -1
"""The length in a row that stands for a folder."""

_ID_MASK: Final = (1 << 63) - 1
_ID_STEP: Final = 0x1E3779B97F4A7C15


def own_block_id(file_id: bytes, number: int) -> int:
    """The id of a block: of the file's id and the block's number."""
    return own_block_after(int.from_bytes(file_id[:8], "little"), number)


def own_block_after(first: int, number: int) -> int:
    """The id of a block of a file, by that of the file's first one."""
    return (first + number * _ID_STEP) & _ID_MASK


class AbandonedError(Exception):
    """A manifest is not finished, because nobody needs it any more."""


class BuiltManifest(NamedTuple):
    """See `tdcs.listing.result.Listed`."""

    totals: Totals
    size: SourcesSize
    skipped_count: int
    skipped: tuple[Skipped, ...]


class ManifestBuilder:
    """Takes in the files of a listing, page by page, in any order.

    The same files give the same manifest, to the byte. Files that have one id, or blocks with one, are left out, all of
    them: nothing could tell the bytes of one from those of another.

    Args:
        source: URI of the mount's source.
        is_taken: says of a path whether the file is part of it; None: all are.
        cut: how files are cut into blocks.
        scratch: gives files for what does not stay in memory; None: all of it does, some 300 bytes a file.
        rows: takes the files in; None: one that is empty.
    """

    def __init__(
        self,
        *,
        path: str,
        source: str,
        scratch: Scratch | None = None,
        is_taken: Callable[[bytes], bool] | None = None,
        cut: Cut = WHOLE_BLOCKS,
        rows: SortedRows | None = None,
    ) -> None:
        self._is_taken: Final = is_taken
        self._cut: Final = cut
        self._path: Final = path
        self._source: Final = source
        self._scratch: Final = scratch
        self._file_ids: Final = FileIds(mount=path, source=source)
        self._rows: Final = SortedRows(scratch) if rows is None else rows
        self._last_folder = b""
        self._tag_width = 0
        self._skipped: Final[list[Skipped]] = []
        self._skipped_count = 0
        self._largest = NO_LARGE_FILE
        self._sums: Sums | None = None
        self._abandoned = False

    def __len__(self) -> int:
        """How many files and folders came so far."""
        return len(self._rows)

    def so_far(self) -> "ManifestBuilder":
        """A builder with what came until now. It may be finished in another thread while this one takes in more, but
        not while this one is finished."""
        builder = ManifestBuilder(
            path=self._path,
            source=self._source,
            scratch=self._scratch,
            cut=self._cut,
            rows=self._rows.so_far(),
        )
        builder._tag_width = self._tag_width
        return builder

    def add_listed(self, files: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Take in files as a source lists them: path, length, and tag (`tdcs.model.file_ids.known_tag`).

        Raises OSError when they cannot be spilled.
        """
        for path, length, tag in files:
            if self._is_taken is None or self._is_taken(path):
                self._add(path, length, tag)

    def _add(self, path: bytes, length: int, tag: bytes) -> None:
        folder, slash, name = path.rpartition(b"/")
        is_known_folder = folder == self._last_folder if folder else not slash
        if unfit := _unfit(folder, name, known=is_known_folder):
            self.leave_out(path, unfit)
            return
        if folder != self._last_folder:
            self._add_folders(folder)
        self._tag_width = max(self._tag_width, len(tag))
        self._rows.add((_key(folder, name), length, tag))

    def _add_folders(self, folder: bytes) -> None:
        """Note a folder where a file of its name would be, and those above it that the last one did not have."""
        last, self._last_folder = self._last_folder, folder
        while folder and not (last == folder or last.startswith(folder + b"/")):
            parent, _, name = folder.rpartition(b"/")
            self._rows.add((_key(parent, name), _FOLDER, b""))
            folder = parent

    def abandon(self) -> None:
        """Have `finish` end soon, in whichever thread it is."""
        self._abandoned = True

    def finish(self, write: Write) -> str:
        """Write the manifest piece by piece; its digest. The builder is of no use afterwards.

        Raises:
            AbandonedError: It was abandoned meanwhile.
        """
        refused: set[bytes] = set()
        try:
            while True:
                with Columns(self._scratch, tag_width=self._tag_width) as columns:
                    self._fill(columns, refused=refused)
                    equal_rows = columns.order()
                    if not equal_rows:
                        return self._put_together(columns, write)
                    # Once in the life of a universe, or where somebody has tried very hard.
                    equal_paths = columns.paths(equal_rows)
                    refused.update(equal_paths)
                    for path in sorted(equal_paths):
                        self.leave_out(path, "it has the id of another file")
        finally:
            self._rows.close()

    @property
    def summary(self) -> "BuiltManifest":
        """What is known of the manifest once it is finished, without reading it."""
        if self._sums is None:
            raise ValueError("the manifest is not finished")
        totals = self._sums.totals
        size = SourcesSize(
            # Limits count those, too, that no folder tree can hold.
            files=self._sums.counted + self._sums.folders + self._skipped_count,
            folders=self._sums.folders,
            bytes=totals.block_bytes,
            largest=self._largest,
        )
        return BuiltManifest(
            totals=totals,
            size=size,
            skipped_count=self._skipped_count,
            skipped=tuple(self._skipped),
        )

    def manifest(self) -> Manifest:
        content = bytearray()
        digest = self.finish(content.extend)
        return Manifest(bytes(content), digest=digest)

    def _fill(self, columns: "Columns", *, refused: Collection[bytes]) -> None:
        """Give all files to the columns, in their order."""
        count, of = 0, self._file_ids.of
        self._largest, self._sums = NO_LARGE_FILE, columns.sums
        folder_key: bytes | None = None
        folder = b""
        columns.folder(b"", first=0)
        for key, group in itertools.groupby(self._rows, key=lambda row: row[0]):
            if self._abandoned:
                raise AbandonedError
            row, is_folder = _last_file(group)
            if row is None:
                continue
            parent, _, name = key.partition(b"\0\0")
            if is_folder:
                # An object store can have both `a` and `a/b`, a file system cannot.
                if not refused:
                    path = key.replace(b"\0\0", b"/").replace(b"\0", b"/").lstrip(b"/")
                    self.leave_out(path, "a folder of the source has the same name")
                continue
            if parent != folder_key:
                _open_folders(columns, folder_key or b"", parent, first=count)
                folder_key, folder = parent, parent.replace(b"\0", b"/")
            path = folder + b"/" + name if folder else name
            if path in refused:
                continue
            _, length, tag = row
            file_id = of(path=path, length=length, tag=tag)
            columns.file(name, length, tag, file_id)
            if length > self._largest.size:
                self._largest = max(self._largest, large_file(length, path.decode("utf-8", "replace")))
            for number, block_length in enumerate(_block_lengths(length, self._cut)):
                columns.block(own_block_id(file_id, number), block_length, slot_of(path, number))
            columns.end_file()
            count += 1
        columns.end(files=count)

    def leave_out(self, path: bytes, reason: str) -> None:
        """Count an entry of the source among those that are no files of the version, and name the first of them."""
        self._skipped_count += 1
        if len(self._skipped) < _NAMED:
            self._skipped.append(Skipped(path=path, reason=reason))

    def _put_together(self, columns: "Columns", write: Write) -> str:
        digest = hashlib.sha256()

        def put(piece: bytes) -> None:
            if self._abandoned:
                raise AbandonedError
            digest.update(piece)
            write(memoryview(piece))

        header, places = self._header(sizes={name: columns.size(name) for name in COLUMNS})
        put(header)
        at = len(header)
        for name, (offset, length) in places.items():
            put(bytes(offset - at))
            at = offset + length
            for piece in columns.pieces(name):
                put(piece)
        return digest.hexdigest()[:DIGEST_LENGTH]

    def _header(self, *, sizes: dict[str, int]) -> tuple[bytes, dict[str, tuple[int, int]]]:
        def encode(places: dict[str, tuple[int, int]]) -> bytes:
            header = msgspec.msgpack.encode(
                Header(
                    path=self._path,
                    source=self._source,
                    tag_width=self._tag_width if sizes["tags"] else 0,
                    columns=places,
                    skipped_count=self._skipped_count,
                    skipped=tuple(self._skipped),
                )
            )
            return MAGIC + len(header).to_bytes(8, "little") + header

        # Offsets make the header longer and move by that: room for the longest numbers is left.
        at = aligned(len(encode(dict.fromkeys(COLUMNS, (1 << 60, 1 << 60)))))
        places = {}
        for name in COLUMNS:
            places[name] = (at, sizes[name])
            at = aligned(at + sizes[name])
        return encode(places), places


def _key(folder: bytes, name: bytes) -> bytes:
    """What files are ordered by: parts of the folder's path, then the name. No name holds a NUL, and none is empty."""
    return folder.replace(b"/", b"\0") + b"\0\0" + name


def _last_file(group: Iterable[Row]) -> tuple[Row | None, bool]:
    """Of the rows of one path the last one of a file, and whether there is a folder of this path."""
    row, is_folder = None, False
    for listed_row in group:
        if listed_row[1] == _FOLDER:
            is_folder = True
        else:
            row = listed_row
    return row, is_folder


def _open_folders(columns: Columns, last: bytes, folder: bytes, *, first: int) -> None:
    """Give the columns a folder, and before it those above it that came with no folder before. Both are keys."""
    parts = folder.split(b"\0") if folder else []
    open_parts = last.split(b"\0") if last else []
    shared = 0
    while shared < min(len(parts), len(open_parts)) and parts[shared] == open_parts[shared]:
        shared += 1
    for depth in range(shared + 1, len(parts) + 1):
        columns.folder(b"/".join(parts[:depth]), first=first)


def _block_lengths(length: int, cut: Cut) -> Iterable[int]:
    if 0 < length <= cut.whole:
        return (length,)
    return (min(cut.block, length - offset) for offset in range(0, length, cut.block))


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
