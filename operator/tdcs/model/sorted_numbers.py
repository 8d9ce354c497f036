"""Sets of numbers as ascending arrays. numpy's own functions hash each number, which takes a second for a million."""

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def distinct(numbers: npt.NDArray[Any]) -> Numbers:
    """The numbers in ascending order, each once; quick where they are in order, or in a few runs that are."""
    ordered = np.sort(np.asarray(numbers, dtype=np.int64), kind="stable")
    if len(ordered) < 2:
        return ordered
    is_first = np.empty(len(ordered), dtype=np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered if is_first.all() else ordered[is_first]


def union(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Numbers:
    """The numbers of either, in ascending order, each once."""
    return distinct(np.concatenate((first, second)))
