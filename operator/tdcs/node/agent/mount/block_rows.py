"""The blocks of a mount that an agent has something to do with: those that are assigned to it or are here, a row each.

A mount may have a hundred million blocks of which a node holds one in a hundred: what is kept follows the rows. They
are ascending by the blocks' numbers in the manifest, but for the last few, which came one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tdcs.model.manifest import Manifest

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

HELD: Final = 1
"""It is here."""
CLAIMED: Final = 2
"""Somebody is bringing or dropping it."""
WANTED: Final = 4
"""A part of the assignment wants it."""
READ: Final = 8
"""It may be read from the source."""
SOURCE: Final = 16
"""It is to be read from the source."""
PEERS: Final = 32
"""It is to come from peers."""
FAILED: Final = 64
"""The last attempt to bring it failed."""
REFUSED: Final = 128
"""A comparison found it wrong: it is neither held nor brought."""
LATER: Final = 256
"""It is tried again at a time of its own."""
TOUCHED: Final = 512
"""It changed since the look at the folders began that goes on."""
FIRST: Final = 1024
"""It is the first one of its file."""

ASSIGNED: Final = WANTED | READ | SOURCE | PEERS
STAYS: Final = HELD | CLAIMED | REFUSED | TOUCHED
"""A row with any of these is kept, whether it is assigned or not."""

_LEAST_TAIL: Final = 4096
_AT_ONCE: Final = 1 << 20
_COLUMNS: Final = {
    "numbers": np.int64,
    "flags": np.uint16,
    "slots": np.uint16,
    "lengths": np.int64,
    "codes": np.uint8,
    "attempts": np.uint8,
    "retry_at": np.float64,
}


class BlockRows:
    """The rows. A row's place holds until rows are added or left out.

    Attributes:
        numbers: of the blocks in the manifest.
        flags: what is known of each.
        slots, lengths: of each.
        codes, attempts, retry_at: why it failed, how often, and when it is tried again.
        empty_files: how many files of the version have no blocks.
    """

    numbers: Numbers
    flags: npt.NDArray[np.uint16]
    slots: npt.NDArray[np.uint16]
    lengths: Numbers
    codes: npt.NDArray[np.uint8]
    attempts: npt.NDArray[np.uint8]
    retry_at: npt.NDArray[np.float64]

    def __init__(self, manifest: Manifest) -> None:
        self._manifest: Final = manifest
        files = len(manifest.block_ends)
        self.empty_files: Final = files_without_blocks(manifest, 0, files)
        self._one_each: Final = files == manifest.blocks and not self.empty_files
        """Whether each file has one block."""
        self._all: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, dtype=kind) for name, kind in _COLUMNS.items()
        }
        self._sorted = 0
        self._tail: dict[int, int] = {}
        self._count = 0
        self._show()

    def __len__(self) -> int:
        return self._count

    def at(self, block: int) -> int:
        """The row of a block; -1 when it has none."""
        low = bisect_left(self.number_view, block, 0, self._sorted)
        if low < self._sorted and self.number_view[low] == block:
            return low
        return self._tail.get(block, -1) if self._tail else -1

    def place(self, block: int) -> int:
        """The first row of a block with at least this number; the rows are in order then."""
        self._settle()
        return bisect_left(self.number_view, block)

    def of(self, blocks: Numbers) -> Numbers:
        """The rows of blocks; -1 for those that have none."""
        self._settle()
        if not self._count:
            return np.full(len(blocks), -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.numbers, blocks), self._count - 1).astype(np.int64)
        return np.where(self.numbers[rows] == blocks, rows, -1)

    def add(self, block: int) -> int:
        """The row of a block, a new one if it had none."""
        row = self.at(block)
        if row >= 0:
            return row
        if len(self._tail) >= max(_LEAST_TAIL, self._sorted // 8):
            self._settle()
        row = self._count
        if row == len(self._all["numbers"]):
            grown = max(_LEAST_TAIL, row + row // 8)
            self._all = {
                name: np.concatenate([column, np.zeros(grown - row, dtype=column.dtype)])
                for name, column in self._all.items()
            }
        values = self._new(np.array([block], dtype=np.int64))
        for name, column in self._all.items():
            column[row] = values[name][0]
        self._tail[block] = row
        self._count += 1
        self._show()
        return row

    def have(self, blocks: Numbers) -> None:
        """See to it that these blocks, ascending, have rows."""
        missing = blocks[self.of(blocks) < 0]
        if not len(missing):
            return
        new = self._new(missing)
        if not self._count:
            self._replace(new)
            return
        places = np.searchsorted(self.numbers, missing)
        self._replace({name: np.insert(getattr(self, name), places, new[name]) for name in _COLUMNS})

    def keep(self, rows: Mask) -> None:
        """Leave out all others."""
        if rows.all():
            return
        row_numbers = np.flatnonzero(rows)
        if self._tail:
            row_numbers = row_numbers[np.argsort(self.numbers[row_numbers], kind="stable")]
        self._replace({name: getattr(self, name)[row_numbers] for name in _COLUMNS})

    def _new(self, blocks: Numbers) -> dict[str, npt.NDArray[Any]]:
        manifest = self._manifest
        columns = {name: np.zeros(len(blocks), dtype=kind) for name, kind in _COLUMNS.items()}
        columns["numbers"] = blocks
        # The numbers are in range: without numpy's own check of that it takes two thirds of the time.
        columns["slots"] = np.take(manifest.block_slots, blocks, mode="clip")
        columns["lengths"] = np.take(manifest.block_lengths, blocks, mode="clip")
        if self._one_each:
            columns["flags"][:] = FIRST
            return columns
        # In the column's own type: it would be copied as a whole otherwise.
        ends = manifest.block_ends
        files = np.searchsorted(ends, blocks.astype(ends.dtype), side="right")
        begins = np.where(files > 0, ends[np.maximum(files, 1) - 1], 0)
        columns["flags"][begins == blocks] = FIRST
        return columns

    def _settle(self) -> None:
        """Bring the rows that came one by one to their places."""
        if not self._tail:
            return
        order = np.argsort(self.numbers, kind="stable")
        self._replace({name: getattr(self, name)[order] for name in _COLUMNS})

    def _replace(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        self._all = columns
        self._count = self._sorted = len(columns["numbers"])
        self._tail = {}
        self._show()

    def _show(self) -> None:
        for name, column in self._all.items():
            setattr(self, name, column[: self._count])
        # Single values are taken three times as fast from these.
        self.number_view, self.flag_view = self.numbers.data, self.flags.data
        self.slot_view, self.length_view = self.slots.data, self.lengths.data


def files_without_blocks(manifest: Manifest, begin: int, end: int) -> int:
    """Files of a range that have no blocks; a part of the column at a time."""
    count = 0
    for low in range(begin, end, _AT_ONCE):
        ends = manifest.block_ends[max(low - 1, 0) : min(low + _AT_ONCE, end)]
        count += int(np.count_nonzero(ends[1:] == ends[:-1])) + bool(not low and len(ends) and not ends[0])
    return count
