"""The blocks of a slot are found the same way by the index of a large version as by a search of all of it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tdcs.model import slots
from tdcs.node.agent.mount import slot_index
from tdcs.node.agent.mount.slot_index import SlotIndex

BLOCKS = 5000
WHOLE = [(0, BLOCKS)]


def version() -> Any:
    """A version with blocks in some slots only, the first and the last one among them."""
    used = np.array([0, 1, 7, 8, 2000, 4095], dtype=np.uint16)
    column = used[np.random.default_rng(1).integers(len(used), size=BLOCKS)]
    return SimpleNamespace(blocks=BLOCKS, path="/datasets/1", block_slots=column)


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SlotIndex:
    """An index that was made in several parts."""
    monkeypatch.setattr(slot_index, "INDEXED_FROM", 1)
    monkeypatch.setattr(slot_index, "_AT_ONCE", 1024)
    monkeypatch.setattr(slot_index, "_MANY", 0)
    return SlotIndex(version(), folder=tmp_path)


@pytest.mark.parametrize("ranges", [WHOLE, [(0, 1)], [(3, 1700), (1701, 1701), (2000, BLOCKS)], []])
@pytest.mark.parametrize("chosen", [[0], [4095], [1, 2, 8, 2000], [5], [], list(range(slots.SLOTS))])
def test_an_index_finds_what_a_search_finds(
    indexed: SlotIndex, chosen: list[int], ranges: list[tuple[int, int]]
) -> None:
    slot_mask = np.zeros(slots.SLOTS, dtype=np.bool_)
    slot_mask[chosen] = True
    blocks = indexed.blocks(slot_mask, ranges)
    column = version().block_slots
    assert blocks.dtype == np.int64
    assert blocks.tolist() == [
        block for begin, end in ranges for block in range(begin, end) if slot_mask[column[block]]
    ]
    assert blocks.tolist() == SlotIndex(version()).blocks(slot_mask, ranges).tolist()


def test_an_index_leaves_no_file_and_counts_every_slot(indexed: SlotIndex, tmp_path: Path) -> None:
    assert not list(tmp_path.iterdir())
    assert indexed.counts.tolist() == np.bincount(version().block_slots, minlength=slots.SLOTS).tolist()


def test_a_disk_without_room_costs_the_index_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(slot_index, "INDEXED_FROM", 1)
    monkeypatch.setattr(os, "posix_fallocate", full)
    blocks = SlotIndex(version(), folder=tmp_path).blocks(np.ones(slots.SLOTS, dtype=np.bool_), WHOLE)
    assert blocks.tolist() == list(range(BLOCKS))
    assert "No space left" in caplog.text
