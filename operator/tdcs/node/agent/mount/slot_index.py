"""Which blocks of a version are in each slot: an assignment takes as long as it has blocks, not as the mount has.

A version of few blocks is searched through each time, which costs no memory. A large one has an index: the numbers of
all blocks, slot by slot, four bytes each, in a file without a name that the kernel may drop from memory at any time.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tdcs.model import slots
from tdcs.model.manifest import Manifest
from tdcs.node.agent.mount.block_rows import Mask, Numbers

_log: Final = logging.getLogger(__name__)

INDEXED_FROM: Final = 1 << 22
"""A version of so many blocks has an index: to search through fewer takes some ten milliseconds."""
_NUMBER_BITS: Final = 32 - slots.SLOT_BITS
_AT_ONCE: Final = 1 << _NUMBER_BITS
_IN_CACHE: Final = 1 << 16
"""Blocks that are searched together: the processor's cache has them, which makes it twice as fast."""
_MANY: Final = 8
"""A search is faster than the index for more than one block in so many."""

Order = npt.NDArray[np.uint32]


class SlotIndex:
    """The blocks of a version by slot.

    Attributes:
        counts: blocks in each slot.
    """

    def __init__(self, manifest: Manifest, *, folder: Path | None = None) -> None:
        """It reads a column of the manifest once or twice.

        Args:
            folder: where a large version's index is kept; without one, or when it has no room, there is none.
        """
        self._manifest: Final = manifest
        self.counts: Final = _counts(manifest)
        self._ends: Final = np.cumsum(self.counts)
        self._order: Order | None = None
        if folder is not None and manifest.blocks >= INDEXED_FROM:
            try:
                self._order = _ordered(manifest, self._ends - self.counts, _unnamed(folder, manifest.blocks))
            except OSError as error:
                _log.warning(
                    "no index of the %d blocks of %s can be written in %s, so that each assignment takes longer: %s",
                    manifest.blocks,
                    manifest.path,
                    folder,
                    error,
                )

    def blocks(self, slot_mask: Mask, ranges: list[tuple[int, int]]) -> Numbers:
        """The blocks of these slots in these ranges of blocks, which are ascending and apart; ascending."""
        if self._order is None or int(self.counts[slot_mask].sum()) * _MANY > self._manifest.blocks:
            return self._searched(slot_mask, ranges)
        ends = self._ends.tolist()
        runs = [self._order[ends[slot - 1] if slot else 0 : ends[slot]] for slot in np.flatnonzero(slot_mask)]
        blocks = np.sort(np.concatenate(runs)) if runs else np.zeros(0, dtype=np.uint32)
        if ranges != [(0, self._manifest.blocks)]:
            places = np.searchsorted(blocks, np.array(ranges, dtype=np.uint32).ravel()).tolist()
            parts = [blocks[low:high] for low, high in zip(places[::2], places[1::2], strict=True)]
            blocks = np.concatenate(parts) if parts else blocks[:0]
        return blocks.astype(np.int64)

    def _searched(self, slot_mask: Mask, ranges: list[tuple[int, int]]) -> Numbers:
        column = self._manifest.block_slots
        parts = [
            np.flatnonzero(np.take(slot_mask, column[low : min(low + _IN_CACHE, end)])) + low
            for begin, end in ranges
            for low in range(begin, end, _IN_CACHE)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _counts(manifest: Manifest) -> Numbers:
    counts = np.zeros(slots.SLOTS, dtype=np.int64)
    for low in range(0, manifest.blocks, _AT_ONCE):
        counts += np.bincount(manifest.block_slots[low : low + _AT_ONCE], minlength=slots.SLOTS)
    return counts


def _unnamed(folder: Path, blocks: int) -> Order:
    """Four bytes a block in a file of no name, which goes with the last that has it open; OSError without room."""
    with tempfile.TemporaryFile(dir=folder) as file:
        # A page of a mapped file that finds no room later would end the process.
        os.posix_fallocate(file.fileno(), 0, 4 * blocks)
        return np.frombuffer(mmap.mmap(file.fileno(), 4 * blocks), dtype=np.uint32)


def _ordered(manifest: Manifest, begins: Numbers, order: Order) -> Order:
    """Fill in the numbers of all blocks, ascending in each slot; a part of the column at a time."""
    following = begins.copy()
    for low in range(0, manifest.blocks, _AT_ONCE):
        column = manifest.block_slots[low : low + _AT_ONCE]
        # Slot and number in one value of 32 bits: numpy sorts these many times as fast as it orders the slots.
        keys = np.sort((column.astype(np.uint32) << _NUMBER_BITS) | np.arange(len(column), dtype=np.uint32))
        counts = np.bincount(column, minlength=slots.SLOTS)
        places = (following - (np.cumsum(counts) - counts))[keys >> _NUMBER_BITS]
        places += np.arange(len(column))
        order[places] = (keys & np.uint32(_AT_ONCE - 1)) + np.uint32(low)
        following += counts
    return order
