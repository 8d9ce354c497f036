"""What a block is, whatever its id: which part of which source file of which mount.

An id is a number of 63 bits, made of what the block is: two blocks may have one, however seldom that is.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.model.manifest import Manifest

Prints = npt.NDArray[np.uint64]


class BlockIdentity(NamedTuple):
    """What a file of the store is.

    Attributes:
        mount: `mount_key` of the mount that it is of.
        file: id of the source file (`tdcs.model.file_ids`).
        offset: of its first byte in the source file.
    """

    mount: bytes
    file: bytes
    offset: int


def mount_key(mount: str) -> bytes:
    """How files name their mount: 16 bytes."""
    return bytes.fromhex(names.mount_digest(mount))


def identity_of(manifest: Manifest, block: int) -> BlockIdentity:
    """What the file of a block is, by the version that lists it."""
    file = manifest.file_of(block)
    first = manifest.blocks_of(file).start
    offset = (block - first) * int(manifest.block_lengths[first])
    return BlockIdentity(mount_key(manifest.path), manifest.file_id(file), offset)


def first_blocks(manifest: Manifest, files: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first block of each of these files."""
    if not len(manifest):
        return np.zeros(len(files), dtype=np.int64)
    return np.where(files > 0, manifest.block_ends[np.maximum(files, 1) - 1], 0).astype(np.int64)


# Many at once: a number for each block. Two that share one are the same: with the id of the block next to it nobody
# gains by making two files that do not.


def prints_of_blocks(manifest: Manifest, blocks: npt.NDArray[np.int64]) -> Prints:
    if not len(blocks):
        return np.zeros(0, dtype=np.uint64)
    files, lengths = manifest.files_of(blocks), manifest.block_lengths
    firsts = first_blocks(manifest, files)
    offsets = ((blocks - firsts) * lengths[firsts]).astype(np.uint64)
    key = np.frombuffer(mount_key(manifest.path), dtype="<u8").reshape(1, 2)
    ids = np.ascontiguousarray(manifest.file_ids[files]).view("<u8").reshape(-1, 2)
    return prints(key, ids, offsets, lengths[blocks].astype(np.uint64))


def prints(mounts: Any, files: Any, offsets: Any, lengths: Any) -> Prints:
    """Of columns: keys of mounts and ids of files as two numbers a row, offsets and lengths in bytes; never 0."""
    with np.errstate(over="ignore"):
        mixed = mounts[:, 0] ^ files[:, 0] ^ (files[:, 1] * _ODD[0])
        mixed = (mixed ^ (offsets * _ODD[1])) * _ODD[2] ^ (lengths * _ODD[3])
    return np.asarray(np.where(mixed == 0, np.uint64(1), mixed))


def same_blocks(mine: Manifest, other: Manifest, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The blocks of a version that are these of another one: same id, and same part of the same file. -1 for those
    that it lacks."""
    numbers = mine.blocks_at(other.block_ids[blocks])
    listed = np.flatnonzero(numbers >= 0)
    is_same = prints_of_blocks(mine, numbers[listed]) == prints_of_blocks(other, blocks[listed])
    numbers[listed[~is_same]] = -1
    return numbers


_ODD: Final = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0x165667B19E3779F9),
    np.uint64(0xD6E8FEB86659FD93),
)
