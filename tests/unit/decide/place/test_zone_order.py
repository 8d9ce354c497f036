"""Which zones the nodes of copies are in."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.builders import DIGEST, MOUNT, candidate, totals_of

from tdcs.api.dataset import PlacementZones
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.copy_nodes import CacheNode, CopyPlan, Mode, plan_copy
from tdcs.decide.place.slot_nodes import PlacementInput, WantPlacement, place
from tdcs.decide.place.zone_order import Zones

SIZES = totals_of([10] * 12)
SIZE = 120


def node(name: str, zone: str, *, free: int = 100, **more: Any) -> CacheNode:
    return CacheNode(
        name=name, capacity_bytes=200, free_bytes=free, zone=(zone, "eu") if zone else (), **more
    )


def zones_of(plan: CopyPlan, nodes: Sequence[CacheNode]) -> list[str]:
    zones = {node.name: node.zone[0] if node.zone else "" for node in nodes}
    return [zones[node.name] for node in plan.nodes]


NODES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(0, 12), st.integers(0, 2)),
    min_size=1,
    max_size=7,
)


def nodes_from(drawn: list[tuple[str, int, int]]) -> list[CacheNode]:
    return [
        node(f"n{number}", zone, free=10 * free, free_gpus=gpus)
        for number, (zone, free, gpus) in enumerate(drawn)
    ]


@given(drawn=NODES)
def test_a_partitioned_copy_is_in_one_zone_where_any_zone_can_hold_it(
    drawn: list[tuple[str, int, int]],
) -> None:
    nodes = nodes_from(drawn)
    plan = plan_copy(dataset="d", dataset_bytes=SIZE, nodes=nodes, mode=Mode.PARTITION)

    room = Counter[str]()
    for node in nodes:
        room[node.zone[0] if node.zone else ""] += node.free_bytes
    if max(room.values()) >= SIZE:
        assert len(set(zones_of(plan, nodes))) == 1
        assert plan.fits
    else:
        assert plan.fits == (sum(room.values()) >= SIZE)
        # Only as many zones as have to be: each but the last one of them is used up.
        used = list(dict.fromkeys(zones_of(plan, nodes)))
        for zone in used[:-1]:
            with_room = [
                node.name for node in nodes if (node.zone[0] if node.zone else "") == zone and node.free_bytes
            ]
            assert set(with_room) <= {node.name for node in plan.nodes}


@given(drawn=NODES, count=st.integers(1, 5), policy=st.sampled_from([Zones.AUTO, Zones.SPREAD]))
def test_replicas_are_spread_over_the_zones_as_evenly_as_can_be(
    drawn: list[tuple[str, int, int]], count: int, policy: Zones
) -> None:
    nodes = [replace(node, free_bytes=200 if node.free_bytes else 0) for node in nodes_from(drawn)]
    plan = plan_copy(
        dataset="d", dataset_bytes=SIZE, nodes=nodes, mode=Mode.REPLICATE, node_count=count, zones=policy
    )

    with_room = [node for node in nodes if node.free_bytes]
    most_even = min(
        (
            max(Counter(node.zone for node in chosen).values())
            for chosen in itertools.combinations(with_room, len(plan.nodes))
            if chosen
        ),
        default=0,
    )
    assert max(Counter(zones_of(plan, nodes)).values(), default=0) == most_even


@given(drawn=NODES, count=st.one_of(st.none(), st.integers(1, 4)), policy=st.sampled_from(Zones))
def test_zones_change_neither_how_many_nodes_are_asked_for_nor_what_is_chosen_without_them(
    drawn: list[tuple[str, int, int]], count: int | None, policy: Zones
) -> None:
    nodes = nodes_from(drawn)
    plan = plan_copy(dataset="d", dataset_bytes=SIZE, nodes=nodes, node_count=count, zones=policy)
    one_zone = [replace(node, zone=("a", "eu")) for node in nodes]
    unknown = [replace(node, zone=()) for node in nodes]

    assert len({node.name for node in plan.nodes}) == len(plan.nodes)
    if count is not None:
        assert len(plan.nodes) == min(count, sum(node.free_bytes > 0 for node in nodes))
    assert plan_copy(
        dataset="d", dataset_bytes=SIZE, nodes=one_zone, node_count=count, zones=policy
    ) == plan_copy(dataset="d", dataset_bytes=SIZE, nodes=unknown, node_count=count)


def test_what_overflows_a_zone_goes_to_the_nearest_one() -> None:
    nodes = [
        node("a1", "a", free_gpus=1),
        CacheNode(name="far", capacity_bytes=200, free_bytes=150, zone=("x", "us")),
        node("b1", "b", free=30),
        node("b2", "b", free=30),
    ]
    plan = plan_copy(dataset="d", dataset_bytes=125, nodes=nodes, mode=Mode.PARTITION, node_count=2)
    assert [node.name for node in plan.nodes][:1] == ["far"]  # it alone has room for all
    small = plan_copy(dataset="d", dataset_bytes=155, nodes=nodes, mode=Mode.PARTITION)
    assert small.nodes[0].name == "a1"
    assert {node.name for node in small.nodes} == {"a1", "b1", "b2"}


def test_a_copy_stays_where_it_is_read_and_where_it_is_already() -> None:
    nodes = [
        node("a1", "a", has_readers=True),
        node("b1", "b", held_bytes=50),
        node("b2", "b"),
        node("a2", "a"),
    ]

    plan = plan_copy(dataset="d", dataset_bytes=250, nodes=nodes, mode=Mode.PARTITION)

    assert [node.name for node in plan.nodes] == ["a1", "b1", "a2"]


def placements(
    zones: Mapping[str, str],
    *wants: Want,
    held: Mapping[str, Mapping[str, frozenset[str]]] | None = None,
    free: int = 200,
) -> tuple[WantPlacement, ...]:
    candidates = tuple(
        replace(view, node=replace(view.node, zone=(zones[view.node.name], "eu")))
        for view in (candidate(name, capacity=free, free=free) for name in zones)
    )
    return place(
        PlacementInput(
            mount=MOUNT,
            manifest=DIGEST,
            wants=wants,
            totals={(): SIZES},
            candidates=candidates,
            held_before=held or {},
        )
    )


SIX = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c", "c2": "c"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Auto", {1: 1, 2: 2, 3: 3}), ("Together", {1: 1, 2: 1, 3: 2}), ("Spread", {1: 1, 2: 2, 3: 3})],
)
def test_copies_are_in_as_many_zones_as_the_policy_says(
    policy: PlacementZones, expected: dict[int, int]
) -> None:
    for copies, count in expected.items():
        (placement,) = placements(SIX, Want(key="x", copies=copies, zones=policy))
        assert len({SIX[name] for name in placement.nodes}) == count, (copies, placement.nodes)


def test_a_partitioned_copy_is_in_one_zone_and_its_clone_in_another() -> None:
    want = Want(key="x", mode="Partition", node_count=2)
    clone = replace(want, key="y", alongside="x", ids=("clone-1",))

    first, second = placements(SIX, want, clone)

    zones = [{SIX[name] for name in placement.nodes} for placement in (first, second)]
    assert [len(zone_set) for zone_set in zones] == [1, 1]
    assert zones[0] != zones[1]


def test_a_spread_copy_has_a_node_in_each_zone() -> None:
    (placement,) = placements(SIX, Want(key="x", mode="Partition", node_count=3, zones="Spread"))

    assert sorted(SIX[name] for name in placement.nodes) == ["a", "b", "c"]


def test_a_copy_that_lost_a_node_gets_another_one_of_its_zone() -> None:
    want = Want(key="x", mode="Partition", node_count=2)
    for zone in "abc":
        held = {"x": {"0": frozenset({f"{zone}1"})}}
        (placement,) = placements(SIX, want, held=held)
        assert sorted(placement.nodes) == [f"{zone}1", f"{zone}2"]


@settings(max_examples=40)
@given(
    zones=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    mode=st.sampled_from(["Auto", "Partition", "Replicate"]),
    count=st.one_of(st.none(), st.integers(1, 3)),
    copies=st.integers(1, 3),
    policy=st.sampled_from(["Auto", "Together", "Spread"]),
    free=st.sampled_from([50, 130, 200]),
)
def test_a_placement_stays_when_it_is_made_again(
    zones: list[str], mode: str, count: int | None, copies: int, policy: str, free: int
) -> None:
    of = {f"n{number}": zone for number, zone in enumerate(zones)}
    want = Want(key="x", mode=mode, node_count=count, copies=copies, zones=policy)  # type: ignore[arg-type]
    (first,) = placements(of, want, free=free)

    (again,) = placements(of, want, held={"x": first.holders}, free=free)

    assert again.holders == first.holders
