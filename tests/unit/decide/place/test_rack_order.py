"""Which racks the nodes of copies are in, within a zone and where there are no zones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.builders import DIGEST, MOUNT, totals_of

from tdcs.api.dataset import PlacementZones
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.copy_nodes import CacheNode, CopyPlan, Mode, plan_copy
from tdcs.decide.place.slot_nodes import Candidate, PlacementInput, WantPlacement, place
from tdcs.decide.place.zone_order import Zones
from tdcs.model.nearness import Place, rack_of

SIZE = 120


def node(name: str, rack: str, zone: str = "", *, free: int = 100, **more: Any) -> CacheNode:
    place: Place = (rack, zone) if zone else (rack,)
    return CacheNode(
        name=name,
        capacity_bytes=200,
        free_bytes=free,
        zone=(zone,) if zone else (),
        rack=place if rack else (),
        **more,
    )


def racks_of(plan: CopyPlan, nodes: Sequence[CacheNode]) -> list[Place]:
    racks = {each.name: each.rack for each in nodes}
    return [racks[each.name] for each in plan.nodes]


@pytest.mark.parametrize(
    ("place", "zone", "rack"),
    [
        (("r", "z", "eu"), ("z", "eu"), ("r", "z", "eu")),
        (("", "z", "eu"), ("z", "eu"), ()),
        (("z", "eu"), ("z", "eu"), ()),  # zones are the nearest level
        (("r",), (), ("r",)),  # there are racks alone
        ((), (), ()),
    ],
)
def test_a_rack_is_the_nearest_level_below_zones(place: Place, zone: Place, rack: Place) -> None:
    assert rack_of(place, zone=zone) == rack


@pytest.mark.parametrize("zone", ["", "z"])
def test_a_partitioned_copy_is_in_one_rack_where_one_has_room(zone: str) -> None:
    nodes = [
        node("a1", "a", zone, free_gpus=1),
        node("b1", "b", zone, free=90),
        node("c1", "c", zone, free=10),
        node("b2", "b", zone, free=60),
    ]
    plan = plan_copy(dataset="d", dataset_bytes=SIZE, nodes=nodes, mode=Mode.PARTITION)
    assert {each.name for each in plan.nodes} == {"b1", "b2"}
    # What no rack has room for begins on the best node, and goes on in its rack.
    whole = plan_copy(dataset="d", dataset_bytes=190, nodes=nodes, mode=Mode.PARTITION)
    assert whole.fits
    assert whole.nodes[0].name == "a1"


def test_the_zone_counts_before_the_rack() -> None:
    nodes = [
        node("a1", "r", "a", free=50),
        node("a2", "s", "a", free=90),
        node("b1", "r", "b", free=60, free_gpus=1),
        node("b2", "r", "b", free=50),
    ]
    plan = plan_copy(dataset="d", dataset_bytes=SIZE, nodes=nodes, mode=Mode.PARTITION)
    assert {each.name for each in plan.nodes} == {"a1", "a2"}  # a rack of one name in two zones is two


@given(
    drawn=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("rst")), min_size=1, max_size=9),
    count=st.integers(1, 6),
)
def test_replicas_are_spread_over_the_racks_of_each_zone(drawn: list[tuple[str, str]], count: int) -> None:
    nodes = [node(f"n{number}", rack, zone, free=200) for number, (zone, rack) in enumerate(drawn)]
    plan = plan_copy(dataset="d", dataset_bytes=SIZE, nodes=nodes, mode=Mode.REPLICATE, node_count=count)

    without = [replace(each, rack=()) for each in nodes]
    same = plan_copy(dataset="d", dataset_bytes=SIZE, nodes=without, mode=Mode.REPLICATE, node_count=count)
    zones = {each.name: each.zone for each in nodes}
    assert Counter(zones[each.name] for each in plan.nodes) == Counter(
        zones[each.name] for each in same.nodes
    )
    chosen, there = Counter(racks_of(plan, nodes)), Counter(each.rack for each in nodes)
    for rack, number in chosen.items():
        others = [other for other in there if other[1] == rack[1] and other != rack]
        assert all(chosen[other] >= min(number - 1, there[other]) for other in others)


@given(
    drawn=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=7),
    policy=st.sampled_from(Zones),
    count=st.one_of(st.none(), st.integers(1, 4)),
)
def test_one_rack_is_as_none(drawn: list[tuple[int, int]], policy: Zones, count: int | None) -> None:
    nodes = [
        node(f"n{number}", "r", free=10 * free, free_gpus=gpus) for number, (free, gpus) in enumerate(drawn)
    ]
    unknown = [replace(each, rack=()) for each in nodes]
    found = [
        plan_copy(dataset="d", dataset_bytes=SIZE, nodes=each, node_count=count, zones=policy)
        for each in (nodes, unknown)
    ]
    assert found[0] == found[1]


def test_what_is_cached_stays_in_its_rack() -> None:
    nodes = [node("a1", "a", held_bytes=50), node("b1", "b"), node("b2", "b"), node("a2", "a")]
    plan = plan_copy(dataset="d", dataset_bytes=150, nodes=nodes, mode=Mode.PARTITION)
    assert [each.name for each in plan.nodes] == ["a1", "a2"]


def placements(
    nodes: Sequence[CacheNode],
    *wants: Want,
    held: Mapping[str, Mapping[str, frozenset[str]]] | None = None,
) -> tuple[WantPlacement, ...]:
    return place(
        PlacementInput(
            mount=MOUNT,
            manifest=DIGEST,
            wants=wants,
            totals={(): totals_of([10] * 12)},
            candidates=tuple(Candidate(node=each) for each in nodes),
            held_before=held or {},
        )
    )


def racks_of_copies(placed: Sequence[WantPlacement], nodes: Sequence[CacheNode]) -> list[set[str]]:
    racks = {each.name: each.rack[0] for each in nodes}
    return [{racks[name] for name in copy.nodes} for each in placed for copy in each.copies]


@pytest.mark.parametrize("zone", ["", "z"])
@pytest.mark.parametrize("mode", ["Auto", "Partition"])
def test_each_further_copy_is_in_a_rack_without_one(zone: str, mode: Literal["Auto", "Partition"]) -> None:
    """Eight nodes in two racks: those of the second rack come last in all else."""
    nodes = [node(f"n{number}", "ab"[number // 4], zone, free=90 - number) for number in range(8)]
    want = Want(key="x", mode=mode, node_count=2, copies=2)

    assert racks_of_copies(placements(nodes, want), nodes) == [{"a"}, {"b"}]
    first, clone = replace(want, copies=1), replace(want, key="y", alongside="x", copies=1, ids=("clone-1",))
    assert racks_of_copies(placements(nodes, first, clone), nodes) == [{"a"}, {"b"}]


def test_whole_copies_on_one_node_each_are_in_as_many_racks_as_there_are() -> None:
    nodes = [node(f"n{number}", "abc"[number // 2], free=200 - number) for number in range(6)]

    copies = racks_of_copies(placements(nodes, Want(key="x", node_count=1, copies=3)), nodes)

    assert copies == [{"a"}, {"b"}, {"c"}]


def test_copies_that_are_to_be_together_share_a_rack_as_they_share_a_zone() -> None:
    nodes = [node(f"n{number}", "ab"[number % 2], "z", free=90 - number) for number in range(8)]
    want = Want(key="x", mode="Partition", node_count=2, copies=2, zones="Together")

    assert racks_of_copies(placements(nodes, want), nodes) == [{"a"}, {"a"}]


@settings(max_examples=40)
@given(
    drawn=st.lists(st.tuples(st.sampled_from(["", "z"]), st.sampled_from("rst")), min_size=1, max_size=7),
    mode=st.sampled_from(["Auto", "Partition", "Replicate"]),
    count=st.one_of(st.none(), st.integers(1, 3)),
    copies=st.integers(1, 3),
    policy=st.sampled_from(["Auto", "Together", "Spread"]),
    free=st.sampled_from([50, 130, 200]),
)
def test_copies_keep_their_nodes_when_they_are_placed_again(
    drawn: list[tuple[str, str]],
    mode: Literal["Auto", "Partition", "Replicate"],
    count: int | None,
    copies: int,
    policy: PlacementZones,
    free: int,
) -> None:
    nodes = [node(f"n{number}", rack, zone, free=free) for number, (zone, rack) in enumerate(drawn)]
    want = Want(key="x", mode=mode, node_count=count, copies=copies, zones=policy)
    (first,) = placements(nodes, want)

    (again,) = placements(nodes, want, held={"x": first.holders})

    assert again.holders == first.holders
