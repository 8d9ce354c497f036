"""How far an agent is with the files under some paths: sums by slot. Each part of an assignment has some slots."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt

from tdcs.model import slots
from tdcs.model.agent_state import Part, PartState
from tdcs.model.manifest import Manifest
from tdcs.node.agent.mount.block_rows import FIRST, BlockRows, Mask, Numbers, files_without_blocks
from tdcs.node.agent.mount.slot_counts import FAILING, HERE, Tally, is_of_kind


class PathSums:
    """The sums of one selection of paths (none: all files) over the rows of a mount."""

    def __init__(self, manifest: Manifest, paths: tuple[str, ...], *, empty_files: int) -> None:
        """`empty_files`: files of the version without blocks, which are counted here only of a part of it."""
        files = manifest.file_ranges(paths)
        ends = manifest.block_ends
        self.ranges: Final = [
            (int(ends[begin - 1]) if begin else 0, int(ends[end - 1])) for begin, end in files if end > begin
        ]
        self._all: Final = not paths
        self._bounds: Final = [bound for pair in self.ranges for bound in pair]
        self._empty_files: Final = (
            sum(files_without_blocks(manifest, begin, end) for begin, end in files) if paths else empty_files
        )
        self._wanted_bytes, self._wanted_files = _zeros(), _zeros()
        self._held_bytes, self._held_files, self._failed_bytes = _zeros(), _zeros(), _zeros()

    def has(self, block: int) -> bool:
        return self._all or bisect_right(self._bounds, block) % 2 == 1

    def among(self, blocks: Numbers) -> Mask:
        if self._all:
            return np.ones(len(blocks), dtype=np.bool_)
        return np.asarray(np.searchsorted(self._bounds, blocks, side="right") % 2 == 1)

    def count(self, rows: BlockRows, tally: Tally) -> None:
        """Sum all rows up, of which this is the tally."""
        mine = tally if self._all else Tally(rows, self.among(rows.numbers))
        first, held = mine.first(), mine.of(HERE)
        self._wanted_bytes, self._wanted_files = mine.bytes.sum(axis=0), mine.blocks[first].sum(axis=0)
        self._held_bytes, self._held_files = (
            mine.bytes[held].sum(axis=0),
            mine.blocks[held & first].sum(axis=0),
        )
        self._failed_bytes = mine.bytes[mine.of(FAILING)].sum(axis=0)

    def step(self, *, block: int, before: int, after: int, slot: int, length: int) -> None:
        """A row has other flags."""
        held = is_of_kind(after, HERE) - is_of_kind(before, HERE)
        failing = is_of_kind(after, FAILING) - is_of_kind(before, FAILING)
        if not (held or failing) or not self.has(block):
            return
        if held:
            self._held_bytes[slot] += held * length
            if after & FIRST:
                self._held_files[slot] += held
        if failing:
            self._failed_bytes[slot] += failing * length

    def state(self, part: Part) -> PartState:
        """How far a part of these paths is. A file counts where its first block belongs; those without blocks in slot
        0, as in the manifest's totals."""
        mine = slots.mask_of(part.slots)
        empty = self._empty_files if mine[0] else 0
        return PartState(
            name=part.name,
            wanted_bytes=int(self._wanted_bytes[mine].sum()),
            held_bytes=int(self._held_bytes[mine].sum()),
            wanted_files=int(self._wanted_files[mine].sum()) + empty,
            held_files=int(self._held_files[mine].sum()) + empty,
            failed_bytes=int(self._failed_bytes[mine].sum()),
        )


def _zeros() -> npt.NDArray[np.int64]:
    return np.zeros(slots.SLOTS, dtype=np.int64)
