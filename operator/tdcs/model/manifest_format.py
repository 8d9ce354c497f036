"""The format of a manifest's file, its header, and the sums over its files that decisions need.

All numbers are little-endian: eight bytes `TDCSMAN` and the format's number, the length of the header (u64), the header
(msgpack, `Header`), then the columns, each at a multiple of 64 bytes, at the places that the header names.
"""

from functools import cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tdcs.model.slots import SLOTS, Sizes

FORMAT: Final = 2
MAGIC: Final = b"TDCSMAN" + bytes([FORMAT])
ALIGNMENT: Final = 64
DIGEST_LENGTH: Final = 32

COLUMNS: Final = {
    "folders": "u1",
    "folder_ends": "<u8",
    "folder_files": "<u4",
    "names": "u1",
    "name_ends": "<u8",
    "lengths": "<i8",
    "tags": "u1",
    "file_ids": "u1",
    "file_order": "<u4",
    "block_ends": "<u4",
    "block_ids": "<i8",
    "block_lengths": "<i8",
    "block_slots": "<u2",
    "block_order": "<u4",
}
"""The columns and their types, in their order in the file.

folders, folder_ends: full paths of the folders one after the other, and where each ends.
folder_files: number of the first file of each folder, and at the end the number of files.
names, name_ends: the files' own names, and where each ends.
lengths: bytes of each file.
tags: `Header.tag_width` bytes a file, zeros behind shorter ones; see `tdcs.model.file_ids.known_tag`.
file_ids: 16 bytes a file, in the order of the files, see `tdcs.model.file_ids`; no two files have the same.
file_order: numbers of the files, ordered by id, as bytes are.
block_ends: number of the block behind the last one of each file.
block_ids, block_lengths, block_slots: of each block, in the order of the files.
block_order: numbers of the blocks, ordered by id.
"""


def aligned(offset: int) -> int:
    """The first place for a column at or behind this offset."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class BadManifestError(ValueError):
    """The content is no manifest of this format, or is damaged."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the source that no file system could hold, and why."""

    path: bytes
    reason: str


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the whole version.

    Attributes:
        path: the mount's path in the cache, such as `/datasets/0123456789abcdef`.
        source: URI of the mount's source, `s3://bucket/prefix` or `file:///folder`; file paths follow it behind a
            slash.
        tag_width: bytes of a tag in the column.
        columns: offset and length in bytes of each column.
        skipped_count: entries of the listing that could not be taken.
        skipped: the first of them.
    """

    path: str
    source: str
    tag_width: int
    columns: dict[str, tuple[int, int]]
    skipped_count: int = 0
    skipped: tuple[Skipped, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over files, or over those that a selection of paths names. All arrays are little-endian bytes.

    Attributes:
        files: how many there are, empty ones included.
        block_bytes: of all their blocks, which is all of the files.
        largest_block: bytes.
        slot_bytes: int64 for each slot: bytes of its blocks.
        slot_files: uint32 for each slot: files that count there; each counts once, where its first block belongs.
        unknown_paths: those of the selection under which there is no file.
        near_paths: for the first of them the nearest path that there is, in the same order; empty where none is near.
    """

    files: int
    blocks: int
    block_bytes: int
    largest_block: int
    slot_bytes: bytes
    slot_files: bytes
    unknown_paths: tuple[str, ...] = ()
    near_paths: tuple[str, ...] = ()

    @property
    def sizes(self) -> Sizes:
        return np.frombuffer(self.slot_bytes, dtype="<i8")

    @property
    def counts(self) -> npt.NDArray[np.uint32]:
        return np.frombuffer(self.slot_files, dtype="<u4")


@cache
def totals_of(size: int) -> Totals:
    """A dataset of so many bytes, spread evenly over the slots, a file and block for each."""
    sizes = np.full(SLOTS, size // SLOTS, dtype="<i8")
    sizes[: size % SLOTS] += 1
    return Totals(
        files=SLOTS,
        blocks=SLOTS,
        block_bytes=size,
        largest_block=int(sizes[0]),
        slot_bytes=sizes.tobytes(),
        slot_files=np.ones(SLOTS, dtype="<u4").tobytes(),
    )


def encoded(path: str) -> bytes:
    """A path as raw bytes: what Python could not decode comes back as it was."""
    return path.encode("utf-8", "surrogateescape")


def decoded(path: bytes) -> str:
    """A path as text, the reverse of `encoded`."""
    return path.decode("utf-8", "surrogateescape")
