"""Whether the pods of a job fit at once, over any resources."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.decide.place.gang_fit import (
    Amounts,
    PodGroup,
    most_that_fit,
    place,
    place_most,
    room_for,
)

NODES = st.lists(
    st.fixed_dictionaries({"gpu": st.integers(0, 8), "cpu": st.integers(0, 16)}), min_size=0, max_size=6
).map(lambda nodes: {f"n{number}": node for number, node in enumerate(nodes)})
GROUPS = st.lists(
    st.builds(
        PodGroup,
        count=st.integers(1, 5),
        request=st.fixed_dictionaries({"gpu": st.integers(0, 4), "cpu": st.integers(0, 6)}),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150)
@given(nodes=NODES, groups=GROUPS)
def test_what_is_placed_is_taken_once_and_no_node_is_overfull(
    nodes: dict[str, dict[str, int]], groups: Sequence[PodGroup]
) -> None:
    before = {name: dict(node) for name, node in nodes.items()}
    free_after = place(groups=groups, free=nodes, scarce="gpu")
    assert nodes == before
    if free_after is None:
        return
    assert all(value >= 0 for node in free_after.values() for value in node.values())
    for resource in ("gpu", "cpu"):
        used = sum(before[name][resource] - free_after[name][resource] for name in nodes)
        assert used == sum(group.count * group.request[resource] for group in groups)


@settings(max_examples=150)
@given(nodes=NODES, count=st.integers(1, 8), gpus=st.integers(0, 4), cpus=st.integers(0, 6))
def test_for_equal_pods_the_answer_is_exact(
    nodes: dict[str, dict[str, int]], count: int, gpus: int, cpus: int
) -> None:
    group = PodGroup(count=count, request={"gpu": gpus, "cpu": cpus})
    room = sum(min(room_for(request=group.request, free=node), count) for node in nodes.values())
    assert (place(groups=[group], free=nodes, scarce="gpu") is not None) == (room >= count)
    assert most_that_fit(group=group, free=nodes) == min(room, count)


def test_what_finds_no_room_takes_nothing_and_the_rest_is_placed() -> None:
    free: dict[str, Amounts] = {"a": {"gpu": 4}, "b": {"gpu": 1}}
    groups = [PodGroup(count=2, request={"gpu": 4}), PodGroup(count=1, request={"gpu": 1})]
    place_most(groups=groups, free=free, scarce="gpu")
    assert free == {"a": {"gpu": 0}, "b": {"gpu": 0}}


def test_the_fullest_node_that_has_room_is_filled_first() -> None:
    free = {"a": {"gpu": 8}, "b": {"gpu": 2}}
    free_after = place(groups=[PodGroup(count=1, request={"gpu": 2})], free=free, scarce="gpu")
    assert free_after == {"a": {"gpu": 8}, "b": {"gpu": 0}}


def test_nodes_that_a_group_may_not_use_are_left_alone() -> None:
    group = PodGroup(count=1, request={"gpu": 1}, nodes=frozenset({"b"}))
    assert place(groups=[group], free={"a": {"gpu": 1}}) is None
    assert most_that_fit(group=group, free={"a": {"gpu": 1}, "b": {"gpu": 3}}) == 1
