"""The table of what nodes have left says the same as a loop over the nodes."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.decide.place.gang_fit import PodGroup, place, place_most
from tdcs.decide.queue.room_table import RoomTable

NAMES = [f"n{number}" for number in range(6)]
NODES = st.dictionaries(
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(["gpu", "cpu", "memory"]), st.integers(-2, 9), max_size=3),
)
GROUPS = st.lists(
    st.builds(
        PodGroup,
        count=st.integers(0, 5),
        request=st.dictionaries(st.sampled_from(["gpu", "cpu", "other"]), st.integers(0, 4), max_size=3),
        nodes=st.none() | st.frozensets(st.sampled_from([*NAMES, "gone"])),
    ),
    min_size=1,
    max_size=3,
)


def plain(free: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Without what is zero: a table has a cell for each resource of each node."""
    return {
        node: {resource: value for resource, value in sorted(amounts.items()) if value}
        for node, amounts in free.items()
    }


def now(table: RoomTable) -> dict[str, dict[str, int]]:
    return plain({node: dict(amounts) for node, amounts in table.amounts().items()})


@settings(max_examples=300)
@given(nodes=NODES, groups=GROUPS, but=st.frozensets(st.sampled_from(NAMES)))
def test_a_gang_fits_and_is_placed_as_node_by_node(
    nodes: dict[str, dict[str, int]], groups: Sequence[PodGroup], but: frozenset[str]
) -> None:
    table = RoomTable(nodes)
    rows = table.mask(but)
    open_nodes = {node: amounts for node, amounts in nodes.items() if node not in but}
    free_after = place(groups=groups, free=open_nodes, scarce="gpu")
    assert table.fits(groups, scarce="gpu", but=rows) == (free_after is not None)
    assert now(table) == plain(nodes)
    rows_used = table.take(groups, scarce="gpu", but=rows)
    assert (rows_used is not None) == (free_after is not None)
    expected = {**nodes, **{node: dict(amounts) for node, amounts in (free_after or {}).items()}}
    assert now(table) == plain(expected)
    # Only the rows that `take` returns have changed, and later calls see them.
    assert {node for node in nodes if plain(nodes)[node] != plain(expected)[node]} <= set(rows_used or ())
    again = place(groups=groups, free={node: expected[node] for node in open_nodes}, scarce="gpu")
    assert table.fits(groups, scarce="gpu", but=rows) == (again is not None)


@settings(max_examples=200)
@given(nodes=NODES, groups=GROUPS)
def test_as_many_pods_find_room_as_node_by_node(
    nodes: dict[str, dict[str, int]], groups: Sequence[PodGroup]
) -> None:
    table, free = RoomTable(nodes), {node: dict(amounts) for node, amounts in nodes.items()}
    place_most(groups=groups, free=free, scarce="gpu")  # type: ignore[arg-type]
    table.take_most(groups, scarce="gpu")
    assert now(table) == plain(free)


def test_amounts_beyond_all_measure_overflow_nothing() -> None:
    table = RoomTable({"a": {"memory": 10**40, "gpu": 8}, "b": {"memory": 1 << 40, "gpu": 8}})
    huge = PodGroup(count=10**12, request={"memory": 10**30})
    assert not table.fits([huge], scarce="gpu")
    assert not table.fits([PodGroup(count=2, request={"memory": 10**30, "gpu": 1})], scarce="gpu")
    assert table.fits([PodGroup(count=10**12, request={})], scarce="gpu")  # pods that ask for nothing
    assert table.take([PodGroup(count=9, request={"memory": 1 << 30, "gpu": 1})], scarce="gpu") == ["a", "b"]


@settings(max_examples=300)
@given(nodes=NODES, groups=GROUPS)
def test_what_pods_may_start_with_is_given_to_no_others_however_it_is(
    nodes: dict[str, dict[str, int]], groups: Sequence[PodGroup]
) -> None:
    table = RoomTable(nodes)
    theirs = frozenset().union(*(nodes if group.nodes is None else group.nodes for group in groups))
    before = {node: max(amounts.get("gpu", 0), 0) for node, amounts in nodes.items()}
    table.reserve(groups, scarce="gpu")
    after = {node: max(amounts.get("gpu", 0), 0) for node, amounts in table.amounts().items()}
    assert all(after[node] == before[node] for node in nodes if node not in theirs)
    for group in groups:
        mine = [node for node in nodes if group.nodes is None or node in group.nodes]
        demand = group.count * group.request.get("gpu", 0)
        assert sum(before[node] - after[node] for node in mine) >= min(
            demand, sum(before[node] for node in mine)
        )
    at_most = sum(group.count * group.request.get("gpu", 0) for group in groups)
    assert sum(before.values()) - sum(after.values()) <= at_most


def test_pods_that_find_no_room_as_it_is_keep_what_is_free() -> None:
    table = RoomTable({"a": {"gpu": 3}, "b": {"gpu": 2}, "other": {"gpu": 8}})
    table.reserve([PodGroup(count=1, request={"gpu": 4}, nodes=frozenset({"a", "b"}))], scarce="gpu")
    assert now(table) == {"a": {}, "b": {"gpu": 1}, "other": {"gpu": 8}}
    assert not table.fits([PodGroup(count=2, request={"gpu": 1}, nodes=frozenset({"a", "b"}))], scarce="gpu")
