"""How many folders the names of files have: a manifest keeps each of them, so that limits of files count them."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

LONG_PATH: Final = 256
"""Bytes of a folder's path for which it counts once more. A manifest has whole paths: with an object of 1,024 bytes and
500 folders that is 256 KiB."""


def folder_count(path_bytes: int) -> int:
    """As how many files a folder counts, by the length of its path below the source."""
    return 1 + path_bytes // LONG_PATH


def folder_count_of_all(path_bytes: npt.NDArray[np.integer[Any]]) -> int:
    """The sum of `folder_count` over folders with paths of these lengths."""
    return int((1 + path_bytes // LONG_PATH).sum())


class FolderCounter:
    """Counts the folders of names that come in order, as limits count them: of each name those which the name before
    did not have. Names that come in no order can only count more. It keeps one name, however many come.

    Args:
        below: what the names have before their path below the source, with the slash at its end.
    """

    def __init__(self, *, below: bytes = b"") -> None:
        self._below: Final = below
        self._last = b""

    def add(self, name: bytes) -> int:
        """Take in the next name; as how many files its further folders count."""
        path = name.removeprefix(self._below)
        folder = path[: path.rfind(b"/") + 1]
        if folder == self._last:
            return 0
        shared, self._last = _shared(folder, self._last), folder
        # A folder's path ends where a slash is. All that end in one stretch count alike.
        return sum(
            folder.count(b"/", max(shared, begin), begin + LONG_PATH) * folder_count(begin)
            for begin in range(shared - shared % LONG_PATH, len(folder), LONG_PATH)
        )


def _shared(first: bytes, second: bytes) -> int:
    """How many bytes two names have in common at their beginning."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
