"""Whom agents ask in a cluster with racks, zones and regions: bytes cross a zone once, and none waits without end."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.builders import agent, assignment_input, candidate, placed, totals_of

from tdcs.decide.cache.wants import Want
from tdcs.decide.place.agent_assignments import MOVES, assign
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.slot_sources import PEERS
from tdcs.model import slots
from tdcs.model.agent_state import Assignment
from tdcs.model.nearness import Place, crosses_zone, steps

SLOTS = 12
SIZES = totals_of([10] * SLOTS)
ZONE = 1
"""The level of zones in places of rack, zone and region."""


def spot(zone: str, rack: str = "", region: str = "eu") -> Place:
    return (rack, zone, region)


def replicated(names: Sequence[str]) -> tuple[WantPlacement, ...]:
    want = Want(key="x", mode="Replicate", nodes=tuple(names))
    return placed(SIZES, want, candidates=[candidate(name) for name in names])


def assigned(places: Mapping[str, Place], present: Mapping[str, set[int]]) -> dict[str, Assignment]:
    agents = [agent(name, complete=sorted(present[name]), place=place) for name, place in places.items()]
    return assign(assignment_input(SIZES, replicated(list(places)), *agents, zone=ZONE))


def load(
    places: Mapping[str, Place], present: dict[str, set[int]], *, seed: int
) -> list[tuple[str, str, int]]:
    """All agents load their missing slots in a random order and get new assignments at random moments.

    Returns (from, to, slot) of each transfer; `source` stands for the source."""
    chance, transfers = random.Random(seed), list[tuple[str, str, int]]()
    assignments = assigned(places, present)
    while any(len(held) < SLOTS for held in present.values()):
        steps_open = [
            (giver, name, slot)
            for name in places
            for slot in sorted(set(range(SLOTS)) - present[name])
            for giver in [
                *(["source"] if slots.mask_of(assignments[name].origin)[slot] else []),
                *(
                    peer.node
                    for peer in assignments[name].peers
                    if slots.mask_of(peer.slots)[slot] and slot in present[peer.node]
                ),
            ]
        ]
        assert steps_open, "everybody waits"
        giver, name, slot = chance.choice(steps_open)
        present[name].add(slot)
        transfers.append((giver, name, slot))
        if chance.random() < 0.05:
            assignments = assigned(places, present)
    return transfers


@settings(max_examples=12)
@given(
    zones=st.lists(st.sampled_from("abc"), min_size=2, max_size=7),
    racks=st.booleans(),
    seed=st.integers(0, 1 << 30),
    held=st.lists(st.sets(st.integers(0, SLOTS - 1)), min_size=7, max_size=7),
)
def test_each_zone_and_rack_gets_a_slot_once_and_the_source_gives_it_once(
    zones: list[str], racks: bool, seed: int, held: list[set[int]]
) -> None:
    places = {
        f"n{number}": spot(zone, rack=f"r{number % 2}" if racks else "") for number, zone in enumerate(zones)
    }
    at_first = {name: set(held[number]) for number, name in enumerate(places)}

    transfers = load(places, {name: set(have) for name, have in at_first.items()}, seed=seed)

    for slot in range(SLOTS):
        holders = {name for name, have in at_first.items() if slot in have}
        mine = [(giver, name) for giver, name, of in transfers if of == slot]
        assert sum(giver == "source" for giver, _ in mine) == (0 if holders else 1)
        from_agents = [(giver, name) for giver, name in mine if giver != "source"]
        for level in (0, 1):
            groups = {place[level:] for place in places.values() if place[level]}
            with_it = {places[name][level:] for name in holders if places[name][level]} or (
                {places[name][level:] for giver, name in mine if giver == "source"}
            )
            crossed = [name for giver, name in from_agents if steps(places[giver], places[name]) > level]
            if groups:
                assert sorted(places[name][level:] for name in crossed) == sorted(groups - with_it)


def test_an_agent_asks_its_own_zone_for_what_is_there_and_others_for_the_rest() -> None:
    places = {"a1": spot("a"), "a2": spot("a"), "b1": spot("b")}
    assignments = assigned(places, {"a1": set(), "a2": {0, 1}, "b1": set(range(SLOTS))})

    slots_by_peer = {peer.node: slots.mask_of(peer.slots) for peer in assignments["a1"].peers}
    assert slots_by_peer["a2"][[0, 1]].all()
    assert not slots_by_peer["b1"][[0, 1]].any()
    far = {
        name: next(slots.mask_of(peer.slots) for peer in assignments[name].peers if peer.node == "b1")
        for name in ("a1", "a2")
    }
    # Of what neither has one of them asks the other zone, and the other one waits for that.
    assert not (far["a1"] & far["a2"])[:SLOTS].any()
    assert (far["a1"] | far["a2"])[2:SLOTS].all()


def test_one_without_room_is_no_gate() -> None:
    places = {"a1": spot("a"), "a2": spot("a"), "b1": spot("b")}
    agents = [
        agent("a1", place=places["a1"], no_room=True),
        agent("a2", place=places["a2"]),
        agent("b1", complete=range(SLOTS), place=places["b1"]),
    ]
    assignments = assign(assignment_input(SIZES, replicated(list(places)), *agents, zone=ZONE))

    far = next(slots.mask_of(peer.slots) for peer in assignments["a2"].peers if peer.node == "b1")
    assert far[:SLOTS].all()


def test_peers_say_whether_they_are_in_another_zone() -> None:
    places = {"a1": spot("a"), "a2": spot("a"), "b1": spot("b"), "u1": ()}
    assignments = assigned(places, {"a1": set(), "a2": {0}, "b1": set(range(4)), "u1": set(range(SLOTS))})

    for name, assignment in assignments.items():
        for peer in assignment.peers:
            assert peer.cross_zone == crosses_zone(places[name], places[peer.node], level=ZONE)


def test_many_nodes_in_zones_reach_all_slots_by_few_peers() -> None:
    places = {f"n{number:03d}": spot("abc"[number % 3]) for number in range(90)}
    assignments = assigned(places, {name: set() for name in places})

    for name, assignment in assignments.items():
        assert len(assignment.peers) <= PEERS
        reached = np.logical_or.reduce([slots.mask_of(peer.slots) for peer in assignment.peers])
        assert (reached | slots.mask_of(assignment.origin))[:SLOTS].all(), name


def test_without_labels_agents_ask_as_if_all_were_equally_near() -> None:
    names = ["n0", "n1", "n2"]
    present = {"n0": {0}, "n1": {1}, "n2": set[int]()}
    plain = assigned(dict.fromkeys(names, ()), present)

    assert plain == assigned(dict.fromkeys(names, spot("a", rack="r")), present)


def test_what_leaves_with_a_node_goes_to_nodes_of_its_zone_as_far_as_they_have_room() -> None:
    places = {"a1": spot("a"), "a2": spot("a"), "b1": spot("b"), "b2": spot("b")}
    for room, in_zone in ((1 << 20, SLOTS), (10 * 5, 5), (0, 0)):
        agents = [
            agent(
                name,
                complete=range(SLOTS) if name == "a1" else (),
                draining=name == "a1",
                place=place,
            )
            for name, place in places.items()
        ]
        agents = [replace(view, room=room) if view.node == "a2" else view for view in agents]

        assignments = assign(assignment_input(SIZES, (), *agents, owned=False, zone=ZONE))

        moved = {
            name: set(slots.members(part.slots).tolist()) & set(range(SLOTS))
            for name, assignment in assignments.items()
            for part in assignment.parts
            if part.name == MOVES
        }
        assert len(moved.get("a2", ())) == in_zone
        assert sorted(slot for members in moved.values() for slot in members) == list(range(SLOTS))
