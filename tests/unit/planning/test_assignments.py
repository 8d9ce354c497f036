"""What each agent is assigned: who reads the source, what goes, what moves, who asks whom, and what is compared."""

from dataclasses import replace

import msgspec
import numpy as np
from tests.unit.planning.builders import (
    DIGEST,
    MOUNT,
    Below,
    agent,
    assignment_input,
    candidate,
    placed,
    totals_of,
)

from tdcs.engine.agents import Assignment, CheckState, FileFailure, MountState, Part, SourceAccess
from tdcs.planning.assignments import MOVES, RELAYS, assign
from tdcs.planning.origins import ORIGINS, PEERS
from tdcs.planning.placement import WantPlacement
from tdcs.planning.wants import Want
from tdcs.policy import slots
from tdcs.policy.preload import Subset

SIZES = totals_of([10] * 300)
ALL = range(300)
EVERY = slots.bitmap(ALL)
SOURCE = SourceAccess(uri="s3://bucket")


def replicated(*nodes: str, **changes: object) -> tuple[WantPlacement, ...]:
    want = Want(key="x", mode="Replicate", nodes=nodes, **changes)  # type: ignore[arg-type]
    return placed(SIZES, want)


def origins(found: dict[str, Assignment]) -> dict[str, set[int]]:
    return {node: set(slots.members(one.origin).tolist()) & set(ALL) for node, one in found.items()}


def drops(found: dict[str, Assignment]) -> dict[str, set[int]]:
    return {node: set(slots.members(one.drop).tolist()) for node, one in found.items() if any(one.drop)}


def test_each_slot_is_read_from_the_source_by_one_of_its_nodes() -> None:
    found = assign(assignment_input(SIZES, replicated("a", "b", "c"), *map(agent, "abc"), source=SOURCE))
    read = origins(found)
    assert sorted(slot for each in read.values() for slot in each) == list(ALL)
    assert all(60 < len(each) < 140 for each in read.values())
    assert {peer.node for peer in found["a"].peers} == {"b", "c"}
    assert all(one.source == SOURCE for one in found.values())


def test_who_reads_a_slot_does_not_change_while_the_load_goes_on() -> None:
    placements = replicated("a", "b", "c")
    first = origins(assign(assignment_input(SIZES, placements, *map(agent, "abc"))))
    some = {node: sorted(slots_of)[:50] for node, slots_of in first.items()}
    later = origins(
        assign(assignment_input(SIZES, placements, *(agent(node, complete=some[node]) for node in "abc")))
    )
    assert later == first


def test_what_an_agent_has_is_not_read_from_the_source_again() -> None:
    holder = agent("d", complete=range(100))
    found = assign(assignment_input(SIZES, replicated("a"), agent("a"), holder))
    assert origins(found)["a"] == set(range(100, 300))
    (peer,) = found["a"].peers
    assert (peer.node, slots.count(peer.complete)) == ("d", 100)


def test_an_agent_that_has_everything_asks_nobody() -> None:
    parts = {"x": (replicated("a")[0].copies[0].nodes["a"], 3000, 3000)}
    found = assign(
        assignment_input(SIZES, replicated("a"), agent("a", complete=ALL, parts=parts), agent("b"))
    )
    assert found["a"].peers == ()


def test_a_slot_is_dropped_only_when_it_is_complete_where_it_shall_lie() -> None:
    placements = replicated("b")
    old = agent("a", complete=ALL)
    missing = assign(assignment_input(SIZES, placements, old, agent("b", complete=range(100))))
    assert drops(missing) == {"a": set(range(100))}
    kept = assign(assignment_input(SIZES, placements, old, agent("b"), owned=False))
    assert drops(kept) == {}


def test_what_nobody_wants_goes_at_once() -> None:
    half = Want(key="x", nodes=("a",), subset=Subset(fraction=0.5))
    found = assign(assignment_input(SIZES, placed(SIZES, half), agent("a", complete=ALL)))
    assert drops(found) == {"a": set(range(150, 300))}


def test_what_lies_under_a_folder_that_is_wanted_counts_by_the_progress_of_its_part() -> None:
    want = Want(key="x", nodes=("b",), subset=Subset(paths=("p",)))
    below: Below = {("p",): totals_of([5] * 300)}
    placements = placed(SIZES, want, below=below)
    held = placements[0].copies[0].nodes["b"]
    old = agent("a", complete=ALL)
    unknown = agent("b", present=ALL)
    assert drops(assign(assignment_input(SIZES, placements, old, unknown))) == {}
    view = agent("b", present=ALL, parts={"x": (held, 1500, 1500)})
    done = replace(view, parts=tuple(_with_paths(part) for part in view.parts))
    found = drops(assign(assignment_input(SIZES, placements, old, done)))
    assert found["a"] == set(ALL)
    assert found["b"] == set(ALL)  # of these slots, what does not lie in the folder


def _with_paths(part: Part) -> Part:
    return msgspec.structs.replace(part, paths=("p",))


def test_progress_of_another_part_of_the_same_name_is_no_progress() -> None:
    placements = replicated("b")
    before = agent("b", parts={"x": (slots.bitmap(range(10)), 100, 100)})
    assert drops(assign(assignment_input(SIZES, placements, agent("a", complete=ALL), before))) == {}


def test_two_full_nodes_that_shall_exchange_slots_do_not_wait_for_each_other() -> None:
    placements = placed(SIZES, Want(key="x", mode="Partition", nodes=("a", "b")))
    copy = placements[0].copies[0].nodes
    full = (FileFailure(path="f", code="NoRoom", reason="full"),)
    mine, others = (sorted(set(slots.members(copy[node]).tolist()) & set(ALL)) for node in "ab")
    stuck = [agent("a", complete=others, failed=full), agent("b", complete=mine, failed=full)]
    assert drops(assign(assignment_input(SIZES, placements, *stuck))) == {"a": set(others), "b": set(mine)}
    assert drops(assign(assignment_input(SIZES, placements, stuck[0], agent("b", complete=mine)))) == {
        "a": set(others)
    }


def test_what_waits_is_kept_and_not_brought() -> None:
    found = assign(
        assignment_input(SIZES, replicated("a", load=False), agent("a", complete=range(9)), source=SOURCE)
    )
    assert [part.pull for part in found["a"].parts] == ["Nothing"]
    assert (drops(found), origins(found)) == ({}, {"a": set()})


def test_some_agents_read_the_source_for_readers_when_a_mount_is_placed_nowhere() -> None:
    agents = [replace(agent(node), state=MountState(mount="/datasets/1")) for node in "abcdef"]
    found = assign(assignment_input(SIZES, (), *agents, source=SOURCE))
    assert len(found) == RELAYS
    assert all((one.source, one.parts) == (SOURCE, ()) for one in found.values())
    assert not any(origins(found).values())
    assert assign(assignment_input(SIZES, (), *agents, source=SOURCE)) == found
    assert not assign(assignment_input(SIZES, (), *agents))


def moved(found: dict[str, Assignment]) -> dict[str, set[int]]:
    return {
        node: set(slots.members(part.slots).tolist())
        for node, one in found.items()
        for part in one.parts
        if part.name == MOVES
    }


def test_what_jobs_have_cached_moves_from_a_node_that_leaves_without_the_source() -> None:
    leaver = agent("a", complete=range(100), present=range(120), draining=True)
    stays = agent("b", complete=range(50))
    found = assign(assignment_input(SIZES, (), leaver, stays, agent("c"), owned=False, source=SOURCE))
    taken = moved(found)
    assert taken["b"] | taken["c"] == set(range(50, 120))
    assert not taken["b"] & taken["c"]
    assert all(part.pull == "Peers" for one in found.values() for part in one.parts)
    assert not any(origins(found).values())
    assert any(peer.node == "a" for peer in found["c"].peers)


def test_what_a_load_brings_elsewhere_or_nobody_wants_does_not_move() -> None:
    leaver = agent("a", complete=ALL, draining=True)
    assert moved(assign(assignment_input(SIZES, replicated("b"), leaver, agent("b")))) == {}
    assert moved(assign(assignment_input(SIZES, (), leaver, agent("b")))) == {}
    later = moved(assign(assignment_input(SIZES, replicated("b", load=False), leaver, agent("b"))))
    assert later == {"b": set(ALL)}


def test_many_nodes_get_a_replica_from_a_few_and_name_few_peers() -> None:
    nodes = [f"n{number:03d}" for number in range(60)]
    want = Want(key="x", mode="Replicate", node_count=60)
    placements = placed(SIZES, want, candidates=[candidate(name) for name in nodes])
    found = assign(assignment_input(SIZES, placements, *map(agent, nodes)))
    readers = {node for node, each in origins(found).items() if each}
    assert len(readers) <= ORIGINS
    for node, one in found.items():
        assert len(one.peers) <= PEERS
        reached = np.logical_or.reduce([slots.mask_of(peer.slots) for peer in one.peers])
        assert reached[:300].all(), node


def test_a_limit_is_shared_by_the_nodes_that_read() -> None:
    placements = replicated("a", "b", bandwidth=1000)
    found = assign(assignment_input(SIZES, placements, agent("a"), agent("b")))
    assert {one.bandwidth for one in found.values()} == {500}
    mine = placements[0].copies[0].nodes["a"]
    done = agent("a", complete=ALL, parts={"x": (mine, 3000, 3000)})
    copied = assign(assignment_input(SIZES, placements, done, agent("b")))
    assert copied["b"].bandwidth == 1000


def test_a_comparison_begins_when_everything_is_there_and_stays_until_another_is_due() -> None:
    placements = replicated("a", verify="Sampled", check="uid-1")
    mine = placements[0].copies[0].nodes["a"]
    assert assign(assignment_input(SIZES, placements, agent("a")))["a"].check is None
    there = {"x": (mine, 3000, 3000)}
    asked = assign(assignment_input(SIZES, placements, agent("a", complete=ALL, parts=there)))["a"].check
    assert asked is not None
    assert (asked.id, asked.percent, asked.part) == ("uid-1", 5, "x")
    done = agent("a", complete=ALL, parts=there, check=CheckState(id="uid-1", done=True))
    assert assign(assignment_input(SIZES, placements, done))["a"].check == asked


def test_an_agent_that_counts_by_another_version_has_nothing_of_this_one() -> None:

    view = agent("b")
    old = replace(
        view, state=MountState(mount=MOUNT, version=3, manifest="f" * 32, complete=EVERY, present=EVERY)
    )
    found = assign(assignment_input(SIZES, replicated("a"), agent("a"), old))
    assert origins(found)["a"] == set(ALL)
    assert found["a"].manifest == DIGEST


def test_nothing_is_read_before_those_have_reported_that_held_it_when_the_operator_started() -> None:
    placements = replicated("a", "b")
    silent = replace(agent("c", draining=True), state=MountState(mount=MOUNT))
    given = assignment_input(
        SIZES, placements, agent("a"), agent("b"), silent, source=SOURCE, expected=frozenset("c")
    )
    found = assign(given)
    assert origins(found) == {"a": set(), "b": set(), "c": set()}
    assert all(one.source is None for one in found.values())
    heard = replace(given, agents=(*given.agents[:2], agent("c", complete=ALL, draining=True)))
    found = assign(heard)
    assert not origins(found)["a"]
    assert {peer.node for peer in found["a"].peers} >= {"c"}
