"""Readers ask the nearest agents, and count what comes from other zones."""

import itertools
from collections.abc import Iterator

import pytest

from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS
from tdcs.model.nearness import (
    TOPOLOGY_LABELS,
    crosses_zone,
    level_of_zones,
    place_of,
    steps,
)
from tdcs.model.slots import SLOTS, bitmap
from tdcs.node.reader.serving.holder_order import across_zones, slot_holders, source_readers

RACK = "example.com/rack"
KEYS = (RACK, *TOPOLOGY_LABELS)


def place(rack: str = "", zone: str = "", region: str = "") -> tuple[str, ...]:
    """The place of a node with these labels."""
    values = dict(zip(KEYS, (rack, zone, region), strict=True))
    return place_of({key: value for key, value in values.items() if value}, KEYS)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (place("r1", "a", "eu"), place("r1", "a", "eu"), 0),
        (place("r1", "a", "eu"), place("r2", "a", "eu"), 1),
        (place("r1", "a", "eu"), place("r1", "b", "eu"), 2),
        (place("r1", "a", "eu"), place("r1", "a", "us"), 3),
        (place("", "a", "eu"), place("", "a", "eu"), 1),
        (place("", "a", ""), place("r2", "a", ""), 1),
        (place(), place("r1", "a", "eu"), 3),
        (place(), place(), 0),
    ],
)
def test_nearness_has_a_step_for_each_level_that_differs(
    one: tuple[str, ...], other: tuple[str, ...], expected: int
) -> None:
    assert (steps(one, other), steps(other, one)) == (expected, expected)


def test_zones_are_crossed_only_where_both_are_known() -> None:
    level = level_of_zones(KEYS)

    assert crosses_zone(place("r", "a", "eu"), place("r", "b", "eu"), level=level)
    assert crosses_zone(place("r", "a", "eu"), place("r", "a", "us"), level=level)
    assert not crosses_zone(place("r1", "a", "eu"), place("r2", "a", "eu"), level=level)
    assert not crosses_zone(place(), place("r", "b", "eu"), level=level)
    assert not crosses_zone(place("r", "a"), place("r", "b"), level=level_of_zones([RACK]))


def zoned(here: str, *, complete: bool = True) -> HolderTable:
    """Three agents in each of three zones; the reader's node `here` is one of them."""
    names = [f"{zone}{number}" for zone, number in itertools.product("abc", range(3))]
    mask = ALL_SLOTS if complete else NO_SLOTS
    holders = tuple(
        Holder(
            node=name,
            address=f"{name}:1",
            complete=mask,
            present=mask,
            reads_source=True,
            place=place("", name[0], "eu"),
        )
        for name in names
    )
    return HolderTable(holders=holders, here=place("", here[0], "eu"), zone=level_of_zones(KEYS))


def firsts(table: HolderTable, here: str) -> Iterator[str]:
    """Whom the reader asks first, slot by slot."""
    return (slot_holders(table, slot=slot, node=here)[0] for slot in range(SLOTS))


def test_a_reader_asks_agents_of_its_zone_first_and_all_of_them() -> None:
    assert set(firsts(zoned("b1"), "b1")) == {"b0:1", "b2:1"}
    order = slot_holders(zoned("b1"), slot=5, node="b1")
    assert {address[0] for address in order[:2]} == {"b"}
    assert order[-1] == "b1:1", "what is on this node was looked for on its disk before"


@pytest.mark.parametrize("slot", [0, 9, 1000, SLOTS - 1])
def test_only_the_agent_that_has_a_slot_is_asked_for_it(slot: int) -> None:
    only, rest_of_slots = bitmap([slot]), bitmap(set(range(SLOTS)) - {slot})
    holders = (
        Holder(node="a", address="a:1", complete=only, present=only),
        Holder(node="b", address="b:1", complete=rest_of_slots, present=rest_of_slots),
    )
    assert slot_holders(HolderTable(holders=holders), slot=slot, node="c") == ("a:1",)


def test_the_source_is_read_through_an_agent_of_the_same_zone() -> None:
    readers = {source_readers(zoned("c0"), slot=slot, node="x")[0] for slot in range(0, SLOTS, 64)}

    assert readers == {"c0:1", "c1:1", "c2:1"}


def test_agents_of_other_zones_are_those_that_cost_money() -> None:
    assert across_zones(zoned("a0")) == {f"{zone}{number}:1" for zone in "bc" for number in range(3)}
    assert across_zones(HolderTable(holders=zoned("a0").holders)) == frozenset()


def test_of_bytes_that_all_zones_hold_a_fifth_at_most_crosses_zones() -> None:
    """Readers on every node, each slot on every node but their own: who is asked first gives the bytes."""
    without = across = 0
    for node in (f"{zone}{number}" for zone in "abc" for number in range(3)):
        table = zoned(node)
        far = across_zones(table)
        blind = HolderTable(holders=table.holders)
        across += sum(address in far for address in firsts(table, node))
        without += sum(address in far for address in firsts(blind, node))

    assert without > SLOTS
    assert across <= 0.2 * without


def test_all_agents_of_a_slot_are_asked_in_turn_whole_ones_first_and_this_node_last() -> None:
    near, far = place("", "a", "eu"), place("", "b", "eu")
    first, second, none = bitmap([8, 9]), bitmap([9]), NO_SLOTS
    holders = tuple(
        Holder(node=name, address=name, complete=complete, present=present, place=where)
        for name, complete, present, where in (
            ("whole-1", first, first, near),
            ("part-1", none, second, near),
            ("own", first, first, near),
            ("whole-2", first, first, near),
            ("nothing", none, none, near),
            ("far", first, first, far),
            ("part-2", none, first, near),
        )
    )
    table = HolderTable(holders=holders, here=near, zone=level_of_zones(KEYS))
    # Of four that have all of it the turn begins with the first for slot 8, and with the next one for slot 9.
    assert slot_holders(table, slot=8, node="own") == ("whole-1", "whole-2", "far", "own", "part-2")
    assert slot_holders(table, slot=9, node="own") == ("whole-2", "whole-1", "far", "own", "part-2", "part-1")
    assert slot_holders(table, slot=10, node="own") == ()


def test_the_source_is_read_through_this_node_then_others_that_keep_then_the_nearest() -> None:
    near, far = place("", "a", "eu"), place("", "b", "eu")
    holders = tuple(
        Holder(node=name, address=name, complete=NO_SLOTS, present=NO_SLOTS,
               reads_source=reads, fills=fills, place=where)
        for name, reads, fills, where in (
            ("near-1", True, False, near),
            ("far-keeps", True, True, far),
            ("blind", False, True, near),
            ("own", True, True, near),
            ("far", True, False, far),
            ("near-2", True, False, near),
        )
    )  # fmt: skip
    table = HolderTable(holders=holders, here=near, zone=level_of_zones(KEYS))
    assert source_readers(table, slot=0, node="own") == ("own", "far-keeps", "near-1", "near-2", "far")
    # Each fifth of the slots begins with another one of the five.
    assert source_readers(table, slot=SLOTS - 1, node="own") == (
        "own",
        "far-keeps",
        "near-2",
        "near-1",
        "far",
    )
    assert source_readers(table, slot=SLOTS // 5, node="own")[2:4] == ("near-1", "near-2")
    assert source_readers(table, slot=SLOTS // 5 + 1, node="own")[2:4] == ("near-2", "near-1")
    # Where it keeps nothing itself, another one that does goes before, and it has no turn of its own.
    assert source_readers(table, slot=0, node="near-2") == ("own", "far-keeps", "near-1", "near-2", "far")
    assert source_readers(HolderTable(holders=()), slot=7, node="own") == ()
