"""How many blocks a file has: a cache's master keeps something of each, so that limits of files count them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.engine.alluxio.sources import BLOCK_SIZE


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
