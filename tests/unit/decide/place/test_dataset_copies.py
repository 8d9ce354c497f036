"""Worth of nodes for one copy of a dataset, and for several copies together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.dataset_copies import CopyOnNodes, merged, preferring

SIZES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100))


def copy(total: int = 100, *, arriving: dict[str, int] | None = None, **held: int) -> CopyOnNodes:
    return CopyOnNodes(total_bytes=total, node_bytes=held, arriving=arriving or {})


def test_bytes_on_their_way_count_half_and_add_to_those_that_arrived() -> None:
    assert copy(arriving={"a": 41, "b": 41}, a=10, c=3).worth == {"a": 30, "b": 20, "c": 3}


def test_the_best_node_is_first_and_a_node_worth_nothing_is_left_out() -> None:
    assert copy(a=1, b=9, none=0, c=5).ranked == ["b", "c", "a"]
    assert copy().ranked == []


@pytest.mark.parametrize(
    ("candidates", "place"),
    [
        (None, 0),
        ({"best"}, 0),
        ({"equal"}, 0),
        ({"less"}, 2),
        ({"less", "equal"}, 0),
        ({"none", "stranger"}, None),
        (set(), None),
    ],
)
def test_place_of_the_best_candidate(candidates: set[str] | None, place: int | None) -> None:
    assert copy(best=9, equal=9, less=4, none=0).place_of_best(candidates) == place


def test_a_copy_that_is_nowhere_has_no_best_node() -> None:
    assert copy().place_of_best(None) is None
    assert copy().near.weight == 0
    assert copy().near_from(None).nodes == {}


def test_nodes_are_worth_their_part_of_the_best_times_the_size_of_the_copy() -> None:
    near = copy(100, a=50, b=25).near
    assert (near.weight, near.nodes) == (100, {"a": 100.0, "b": 50.0})


def test_without_the_best_nodes_the_next_one_is_worth_the_whole_copy() -> None:
    near = copy(100, a=50, b=25, c=5).near_from(1)
    assert (near.weight, near.nodes) == (100, {"b": 100.0, "c": 20.0})


def test_a_node_with_more_bytes_than_the_copy_has_now_raises_its_weight() -> None:
    assert copy(10, a=40).near.weight == 40


def test_several_copies_offer_the_best_of_them_on_each_node() -> None:
    together = merged([copy(100, arriving={"a": 5, "b": 1}, a=10), copy(90, arriving={"a": 2}, a=4, b=7)])
    assert together is not None
    assert (together.total_bytes, together.node_bytes, together.arriving) == (
        100,
        {"a": 10, "b": 7},
        {"a": 5, "b": 1},
    )
    assert merged([]) is None


def test_bytes_of_another_copy_count_half_unless_a_preload_brought_them() -> None:
    other = CopyOnNodes(total_bytes=100, node_bytes={"a": 80, "b": 81}, arriving={"c": 7})
    brought = CopyOnNodes(total_bytes=100, node_bytes={"d": 60}, arriving={"e": 9}, brought=True)
    seen_by_pod = preferring(copy(100, a=50), other_copies=[other, brought])
    assert seen_by_pod.node_bytes == {"a": 50, "b": 40, "d": 60}
    assert seen_by_pod.arriving == {"c": 3, "e": 9}
    assert not seen_by_pod.brought


@given(first=SIZES, second=SIZES, third=SIZES)
def test_another_copy_never_makes_a_node_worth_less(
    first: dict[str, int], second: dict[str, int], third: dict[str, int]
) -> None:
    chosen = CopyOnNodes(total_bytes=100, node_bytes=first)
    other_copies = [CopyOnNodes(total_bytes=100, node_bytes=sizes) for sizes in (second, third)]
    alone, among = chosen.worth, preferring(chosen, other_copies=other_copies).worth
    together = merged([chosen, *other_copies])
    assert together is not None
    assert all(alone[node] <= among[node] <= together.worth[node] for node in first)
