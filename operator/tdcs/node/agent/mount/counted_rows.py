"""The rows of a mount's blocks with what is counted of them: flags are changed here, or all rows are counted again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tdcs.model.manifest import Manifest
from tdcs.node.agent.mount.block_rows import ASSIGNED, FAILED, STAYS, BlockRows, Mask
from tdcs.node.agent.mount.part_sums import PathSums
from tdcs.node.agent.mount.slot_counts import SlotCounts, Tally

_WINDOW: Final = 1 << 16


class CountedRows:
    """The rows of one version of a mount.

    Attributes:
        rows: the rows.
        counts: of all rows, by slot.
        sums: of those under each selection of paths that is assigned.
        changes: grows with every change of a mount, so that nothing has to be counted again while there was none.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.rows: Final = BlockRows(manifest)
        self.counts: Final = SlotCounts()
        self.sums: dict[tuple[str, ...], PathSums] = {}
        self.changes = 0

    def set(self, row: int, flags: int) -> None:
        """Give a row these flags."""
        rows = self.rows
        before = rows.flag_view[row]
        if flags == before:
            return
        rows.flag_view[row] = flags
        slot, length = rows.slot_view[row], rows.length_view[row]
        self.counts.step(before=before, after=flags, slot=slot, length=length)
        for sums in self.sums.values():
            sums.step(block=rows.number_view[row], before=before, after=flags, slot=slot, length=length)

    def count(self) -> None:
        """Count all rows again, and leave out those with which there is nothing to do any more."""
        rows = self.rows
        idle = (rows.flags & (ASSIGNED | STAYS | FAILED)) == 0
        if idle.any():
            rows.keep(~idle)
        tally = Tally(rows)
        self.counts.count(tally)
        for sums in self.sums.values():
            sums.count(rows, tally)

    def scan(self, free: Callable[[slice], Mask], *, begin: int, most: int) -> Iterator[int]:
        """The first so many rows, from that of a block on and round again, of which this is true."""
        first = self.rows.place(begin)
        for low, high in _windows(begin=first, count=len(self.rows)):
            rows = (np.flatnonzero(free(slice(low, high)))[:most] + low).tolist()
            yield from rows
            most -= len(rows)
            if most <= 0:
                return


def _windows(*, begin: int, count: int) -> list[tuple[int, int]]:
    """Stretches of all rows, from `begin` round to it again."""
    ends = [*range(begin + _WINDOW, count, _WINDOW), count] if begin < count else []
    before = [*range(_WINDOW, begin, _WINDOW), begin] if begin else []
    first = list(zip([begin, *ends[:-1]], ends, strict=True)) if ends else []
    return first + (list(zip([0, *before[:-1]], before, strict=True)) if before else [])
