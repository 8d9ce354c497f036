"""Placement of copies: which nodes, which blocks, and what holds for any input."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.policy.placement import (
    Assignment,
    BlockSize,
    CacheNode,
    CopyPlan,
    Mode,
    assign_blocks,
    node_bytes,
    plan_copy,
    serving_nodes,
)

GIB = 1 << 30


def node(
    name: str, *, capacity: int = 10 * GIB, free: int | None = None, held: int = 0, gpus: int = 4
) -> CacheNode:
    return CacheNode(
        name=name,
        capacity_bytes=capacity,
        free_bytes=capacity if free is None else free,
        held_bytes=held,
        free_gpus=gpus,
    )


def blocks(count: int, *, length: int = 1000) -> list[BlockSize]:
    return [BlockSize(key=f"images/{i:06}.jpg", length=length) for i in range(count)]


def loads(assignments: Sequence[Assignment]) -> Counter[str]:
    total: Counter[str] = Counter()
    for assignment in assignments:
        for name in assignment.nodes:
            total[name] += assignment.length
    return total


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


def test_a_partition_gives_each_node_its_share_within_a_few_percent() -> None:
    nodes = [node("n1"), node("n2"), node("n3", capacity=20 * GIB)]
    plan = plan_copy(
        dataset="team/a", dataset_bytes=4_000_000, nodes=nodes, mode=Mode.PARTITION, node_count=3
    )
    load = loads(list(assign_blocks(plan=plan, blocks=blocks(4000))))
    assert load.total() == 4_000_000
    for name, share in {"n1": 0.25, "n2": 0.25, "n3": 0.5}.items():
        assert load[name] == pytest.approx(4_000_000 * share, rel=0.06)


def test_adding_a_node_moves_about_its_share_and_no_more() -> None:
    def holders(count: int) -> dict[str, tuple[str, ...]]:
        nodes = [node(f"n{i}") for i in range(count)]
        plan = plan_copy(
            dataset="a", dataset_bytes=5_000_000, nodes=nodes, mode=Mode.PARTITION, node_count=count
        )
        return {a.key: a.nodes for a in assign_blocks(plan=plan, blocks=blocks(5000))}

    before, after = holders(4), holders(5)
    moved = sum(before[key] != after[key] for key in before) / len(before)
    assert 0.15 < moved < 0.30


def test_what_does_not_fit_is_left_out_and_the_rest_is_kept() -> None:
    plan = plan_copy(
        dataset="a",
        dataset_bytes=10_000,
        nodes=[node("n1", free=4_000), node("n2", free=2_000)],
        node_count=2,
    )
    assert not plan.fits
    assigned = list(assign_blocks(plan=plan, blocks=blocks(10)))
    assert loads(assigned) == {"n1": 4_000, "n2": 2_000}
    assert sum(not a.nodes for a in assigned) == 4


@given(
    free=st.lists(st.integers(min_value=0, max_value=50_000), min_size=1, max_size=6),
    lengths=st.lists(st.integers(min_value=0, max_value=9_000), max_size=60),
    mode=st.sampled_from(Mode),
    count=st.none() | st.integers(min_value=1, max_value=6),
)
def test_no_node_is_ever_given_more_than_it_has_and_the_plan_is_stable(
    free: list[int], lengths: list[int], mode: Mode, count: int | None
) -> None:
    nodes = [node(f"n{i}", capacity=60_000, free=room) for i, room in enumerate(free)]
    size = sum(lengths)
    plan = plan_copy(dataset="a", dataset_bytes=size, nodes=nodes, mode=mode, node_count=count)
    sizes = [BlockSize(key=str(i), length=length) for i, length in enumerate(lengths)]
    assigned = list(assign_blocks(plan=plan, blocks=sizes))
    assert [a.key for a in assigned] == [b.key for b in sizes]
    load = loads(assigned)
    room = {n.name: n.free_bytes for n in nodes}
    assert all(load[name] <= room[name] for name in load)
    assert assigned == list(assign_blocks(plan=plan, blocks=sizes))
    if plan.fits and plan.mode is Mode.REPLICATE:
        assert all(set(a.nodes) == set(names(plan)) for a in assigned)
    if plan.mode is Mode.PARTITION:
        assert all(len(a.nodes) <= 1 for a in assigned)


@pytest.mark.parametrize("mode", [Mode.PARTITION, Mode.REPLICATE])
def test_the_bytes_by_node_are_about_those_of_the_blocks(mode: Mode) -> None:
    nodes = [node("a", capacity=4 * GIB, free=GIB), node("b", capacity=8 * GIB), node("c", free=6 * GIB)]
    many = blocks(4000, length=3 * GIB // 1000)
    total = sum(block.length for block in many)
    plan = plan_copy(dataset="team/a", dataset_bytes=total, nodes=nodes, mode=mode, node_count=3)
    by_block = loads(list(assign_blocks(plan=plan, blocks=many)))
    for name, planned in node_bytes(plan).items():
        assert planned == pytest.approx(by_block[name], rel=0.06)


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


def test_a_copy_lies_on_as_many_nodes_as_its_readers_need() -> None:
    assert serving_nodes(demand=0.0, node_rate=10.0) == 1
    assert serving_nodes(demand=30.0, node_rate=10.0, headroom=2.0) == 6


def test_a_copy_takes_no_more_than_its_share_of_a_nodes_cache() -> None:
    on = {"demand": 0.0, "node_rate": 10.0, "copy_bytes": 1000, "node_bytes_total": 400}
    assert serving_nodes(**on, largest_share=0.5) == 5  # type: ignore[arg-type]
    assert serving_nodes(**on, largest_share=1.0) == 3  # type: ignore[arg-type]
    assert serving_nodes(**on) == 20  # type: ignore[arg-type]
    assert serving_nodes(demand=0.0, node_rate=10.0, copy_bytes=1000) == 1


def test_blocks_keep_to_the_weights_of_the_nodes_before_any_of_them_has_its_share() -> None:
    """A tenth of the planned bytes: no node is near its share, so the hashes alone decide."""
    nodes = [node("small", capacity=10 * GIB), node("large", capacity=30 * GIB)]
    plan = plan_copy(dataset="a", dataset_bytes=40_000_000, nodes=nodes, mode=Mode.PARTITION, node_count=2)
    load = loads(list(assign_blocks(plan=plan, blocks=blocks(4000))))
    assert load["large"] / load.total() == pytest.approx(0.75, abs=0.03)
