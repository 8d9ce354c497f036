"""Datasets made of a seed: the same parameters give the same bytes, on any machine, forever."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class File:
    """One file to be: its path below the bucket and its size in bytes."""

    path: str
    size: int


def plan(*, files: int, sizes: tuple[int, int], seed: str) -> Iterator[File]:
    """``files`` files in folders of 1,000, with sizes spread evenly between the two, bounds included."""
    low, high = sizes
    for number in range(files):
        path = f"{number // 1000:03d}/{number:06d}.bin"
        yield File(path=path, size=low + _number(f"{seed}:size:{path}") % (high - low + 1))


def content(*, seed: str, file: File) -> Iterator[bytes]:
    """The bytes of a file, a chunk at a time: each chunk is SHAKE-128 of seed, path and its number.

    They do not compress and no two files share a chunk.
    """
    for number, offset in enumerate(range(0, file.size, CHUNK)):
        keyed = hashlib.shake_128(f"{seed}:{file.path}:{number}".encode())
        yield keyed.digest(min(CHUNK, file.size - offset))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
