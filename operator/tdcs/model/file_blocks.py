"""How many blocks a file has: manifests and agents keep something of each, so that limits of files count them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.model.file_ids import EXTENT_BYTES

BLOCK_SIZE = 1 << 30
"""A file up to this size is one block, and so one file on the disk of the node that holds it, which can be read without
Alluxio. Blocks of the usual 64 MiB would scatter every larger file; and each of them would make the source send more
than the block, because a read asks for all the rest of the file and is broken off at the block's end."""


class Cut(NamedTuple):
    """How files are cut into blocks: those up to `whole` bytes not at all, larger ones at the multiples of `block`."""

    whole: int
    block: int


WHOLE_BLOCKS = Cut(BLOCK_SIZE, BLOCK_SIZE)
EXTENTS = Cut(BLOCK_SIZE, EXTENT_BYTES)
"""Where the store is TDCS's own: blocks of one file are in one file on a node, so that they may be small. One that is
not whole on a node is spread over several, fetched from several, and goes on after a kill where it was."""


def block_count(size: int) -> int:
    """As how many files one of so many bytes counts: as many as it has blocks, and an empty one as one."""
    return max(-(-size // BLOCK_SIZE), 1)


def block_count_of_all(sizes: npt.NDArray[np.integer[Any]]) -> int:
    """The sum of `block_count` over files of these sizes."""
    return int(np.maximum(-(-sizes // BLOCK_SIZE), 1).sum())


class LargeFile(NamedTuple):
    """A file that counts more than once, for people. The one without bytes stands for none."""

    size: int = 0
    name: str = ""


NO_LARGE_FILE = LargeFile()


def large_file(size: int, name: str) -> LargeFile:
    """A file, if it counts more than once."""
    return LargeFile(size, name) if size > BLOCK_SIZE else NO_LARGE_FILE
