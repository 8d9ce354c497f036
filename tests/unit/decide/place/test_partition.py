"""A partition of a copy over nodes with limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.decide.place.partition import partition_within
from tdcs.model import slots

ALL = slots.prefix(slots.SLOTS)


def sizes_of(*first: int) -> slots.Sizes:
    """Bytes of the first slots; the others have none."""
    sizes = np.zeros(slots.SLOTS, dtype=np.int64)
    sizes[: len(first)] = first
    return sizes


def partition(
    *first: int, weights: dict[str, int], limits: dict[str, int], chosen: bytes = ALL
) -> dict[str, bytes]:
    return partition_within(mount="/m", chosen=chosen, sizes=sizes_of(*first), weights=weights, limits=limits)


@settings(max_examples=60)
@given(
    first=st.lists(st.integers(0, 50), max_size=40),
    nodes=st.dictionaries(
        st.sampled_from("abcde"), st.tuples(st.integers(0, 100), st.integers(0, 400)), min_size=1
    ),
    chosen=st.integers(0, 40).map(slots.prefix),
)
def test_no_slot_is_on_two_nodes_and_no_node_has_more_than_its_limit(
    first: list[int], nodes: dict[str, tuple[int, int]], chosen: bytes
) -> None:
    limits = {name: limit for name, (_, limit) in nodes.items()}
    weights = {name: weight for name, (weight, _) in nodes.items()}
    parts = partition(*first, weights=weights, limits=limits, chosen=chosen)
    assert list(parts) == list(weights)
    sizes = sizes_of(*first)
    for name, part in parts.items():
        assert slots.bytes_in(part, sizes) <= limits[name]
        assert slots.difference(part, chosen) == bytes(slots.BITMAP_BYTES)
    assert sum(map(slots.count, parts.values())) == slots.count(slots.union(*parts.values()))


@settings(max_examples=40)
@given(first=st.lists(st.integers(1, 50), min_size=1, max_size=40), count=st.integers(1, 5))
def test_with_room_for_everything_on_each_node_every_slot_has_one(first: list[int], count: int) -> None:
    names = "abcde"[:count]
    parts = partition(*first, weights=dict.fromkeys(names, 1), limits=dict.fromkeys(names, sum(first)))
    assert sum(slots.bytes_in(part, sizes_of(*first)) for part in parts.values()) == sum(first)


@pytest.mark.parametrize("count", range(1, 65))
def test_limits_that_are_just_enough_are_filled_to_the_last_byte(count: int) -> None:
    limits = {"a": count // 2, "b": count - count // 2}
    parts = partition(*[1] * count, weights={"a": 1, "b": 1}, limits=limits)
    assert {name: slots.bytes_in(part, sizes_of(*[1] * count)) for name, part in parts.items()} == limits


def test_what_has_no_room_is_left_out_from_the_end() -> None:
    parts = partition(10, 10, 10, weights={"a": 1}, limits={"a": 29})
    assert slots.members(parts["a"])[:3].tolist() == [0, 1]
    parts = partition(10, 10, 10, weights={"a": 1}, limits={"a": 30})
    assert slots.members(parts["a"])[:3].tolist() == [0, 1, 2]


def test_a_node_gets_in_proportion_to_its_weight() -> None:
    first = [1] * 4000
    parts = partition(*first, weights={"large": 3, "small": 1}, limits={"large": 4000, "small": 4000})
    assert slots.bytes_in(parts["large"], sizes_of(*first)) == pytest.approx(3000, rel=0.05)


@pytest.mark.parametrize(
    ("weights", "limits"),
    [({"a": 0, "b": 0}, {"a": 100, "b": 100}), ({"a": 1, "b": 1}, {"a": 0, "b": 0})],
    ids=["no weight", "no room"],
)
def test_nodes_without_weight_or_room_get_no_bytes(weights: dict[str, int], limits: dict[str, int]) -> None:
    parts = partition(5, 5, weights=weights, limits=limits)
    assert [slots.bytes_in(part, sizes_of(5, 5)) for part in parts.values()] == [0, 0]
