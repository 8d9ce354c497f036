"""Slots: a stable hash, nested prefixes, and a partition that is even and moves little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.model import slots
from tdcs.model.slots import BITMAP_BYTES, SLOTS

SLOT_SETS = st.sets(st.integers(0, SLOTS - 1), max_size=200)
SEEDS = st.integers(0, 2**32 - 1)


def sizes_of(seed: int, *, spread: float = 0.05) -> slots.Sizes:
    """Bytes in each slot of a dataset of many files."""
    return (np.random.default_rng(seed).normal(1, spread, SLOTS).clip(0) * 1e7).astype(np.int64)


def test_the_slot_of_a_block_is_the_same_forever() -> None:
    slot_numbers = [slots.slot_of(b"train/0001.jpg", number) for number in range(4)]
    assert slot_numbers == [3521, 3969, 2485, 134]
    assert slots.slot_of(b"", 0) == 1218
    assert slots.slot_of("ü/猫".encode(), 7) == 1264
    assert slots.slot_of(b"\xff\xfe", 0) == slots.slot_of(b"\xff\xfe", 0)


def test_the_partition_of_a_mount_is_the_same_forever() -> None:
    parts = slots.partition(
        mount="/datasets/1f",
        capacities={"a": 10, "b": 10, "c": 20},
        sizes=np.full(SLOTS, 100, dtype=np.int64),
    )
    assert {node: slots.count(part) for node, part in parts.items()} == {"a": 1024, "b": 1025, "c": 2047}
    assert {node: slots.members(part)[:4].tolist() for node, part in parts.items()} == {
        "a": [1, 3, 4, 5],
        "b": [12, 17, 19, 20],
        "c": [0, 2, 6, 7],
    }


def test_blocks_spread_evenly_over_the_slots() -> None:
    counts = np.bincount(
        [slots.slot_of(b"train/n%08d.jpg" % number, 0) for number in range(100_000)]
        + [slots.slot_of(b"large.tar", number) for number in range(100_000)],
        minlength=SLOTS,
    )
    mean = 200_000 / SLOTS
    assert abs(float(((counts - mean) ** 2 / mean).sum()) - SLOTS) < 6 * np.sqrt(2 * SLOTS)  # chi-squared


@given(SLOT_SETS)
def test_a_bitmap_holds_exactly_its_slots(some: set[int]) -> None:
    bitmap = slots.bitmap(some)
    assert len(bitmap) == BITMAP_BYTES
    assert slots.members(bitmap).tolist() == sorted(some)
    assert slots.of_mask(slots.mask_of(bitmap)) == bitmap
    assert slots.count(bitmap) == len(some)


@given(SLOT_SETS, SLOT_SETS)
def test_bitmaps_combine_as_sets_do(one: set[int], other: set[int]) -> None:
    a, b = slots.bitmap(one), slots.bitmap(other)
    assert slots.union(a, b) == slots.bitmap(one | other)
    assert slots.intersection(a, b) == slots.bitmap(one & other)
    assert slots.difference(a, b) == slots.bitmap(one - other)


def test_slot_zero_is_the_highest_bit_of_the_first_byte() -> None:
    assert slots.bitmap([0])[0] == 0x80
    assert slots.bitmap([SLOTS - 1])[-1] == 0x01
    assert slots.prefix(9)[:2] == b"\xff\x80"


def test_a_bitmap_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="512 bytes"):
        slots.mask_of(b"\xff")


@given(SEEDS, st.floats(0, 5e10), st.floats(0, 5e10))
def test_a_smaller_limit_holds_a_subset_of_a_larger_one(seed: int, one: float, other: float) -> None:
    sizes = sizes_of(seed)
    small, large = (
        slots.prefix(slots.prefix_within(sizes, limit)) for limit in (min(one, other), max(one, other))
    )
    assert not slots.count(slots.difference(small, large))
    assert slots.bytes_in(large, sizes) <= max(one, other)


def test_a_prefix_is_a_fair_sample_of_many_files() -> None:
    sizes = sizes_of(1)
    length = slots.prefix_within(sizes, 0.3 * float(sizes.sum()))
    assert length / SLOTS == pytest.approx(0.3, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_shares_follow_the_capacities_within_a_few_percent(seed: int, weights: list[int]) -> None:
    sizes = sizes_of(seed)
    capacities = {f"node-{number}": weight * 10**12 for number, weight in enumerate(weights)}
    parts = slots.partition(mount=f"/datasets/{seed}", capacities=capacities, sizes=sizes)
    assert slots.union(*parts.values()) == slots.prefix(SLOTS)
    assert sum(slots.count(part) for part in parts.values()) == SLOTS
    for node, part in parts.items():
        share = float(sizes.sum()) * capacities[node] / sum(capacities.values())
        largest = float(sizes.max())
        assert slots.bytes_in(part, sizes) <= max(share * 1.02, share + largest) + 1
        assert slots.bytes_in(part, sizes) >= share * 0.95 - largest


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 16))
def test_a_node_that_joins_takes_its_share_and_little_else_moves(seed: int, nodes: int) -> None:
    sizes = sizes_of(seed)
    capacities = {f"node-{number}": 10**12 for number in range(nodes)}
    before = slots.partition(mount="/datasets/1f", capacities=capacities, sizes=sizes)
    after = slots.partition(mount="/datasets/1f", capacities={**capacities, "new": 10**12}, sizes=sizes)
    moved = sum(
        slots.bytes_in(slots.difference(part, before.get(node, bytes(BITMAP_BYTES))), sizes)
        for node, part in after.items()
    ) / float(sizes.sum())
    assert 0.95 / (nodes + 1) - 0.001 <= moved <= 1.25 / (nodes + 1) + 0.01


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(2, 16))
def test_a_node_that_leaves_gives_its_slots_to_the_others(seed: int, nodes: int) -> None:
    sizes = sizes_of(seed)
    capacities = {f"node-{number}": 10**12 for number in range(nodes)}
    before = slots.partition(mount="/datasets/1f", capacities=capacities, sizes=sizes)
    after = slots.partition(mount="/datasets/1f", capacities={**capacities, "node-0": 0}, sizes=sizes)
    assert after["node-0"] == bytes(BITMAP_BYTES)
    share = sum(
        slots.bytes_in(slots.intersection(after[node], before[node]), sizes) for node in list(before)[1:]
    ) / float(sizes.sum())
    assert share >= 1 - 1.25 / nodes - 0.01


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(13, 120))
def test_many_nodes_get_their_shares_within_a_few_slots_and_little_moves_for_another_one(
    seed: int, nodes: int
) -> None:
    sizes = sizes_of(seed)
    weights = np.random.default_rng(seed).integers(5, 15, nodes)
    capacities = {f"node-{number}": int(weight) * 10**11 for number, weight in enumerate(weights)}
    parts = slots.partition(mount=f"/datasets/{seed}", capacities=capacities, sizes=sizes)
    assert slots.union(*parts.values()) == slots.prefix(SLOTS)
    assert sum(slots.count(part) for part in parts.values()) == SLOTS
    total, largest = float(sizes.sum()), float(sizes.max())
    for node, size in zip(parts, slots.bytes_of(tuple(parts.values()), sizes), strict=True):
        assert size == slots.bytes_in(parts[node], sizes)
        share = total * capacities[node] / sum(capacities.values())
        assert size <= max(share * 1.02, share + largest) + 1
        assert size >= share * 0.95 - 4 * largest
    wider = {**capacities, "new": 10**12}
    after = slots.partition(mount=f"/datasets/{seed}", capacities=wider, sizes=sizes)
    moved = sum(slots.bytes_in(slots.difference(after[node], parts[node]), sizes) for node in parts) / total
    assert moved <= 0.03


def test_the_owners_of_slots_make_the_bitmaps_of_their_nodes() -> None:
    owners = np.full(SLOTS, -1)
    owners[[0, 5, 9]] = [1, 0, 1]
    assert slots.of_owners(owners, count=3) == [slots.bitmap([5]), slots.bitmap([0, 9]), slots.bitmap([])]


def test_the_part_that_is_held_is_spread_evenly_however_small_it_is() -> None:
    sizes = np.where(slots.mask_of(slots.prefix(200)), sizes_of(3), 0)
    parts = slots.partition(mount="/datasets/1f", capacities=dict.fromkeys("abcd", 10**12), sizes=sizes)
    held = [slots.bytes_in(part, sizes) for part in parts.values()]
    assert max(held) <= 1.03 * sum(held) / 4
    assert min(held) >= 0.9 * sum(held) / 4


def test_a_few_large_files_are_spread_as_evenly_as_they_can_be() -> None:
    sizes = np.zeros(SLOTS, dtype=np.int64)
    sizes[[5, 900, 1700, 2500, 3300, 4000]] = 1 << 30
    parts = slots.partition(mount="/datasets/1f", capacities=dict.fromkeys("abc", 10**12), sizes=sizes)
    assert max(slots.bytes_in(part, sizes) for part in parts.values()) <= 3 << 30


def test_nodes_without_capacity_are_refused_and_named() -> None:
    with pytest.raises(ValueError, match="/datasets/1f"):
        slots.partition(mount="/datasets/1f", capacities={"a": 0}, sizes=sizes_of(1))


def test_a_dataset_without_bytes_has_a_partition_too() -> None:
    parts = slots.partition(
        mount="/datasets/1f", capacities={"a": 1, "b": 1}, sizes=np.zeros(SLOTS, dtype=np.int64)
    )
    assert sum(slots.count(part) for part in parts.values()) == SLOTS
