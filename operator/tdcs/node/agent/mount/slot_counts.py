"""What is counted of a mount's rows, by slot: a tick and a state take as long as there are slots, not blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tdcs.model.slots import SLOTS
from tdcs.node.agent.mount.block_rows import (
    CLAIMED,
    FAILED,
    FIRST,
    HELD,
    LATER,
    PEERS,
    READ,
    REFUSED,
    SOURCE,
    WANTED,
    BlockRows,
    Mask,
    Numbers,
)

HERE: Final = 0
"""It is here, and is right."""
FAILING: Final = 1
"""It cannot be had for now, or is wrong."""
MISSING_SOURCE: Final = 2
MISSING_READ: Final = 3
"""To come from peers, or else from the source."""
MISSING_ONLY: Final = 4
"""To come from peers alone."""
READY_SOURCE: Final = 5
READY_READ: Final = 6
READY_ONLY: Final = 7
OPEN: Final = 8
"""To come, and not failed."""
OPEN_ONLY: Final = 9
UNWANTED: Final = 10
"""It is here, and no part wants it."""
UNWANTED_IDLE: Final = 11
WRONG: Final = 12
"""It is here, and is wrong."""
WRONG_IDLE: Final = 13
IN_WORK: Final = 14
FAILED_ONCE: Final = 15
ANY_HERE: Final = 16
ANY_IDLE: Final = 17
_KINDS: Final = 18
_CLASSES: Final = 512
_TALLIED: Final = (_CLASSES - 1) | FIRST


def _kinds(flags: int) -> int:
    """Bits of all that a row with these flags counts as."""
    held, claimed = bool(flags & HELD), bool(flags & CLAIMED)
    refused, assigned, failed = bool(flags & REFUSED), bool(flags & WANTED), bool(flags & FAILED)
    missing = not held and not refused
    ready = missing and not claimed and not flags & LATER
    source, read = bool(flags & SOURCE), bool(flags & PEERS and flags & READ)
    only = bool(flags & PEERS and not flags & READ)
    counted = {
        HERE: held and not refused,
        FAILING: (failed and not held) or refused,
        MISSING_SOURCE: missing and source,
        MISSING_READ: missing and read,
        MISSING_ONLY: missing and only,
        READY_SOURCE: ready and source,
        READY_READ: ready and read,
        READY_ONLY: ready and only,
        OPEN: missing and not failed and (source or read),
        OPEN_ONLY: missing and not failed and only and not source,
        UNWANTED: held and not assigned,
        UNWANTED_IDLE: held and not assigned and not claimed,
        WRONG: held and refused,
        WRONG_IDLE: held and refused and not claimed,
        IN_WORK: claimed,
        FAILED_ONCE: failed,
        ANY_HERE: held,
        ANY_IDLE: held and not claimed,
    }
    return sum(1 << kind for kind, counts in counted.items() if counts)


_KINDS_OF: Final = [_kinds(flags) for flags in range(_CLASSES)]
_IN_KIND: Final = np.array(
    [[bits >> kind & 1 for bits in _KINDS_OF] for kind in range(_KINDS)], dtype=np.bool_
)


def _steps(before: int, after: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (kind, 1 if after >> kind & 1 else -1) for kind in range(_KINDS) if (before ^ after) >> kind & 1
    )


_STEPS: Final[dict[tuple[int, int], tuple[tuple[int, int], ...]]] = {}
"""From one set of kinds to another one: some hundred pairs happen."""


class Tally:
    """Rows by their flags and slots, with their bytes.

    Attributes:
        flags: each set of flags that some row has, of those that are counted by.
        blocks, bytes: of each of them, a row each, by slot.
    """

    def __init__(self, rows: BlockRows, chosen: Mask | None = None) -> None:
        """`chosen`: only these rows."""
        flags, slots, lengths = rows.flags, rows.slots, rows.lengths
        if chosen is not None:
            flags, slots, lengths = flags[chosen], slots[chosen], lengths[chosen]
        classes = flags & np.uint16(_TALLIED)
        self.flags: Final = np.flatnonzero(np.bincount(classes, minlength=_TALLIED + 1))
        places = np.zeros(_TALLIED + 1, dtype=np.int64)
        places[self.flags] = np.arange(len(self.flags)) * SLOTS
        places = places[classes]
        places += slots
        count = len(self.flags) * SLOTS
        self.blocks: Final = np.bincount(places, minlength=count).reshape(-1, SLOTS)
        # Sums of 64-bit floats are exact up to eight petabytes, and several times as fast as `np.add.at`.
        self.bytes: Final = (
            np.bincount(places, weights=lengths, minlength=count).astype(np.int64).reshape(-1, SLOTS)
        )

    def of(self, kind: int) -> Mask:
        """Which of the sets of flags count as this kind."""
        return np.asarray(_IN_KIND[kind][self.flags & (_CLASSES - 1)])

    def first(self) -> Mask:
        """Which of the sets of flags are those of a file's first block."""
        return np.asarray((self.flags & FIRST) != 0)


class SlotCounts:
    """Counts of rows by kind and slot.

    Attributes:
        total: of each kind, over all slots.
        held_bytes: of all rows that are here.
    """

    def __init__(self) -> None:
        self._blocks = np.zeros((_KINDS, SLOTS), dtype=np.int64)
        self.total = [0] * _KINDS
        self.held_bytes = 0
        self._show()

    def of(self, kind: int) -> npt.NDArray[np.int64]:
        """By slot. To be read at once: it follows what happens."""
        by_slot: npt.NDArray[np.int64] = self._blocks[kind]
        return by_slot

    def count(self, tally: Tally) -> None:
        """Take the counts of all rows."""
        self._blocks = np.zeros((_KINDS, SLOTS), dtype=np.int64)
        for flags, by_slot in zip(tally.flags.tolist(), tally.blocks, strict=True):
            self._blocks[_IN_KIND[:, flags & (_CLASSES - 1)]] += by_slot
        self.total = self._blocks.sum(axis=1).tolist()
        self.held_bytes = int(tally.bytes[tally.of(ANY_HERE)].sum())
        self._show()

    def step(self, *, before: int, after: int, slot: int, length: int) -> None:
        """A row of this slot has other flags."""
        old, new = _KINDS_OF[before & (_CLASSES - 1)], _KINDS_OF[after & (_CLASSES - 1)]
        if old == new:
            return
        steps = _STEPS.get((old, new))
        if steps is None:
            steps = _STEPS[old, new] = _steps(old, new)
        views, total = self._views, self.total
        for kind, change in steps:
            views[kind][slot] += change
            total[kind] += change
            if kind == ANY_HERE:
                self.held_bytes += change * length

    def _show(self) -> None:
        self._views: list[Any] = [counts.data for counts in self._blocks]


def rows_of_kind(rows: BlockRows, kind: int) -> Numbers:
    """The rows that count as this."""
    return np.flatnonzero(_IN_KIND[kind][rows.flags & (_CLASSES - 1)])


def is_of_kind(flags: int, kind: int) -> bool:
    return bool(_KINDS_OF[flags & (_CLASSES - 1)] >> kind & 1)
