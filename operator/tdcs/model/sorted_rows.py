"""Rows in the order of their keys, however many there are: a bounded number is in memory, the others in files.

Rows are taken in any order. Each stretch of them is put in order and written to a file of its own; in
the end the stretches are merged. Rows that come nearly in order, as object stores list names, are sorted quickest.
"""

import heapq
import operator
from collections.abc import Callable, Iterator
from typing import IO, Final

import msgspec

Scratch = Callable[[], IO[bytes]]
"""Gives a new file, which goes when it is closed."""

Row = tuple[bytes, int, bytes]
"""A key, and what belongs to it."""

STRETCH: Final = 50_000
"""Rows in memory before they are written: some 15 MB."""

_BATCH: Final = 256
"""Rows of each stretch in memory while stretches are merged."""

_KEY: Final = operator.itemgetter(0)


class SortedRows:
    """Takes in rows, and gives them by key; those of one key in the order in which they came.

    Args:
        scratch: gives files for stretches; None: all rows stay in memory.
    """

    def __init__(self, scratch: Scratch | None = None, *, stretch: int | None = None) -> None:
        self._scratch: Final = scratch
        self._stretch: Final = stretch or STRETCH
        self._rows: list[Row] = []
        self._written: Final[list[IO[bytes]]] = []
        self._written_rows = 0
        self._borrowed = 0

    def __len__(self) -> int:
        """How many rows were taken."""
        return self._written_rows + len(self._rows)

    def so_far(self) -> "SortedRows":
        """The rows that were taken until now, for one reader at a time; this one may take more meanwhile. What is
        written stays this one's, which is closed later."""
        rows = SortedRows(self._scratch, stretch=self._stretch)
        rows._rows, rows._written_rows = list(self._rows), self._written_rows
        rows._written.extend(self._written)
        rows._borrowed = len(self._written)
        return rows

    def add(self, row: Row) -> None:
        """Raises OSError when the disk does not take a stretch."""
        self._rows.append(row)
        if len(self._rows) >= self._stretch and self._scratch is not None:
            self._write(self._scratch())

    def __iter__(self) -> Iterator[Row]:
        """All rows; may be asked for again. Raises OSError."""
        self._rows.sort(key=_KEY)
        stretches = [_read(file) for file in self._written]
        return heapq.merge(*stretches, self._rows, key=_KEY) if stretches else iter(self._rows)

    def close(self) -> None:
        for file in self._written[self._borrowed :]:
            file.close()

    def _write(self, file: IO[bytes]) -> None:
        self._rows.sort(key=_KEY)
        self._written.append(file)
        encoder = msgspec.msgpack.Encoder()
        for begin in range(0, len(self._rows), _BATCH):
            content = encoder.encode(self._rows[begin : begin + _BATCH])
            file.write(len(content).to_bytes(8, "little"))
            file.write(content)
        file.flush()
        self._written_rows += len(self._rows)
        self._rows = []


def _read(file: IO[bytes]) -> Iterator[Row]:
    """The rows of a stretch. Several readers of one file read from places of their own."""
    decoder, at = msgspec.msgpack.Decoder(list[Row]), 0
    while True:
        file.seek(at)
        head = file.read(8)
        if not head:
            return
        length = int.from_bytes(head, "little")
        rows = decoder.decode(file.read(length))
        at += 8 + length
        yield from rows
