"""Which racks the nodes of copies are in, within a zone and where there are no zones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.copy_nodes import CacheNode, CopyPlan, Mode, plan_copy
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
