"""Placement of copies: which nodes, which blocks, and what holds for any input."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.copy_nodes import (
    CacheNode,
    CopyPlan,
    Mode,
    node_bytes,
    plan_copy,
)

GIB = 1 << 30


def node(
    name: str,
    *,
    capacity: int = 10 * GIB,
    free: int | None = None,
    held: int = 0,
    gpus: int = 4,
    read: bool = False,
) -> CacheNode:
    return CacheNode(
        name=name,
        capacity_bytes=capacity,
        free_bytes=capacity if free is None else free,
        held_bytes=held,
        free_gpus=gpus,
        has_readers=read,
    )


def names(plan: CopyPlan) -> list[str]:
    return [chosen.name for chosen in plan.nodes]


def test_auto_takes_one_node_and_holds_all_there_when_one_is_enough() -> None:
    plan = plan_copy(dataset="team/a", dataset_bytes=GIB, nodes=[node("n1"), node("n2")])
    assert len(plan.nodes) == 1
    assert plan.mode is Mode.REPLICATE
    assert plan.fits


def test_auto_partitions_over_the_fewest_nodes_when_no_single_one_is_enough() -> None:
    nodes = [node(f"n{i}") for i in range(4)]
    plan = plan_copy(dataset="team/a", dataset_bytes=15 * GIB, nodes=nodes)
    assert len(plan.nodes) == 2
    assert plan.mode is Mode.PARTITION
    assert plan.fits


def test_auto_with_a_node_count_replicates_where_each_node_can_hold_everything() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    plan = plan_copy(dataset="team/a", dataset_bytes=GIB, nodes=nodes, node_count=2)
    assert len(plan.nodes) == 2
    assert plan.mode is Mode.REPLICATE


def test_replicate_without_a_count_takes_every_node_that_can_hold_the_dataset() -> None:
    nodes = [node("big"), node("small", capacity=GIB), node("large")]
    plan = plan_copy(dataset="team/a", dataset_bytes=5 * GIB, nodes=nodes, mode=Mode.REPLICATE)
    assert set(names(plan)) == {"big", "large"}


def test_nodes_that_hold_bytes_already_are_kept() -> None:
    nodes = [node("n1", free=10 * GIB), node("n2", free=2 * GIB, held=GIB), node("n3")]
    plan = plan_copy(dataset="team/a", dataset_bytes=GIB, nodes=nodes, node_count=1)
    assert names(plan) == ["n2"]


def test_nodes_with_free_gpus_come_before_nodes_without() -> None:
    nodes = [node("busy", gpus=0), node("idle", gpus=2, capacity=9 * GIB)]
    assert names(plan_copy(dataset="team/a", dataset_bytes=GIB, nodes=nodes, node_count=1)) == ["idle"]


def test_nodes_without_room_are_never_chosen() -> None:
    nodes = [node("full", free=0), node("free")]
    assert names(plan_copy(dataset="team/a", dataset_bytes=GIB, nodes=nodes, node_count=2)) == ["free"]


def test_no_node_at_all_gives_an_empty_plan_that_does_not_fit() -> None:
    plan = plan_copy(dataset="team/a", dataset_bytes=GIB, nodes=[])
    assert plan.nodes == ()
    assert not plan.fits


def test_datasets_without_history_spread_over_equal_nodes() -> None:
    nodes = [node(f"n{i}") for i in range(4)]
    first = Counter(
        names(plan_copy(dataset=f"team/{i}", dataset_bytes=GIB, nodes=nodes, node_count=1))[0]
        for i in range(400)
    )
    assert all(60 <= first[n.name] <= 140 for n in nodes)


@pytest.mark.parametrize(("size", "count"), [(-1, 1), (1, 0)])
def test_nonsense_is_refused_with_the_name_of_the_dataset(size: int, count: int) -> None:
    with pytest.raises(ValueError, match="team/a"):
        plan_copy(dataset="team/a", dataset_bytes=size, nodes=[node("n1")], node_count=count)


@given(
    free=st.lists(st.integers(min_value=0, max_value=1000), min_size=1, max_size=8),
    size=st.integers(min_value=0, max_value=5000),
)
def test_the_bytes_by_node_hold_all_that_fits_and_keep_to_the_limits(free: list[int], size: int) -> None:
    nodes = [node(f"n{i}", capacity=1000, free=room) for i, room in enumerate(free)]
    plan = plan_copy(dataset="d", dataset_bytes=size, nodes=nodes, mode=Mode.PARTITION)
    planned = node_bytes(plan)
    limits = {chosen.name: chosen.limit_bytes for chosen in plan.nodes}
    assert sum(planned.values()) == min(size, sum(limits.values()))
    assert all(0 <= planned[name] <= limits[name] for name in planned)


@pytest.mark.parametrize(
    ("nodes", "size", "chosen", "mode"),
    [
        pytest.param(
            [node("a", held=GIB), node("b", read=True)],
            GIB,
            ["b"],
            Mode.REPLICATE,
            id="it goes where it is read",
        ),
        pytest.param(
            [node("a", read=True), node("b", read=True), node("c")],
            GIB,
            ["a", "b"],
            Mode.REPLICATE,
            id="whole next to each reader",
        ),
        pytest.param(
            [node("a", read=True), node("b", read=True, free=GIB), node("c")],
            5 * GIB,
            ["a"],
            Mode.REPLICATE,
            id="whole where there is room, not in parts because one node is full",
        ),
        pytest.param(
            [node("a"), node("b", read=True), node("c", read=True)],
            15 * GIB,
            ["b", "c"],
            Mode.PARTITION,
            id="parts next to the readers of what is too large for each",
        ),
        pytest.param(
            [node("a"), node("b", read=True)], 15 * GIB, ["b", "a"], Mode.PARTITION, id="others for the rest"
        ),
    ],
)
def test_where_data_follows_its_readers_the_copy_is_next_to_them(
    nodes: list[CacheNode], size: int, chosen: list[str], mode: Mode
) -> None:
    plan = plan_copy(dataset="team/a", dataset_bytes=size, nodes=nodes)
    assert (sorted(names(plan)), plan.mode) == (sorted(chosen), mode)
