"""Which workers of a job read a dataset: `0-2`, `0,4`, as in `datasets[].readers` and in the pods' annotation."""

from typing import Final

READERS_PATTERN: Final = r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"
"""Indices and ranges of indices, separated by commas."""


def parse_readers(text: str) -> frozenset[int]:
    """The indices that a text such as ``0-2`` or ``0,4`` names.

    Raises:
        ValueError: it names none, or a range ends before it begins.
    """
    indices: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise ValueError(f"{text!r}: the range {part} ends before it begins")
        indices.update(range(begin, end + 1))
    return frozenset(indices)


def is_reader(readers: str | None, index: int | None) -> bool:
    """Whether the pod with this completion index reads a dataset with these readers.

    None as readers: every pod does. None as index: it is not known which pod it is, and it counts as one that reads.
    """
    if readers is None or index is None:
        return True
    for part in readers.split(","):
        first, _, last = part.partition("-")
        if int(first) <= index <= int(last or first):
            return True
    return False
