"""What each agent is assigned: who reads the source, what goes, what moves, who asks whom, and what is compared."""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.decide.builders import (
    DIGEST,
    GIB,
    MOUNT,
    Below,
    agent,
    assignment_input,
    candidate,
    placed,
    totals_of,
)

from tdcs.decide.cache.load_order import Subset
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.agent_assignments import (
    AGAIN,
    AGAIN_TOO,
    FILL_STEPS,
    MANIFEST_TAKERS,
    MOVES,
    RELAYS,
    assign,
)
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.slot_sources import ORIGINS, PEERS
from tdcs.model import slots
from tdcs.model.agent_state import (
    NO_SLOTS,
    Assignment,
    CheckState,
    MountState,
    Part,
    PartState,
    SourceAccess,
)

SIZES = totals_of([10] * 300)
ALL = range(300)
EVERY = slots.bitmap(ALL)
SOURCE = SourceAccess(uri="s3://bucket")


def replicated(*nodes: str, **changes: object) -> tuple[WantPlacement, ...]:
    want = Want(key="x", mode="Replicate", nodes=nodes, **changes)  # type: ignore[arg-type]
    return placed(SIZES, want)


def origins(assignments: dict[str, Assignment]) -> dict[str, set[int]]:
    return {
        node: set(slots.members(assignment.origin).tolist()) & set(ALL)
        for node, assignment in assignments.items()
    }


def drops(assignments: dict[str, Assignment]) -> dict[str, set[int]]:
    return {
        node: set(slots.members(assignment.drop).tolist())
        for node, assignment in assignments.items()
        if any(assignment.drop)
    }


def test_each_slot_is_read_from_the_source_by_one_of_its_nodes() -> None:
    assignments = assign(
        assignment_input(SIZES, replicated("a", "b", "c"), *map(agent, "abc"), source=SOURCE)
    )
    read = origins(assignments)
    assert sorted(slot for members in read.values() for slot in members) == list(ALL)
    assert all(60 < len(members) < 140 for members in read.values())
    assert {peer.node for peer in assignments["a"].peers} == {"b", "c"}
    assert all(assignment.source == SOURCE for assignment in assignments.values())


def test_the_operator_gives_the_manifest_to_one_agent_and_these_to_each_other() -> None:
    names = [f"n{number:02}" for number in range(30)]
    views = [replace(agent(name), manifest_url=f"http://{name}/d") for name in names]
    views[7] = replace(views[7], manifest_url="")  # its address is not known
    operator_urls = ("http://operator/d", "http://holder/d")
    assignments = assign(assignment_input(SIZES, replicated(*names), *views, manifest_urls=operator_urls))
    urls = {name: assignment.manifest_urls for name, assignment in assignments.items()}
    givers = {name: manifest_urls[0] for name, manifest_urls in urls.items()}
    assert [name for name, url in givers.items() if url == operator_urls[0]] == ["n00"]
    assert max(Counter(url for name, url in givers.items() if name != "n29").values()) <= MANIFEST_TAKERS
    # When the one that is to give it does not, the one before it does, then any that has it, and the operator last.
    assert urls["n00"] == operator_urls
    assert urls["n09"] == ("http://n02/d", "http://n00/d", "http://holder/d", "http://operator/d")
    assert urls["n29"] == ("http://n01/d", "http://holder/d", "http://operator/d")
    # A circle of agents that wait for each other cannot be, not even by assignments of different times.
    assert all(
        url.split("/")[2] < name
        for name, manifest_urls in urls.items()
        for url in manifest_urls
        if "//n" in url
    )

    def steps(name: str) -> int:
        url = givers[name]
        return 0 if url == operator_urls[0] else 1 + steps(url.split("/")[2])

    assert max(map(steps, names)) <= 3


def test_who_reads_a_slot_does_not_change_while_the_load_goes_on() -> None:
    placements = replicated("a", "b", "c")
    first = origins(assign(assignment_input(SIZES, placements, *map(agent, "abc"))))
    present = {node: sorted(slots_of)[:50] for node, slots_of in first.items()}
    later = origins(
        assign(assignment_input(SIZES, placements, *(agent(node, complete=present[node]) for node in "abc")))
    )
    assert later == first


def test_what_an_agent_has_is_not_read_from_the_source_again() -> None:
    holder = agent("d", complete=range(100))
    assignments = assign(assignment_input(SIZES, replicated("a"), agent("a"), holder))
    assert origins(assignments)["a"] == set(range(100, 300))
    (peer,) = assignments["a"].peers
    assert (peer.node, slots.count(peer.complete)) == ("d", 100)


def test_an_agent_that_has_everything_asks_nobody() -> None:
    parts = {"x": (replicated("a")[0].copies[0].nodes["a"], 3000, 3000)}
    assignments = assign(
        assignment_input(SIZES, replicated("a"), agent("a", complete=ALL, parts=parts), agent("b"))
    )
    assert assignments["a"].peers == ()


def test_a_slot_is_dropped_only_when_it_is_complete_where_it_shall_be() -> None:
    placements = replicated("b")
    old = agent("a", complete=ALL)
    missing = assign(assignment_input(SIZES, placements, old, agent("b", complete=range(100))))
    assert drops(missing) == {"a": set(range(100))}
    assignments = assign(assignment_input(SIZES, placements, old, agent("b"), owned=False))
    assert drops(assignments) == {}


def test_reads_fill_the_room_of_each_cache_where_no_dataset_preloads_the_mount() -> None:
    views = [
        replace(agent("a"), room=GIB - 1, capacity=GIB),
        replace(agent("b"), room=-5),
        agent("c", draining=True),
    ]
    assignments = assign(assignment_input(SIZES, (), *views, owned=False, source=SOURCE))
    step = GIB // FILL_STEPS
    assert {node: assignment.fill_bytes for node, assignment in assignments.items()} == {
        "a": GIB - step,
        "b": 0,
        "c": 0,
    }
    owned = assign(assignment_input(SIZES, replicated("a"), *views, source=SOURCE))
    assert all(assignment.fill_bytes == 0 for assignment in owned.values())


def test_what_reads_brought_next_to_what_is_wanted_yields_where_others_were_granted_the_room() -> None:
    half = Want(key="x", nodes=("a",), subset=Subset(fraction=0.5))
    for crowded, dropped in ((False, {}), (True, {"a": set(range(150, 300))})):
        view = replace(agent("a", complete=ALL), crowded=crowded)
        assert drops(assign(assignment_input(SIZES, placed(SIZES, half), view, owned=False))) == dropped


def test_the_bandwidth_of_a_source_goes_to_the_nodes_that_read_while_they_keep_what_they_read() -> None:
    def shares(readers: str, filling: str) -> dict[str, int | None]:
        views = [agent(node, fills=node in filling) for node in "abcd"]
        inputs = assignment_input(
            SIZES, (), *views, owned=False, source=SOURCE, source_rate=1000, readers=frozenset(readers)
        )
        return {node: assignment.bandwidth for node, assignment in assign(inputs).items()}

    assert shares("a", "abcd") == {"a": 900, "b": 33, "c": 33, "d": 33}
    assert shares("ab", "abcd") == {"a": 450, "b": 450, "c": 50, "d": 50}
    for readers, filling in (("", "abcd"), ("a", "bcd"), ("ax", "abcd"), ("abcd", "abcd")):
        assert set(shares(readers, filling).values()) == {250}, (readers, filling)


def test_what_nobody_wants_goes_at_once() -> None:
    half = Want(key="x", nodes=("a",), subset=Subset(fraction=0.5))
    inputs = assignment_input(SIZES, placed(SIZES, half), agent("a", complete=ALL), handover_seconds=4.0)
    assignments = assign(inputs)
    assert drops(assignments) == {"a": set(range(150, 300))}
    assert (assignments["a"].moved, assignments["a"].handover_seconds) == (NO_SLOTS, 0.0)


def test_what_is_elsewhere_by_now_stays_for_a_while_unless_room_is_lacking() -> None:
    placements = replicated("b")
    new = agent("b", complete=range(100))
    inputs = assignment_input(SIZES, placements, agent("a", complete=ALL), new, handover_seconds=4.0)
    assignment = assign(inputs)["a"]
    assert set(slots.members(assignment.moved).tolist()) == set(range(100))
    assert assignment.handover_seconds == 4.0
    inputs = replace(inputs, agents=(agent("a", complete=ALL, no_room=True), new))
    assert assign(inputs)["a"].moved == NO_SLOTS


def test_what_is_under_a_folder_that_is_wanted_counts_by_the_progress_of_its_part() -> None:
    want = Want(key="x", nodes=("b",), subset=Subset(paths=("p",)))
    below: Below = {("p",): totals_of([5] * 300)}
    placements = placed(SIZES, want, below=below)
    held = placements[0].copies[0].nodes["b"]
    old = agent("a", complete=ALL)
    unknown = agent("b", present=ALL)
    assert drops(assign(assignment_input(SIZES, placements, old, unknown))) == {}
    view = agent("b", present=ALL, parts={"x": (held, 1500, 1500)})
    done = replace(view, parts=tuple(_with_paths(part) for part in view.parts))
    dropped = drops(assign(assignment_input(SIZES, placements, old, done)))
    assert dropped["a"] == set(ALL)
    assert dropped["b"] == set(ALL)  # of these slots, what does not lie in the folder


def _with_paths(part: Part) -> Part:
    return msgspec.structs.replace(part, paths=("p",))


@pytest.mark.failure_mode("node-cannot-read-file")
def test_a_file_that_a_new_holder_cannot_have_stays_where_it_is() -> None:
    placements = replicated("b")
    held = placements[0].copies[0].nodes["b"]
    state = PartState(name="x", wanted_bytes=300, held_bytes=299, failed_bytes=1)
    new = agent("b", present=ALL, failing=slots.bitmap([7]))
    new = replace(
        new,
        parts=(Part(name="x", slots=held),),
        state=msgspec.structs.replace(new.state, parts=(state,)),
    )
    assignments = assign(assignment_input(SIZES, placements, agent("a", complete=ALL), new))
    assert drops(assignments) == {"a": set(ALL) - {7}}


@pytest.mark.failure_mode("node-cannot-read-file")
def test_what_one_node_cannot_read_another_one_reads_and_gives_it() -> None:
    placements = replicated("a", "b")
    plain = origins(assign(assignment_input(SIZES, placements, agent("a"), agent("b"))))
    failing = slots.bitmap(sorted(plain["a"])[:5])
    stale = agent("a", failing=failing)
    assignments = assign(assignment_input(SIZES, placements, stale, agent("b")))
    moved = set(slots.members(failing).tolist())
    assert origins(assignments) == {"a": plain["a"] - moved, "b": plain["b"] | moved}
    assert [peer.node for peer in assignments["a"].peers] == ["b"]
    unreadable = assign(assignment_input(SIZES, placements, stale, agent("b", failing=failing)))
    assert origins(unreadable) == plain, "what no node can read stays with whom it was"


def test_progress_of_another_part_of_the_same_name_is_no_progress() -> None:
    placements = replicated("b")
    before = agent("b", parts={"x": (slots.bitmap(range(10)), 100, 100)})
    assert drops(assign(assignment_input(SIZES, placements, agent("a", complete=ALL), before))) == {}


def test_two_full_nodes_that_shall_exchange_slots_do_not_wait_for_each_other() -> None:
    placements = placed(SIZES, Want(key="x", mode="Partition", nodes=("a", "b")))
    copy = placements[0].copies[0].nodes
    mine, theirs = (sorted(set(slots.members(copy[node]).tolist()) & set(ALL)) for node in "ab")
    stuck = [agent("a", complete=theirs, no_room=True), agent("b", complete=mine, no_room=True)]
    assert drops(assign(assignment_input(SIZES, placements, *stuck))) == {"a": set(theirs), "b": set(mine)}
    assert drops(assign(assignment_input(SIZES, placements, stuck[0], agent("b", complete=mine)))) == {
        "a": set(theirs)
    }


def test_what_waits_is_kept_and_not_brought() -> None:
    assignments = assign(
        assignment_input(SIZES, replicated("a", load=False), agent("a", complete=range(9)), source=SOURCE)
    )
    assert [part.pull for part in assignments["a"].parts] == ["Nothing"]
    assert (drops(assignments), origins(assignments)) == ({}, {"a": set()})


def test_some_agents_read_the_source_for_readers_when_a_mount_is_placed_nowhere() -> None:
    agents = [replace(agent(node), state=MountState(mount="/datasets/1")) for node in "abcdef"]
    assignments = assign(assignment_input(SIZES, (), *agents, source=SOURCE))
    assert len(assignments) == RELAYS
    assert all((assignment.source, assignment.parts) == (SOURCE, ()) for assignment in assignments.values())
    assert not any(origins(assignments).values())
    assert assign(assignment_input(SIZES, (), *agents, source=SOURCE)) == assignments
    assert not assign(assignment_input(SIZES, (), *agents))


def moved(assignments: dict[str, Assignment]) -> dict[str, set[int]]:
    return {
        node: set(slots.members(part.slots).tolist())
        for node, assignment in assignments.items()
        for part in assignment.parts
        if part.name == MOVES
    }


def test_what_jobs_have_cached_moves_from_a_node_that_leaves_without_the_source() -> None:
    leaver = agent("a", complete=range(100), present=range(120), draining=True)
    stays = agent("b", complete=range(50))
    assignments = assign(assignment_input(SIZES, (), leaver, stays, agent("c"), owned=False, source=SOURCE))
    taken_over = moved(assignments)
    assert taken_over["b"] | taken_over["c"] == set(range(50, 120))
    assert not taken_over["b"] & taken_over["c"]
    assert all(part.pull == "Peers" for assignment in assignments.values() for part in assignment.parts)
    assert not any(origins(assignments).values())
    assert any(peer.node == "a" for peer in assignments["c"].peers)


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
    assignments = assign(assignment_input(SIZES, placements, *map(agent, nodes)))
    readers = {node for node, members in origins(assignments).items() if members}
    assert len(readers) <= ORIGINS
    for node, assignment in assignments.items():
        assert len(assignment.peers) <= PEERS
        reached = np.logical_or.reduce([slots.mask_of(peer.slots) for peer in assignment.peers])
        assert reached[:300].all(), node


def test_a_limit_is_shared_by_the_nodes_that_read() -> None:
    placements = replicated("a", "b", bandwidth=1000)
    assignments = assign(assignment_input(SIZES, placements, agent("a"), agent("b")))
    assert {assignment.bandwidth for assignment in assignments.values()} == {500}
    mine = placements[0].copies[0].nodes["a"]
    done = agent("a", complete=ALL, parts={"x": (mine, 3000, 3000)})
    copied = assign(assignment_input(SIZES, placements, done, agent("b")))
    # Nothing is left to read for the load; each may read for others, and together no more than the limit.
    assert {assignment.bandwidth for assignment in copied.values()} == {500}


def test_a_comparison_begins_when_everything_is_there_and_stays_until_another_is_due() -> None:
    placements = replicated("a", verify="Sampled", check="uid-1")
    mine = placements[0].copies[0].nodes["a"]
    assert assign(assignment_input(SIZES, placements, agent("a")))["a"].check is None
    parts = {"x": (mine, 3000, 3000)}
    check = assign(assignment_input(SIZES, placements, agent("a", complete=ALL, parts=parts)))["a"].check
    assert check is not None
    assert (check.id, check.percent, check.part) == ("uid-1", 5, "x")
    done = agent("a", complete=ALL, parts=parts, check=CheckState(id="uid-1", done=True))
    assert assign(assignment_input(SIZES, placements, done))["a"].check == check


def verified(*wants: tuple[str, str], **changes: Any) -> list[Want]:
    """Wants with a comparison, by name and node, as `want` and `check`."""
    return [
        Want(key=name, mode="Replicate", nodes=(node,), verify="All", check=f"uid-{name}", **changes)
        for name, node in wants
    ]


def comparisons(
    wants: list[Want], *, running: Mapping[str, CheckState], missing: Collection[str] = ()
) -> dict[str, str]:
    """The check that each agent is assigned when all but the `missing` wants are on their nodes, by node."""
    placements = placed(SIZES, *wants)
    views = []
    for node in "abc":
        parts = {
            placement.want.key: (copy.nodes[node], 3000, 0 if placement.want.key in missing else 3000)
            for placement in placements
            for copy in placement.copies
            if node in copy.nodes
        }
        views.append(agent(node, complete=ALL, parts=parts, check=running.get(node)))
    assignments = assign(assignment_input(SIZES, placements, *views))
    return {
        node: assignment.check.id for node, assignment in assignments.items() if assignment.check is not None
    }


@pytest.mark.parametrize("order", list(itertools.permutations("xyz")))
def test_several_comparisons_of_a_mount_go_one_after_the_other_and_each_begins_once(
    order: tuple[str, ...],
) -> None:
    failed = verified(("w", "a"), verdict=True, load=False)
    wants = [*failed, *verified(*((name, "a") for name in order))]
    running: dict[str, CheckState] = {"a": CheckState(id="uid-w", done=True, wrong_count=1)}
    begun: list[str] = []
    for _ in range(len(order)):
        now = comparisons(wants, running=running)["a"]
        begun.append(now)
        running["a"] = CheckState(id=now)
        # Neither while it goes on nor when it is done, until its Preload has said so, does another one begin.
        older = verified(("older", "a"))
        assert comparisons([*older, *wants], running=running) == {"a": now}
        running["a"] = CheckState(id=now, done=True)
        assert comparisons([*older, *wants], running=running) == {"a": now}
        wants = [want for want in wants if want.check != now]
    assert begun == [f"uid-{name}" for name in order]
    # The failed one gets back what it had, and keeps it.
    assert comparisons(wants, running=running) == {"a": "uid-w"}
    two = [*verified(("v", "a"), verdict=True, load=False), *wants]
    assert comparisons(two, running={"a": CheckState(id="uid-w")}) == {"a": "uid-w"}


def test_a_comparison_that_found_wrong_copies_stays_on_nodes_of_which_no_other_is_due() -> None:
    wants = [*verified(("w", "a"), verdict=True, load=False), *verified(("x", "b"))]
    running = {"a": CheckState(id="uid-w", done=True, wrong_count=1)}
    assert comparisons(wants, running=running) == {"a": "uid-w", "b": "uid-x"}


def test_a_suspended_want_or_one_that_lost_data_after_its_comparison_delays_no_other() -> None:
    running = {"a": CheckState(id="uid-x", done=True)}
    suspended = [*verified(("x", "a"), load=False), *verified(("y", "a"))]
    assert comparisons(suspended, running=running) == {"a": "uid-y"}
    assert comparisons(suspended[:1], running=running) == {"a": "uid-x"}
    assert comparisons(suspended[:1], running={}) == {}
    lost = verified(("x", "a"), ("y", "a"))
    assert comparisons(lost, running=running) == {"a": "uid-x"}
    assert comparisons(lost, running=running, missing={"x"}) == {"a": "uid-y"}


def test_what_cannot_be_placed_as_it_was_asked_for_is_not_compared() -> None:
    want = Want(
        key="x", mode="Replicate", nodes=("a",), verify="All", check="1", subset=Subset(paths=("no",))
    )
    placements = placed(SIZES, want, below={("no",): totals_of([], unknown=("no",))})
    parts = {"x": (placements[0].copies[0].nodes["a"], 0, 0)}
    part = Part(name="x", slots=parts["x"][0], paths=("no",))
    view = replace(agent("a", complete=ALL, parts=parts), parts=(part,))
    assert assign(assignment_input(SIZES, placements, view))["a"].check is None


def test_an_agent_that_counts_by_another_version_has_nothing_of_this_one() -> None:

    view = agent("b")
    old = replace(
        view, state=MountState(mount=MOUNT, version=3, manifest="f" * 32, complete=EVERY, present=EVERY)
    )
    assignments = assign(assignment_input(SIZES, replicated("a"), agent("a"), old))
    assert origins(assignments)["a"] == set(ALL)
    assert assignments["a"].manifest == DIGEST


def test_what_is_done_of_another_version_leaves_no_slot_of_this_one_without_an_origin() -> None:
    """Each node would else read all that is new from the source by itself."""
    placements = replicated("a", "b")
    parts = {"x": (placements[0].copies[0].nodes["a"], 1000, 1000)}
    old = [agent(node, complete=ALL, parts=parts) for node in "ab"]
    old = [replace(view, state=msgspec.structs.replace(view.state, manifest="f" * 32)) for view in old]
    assignments = assign(assignment_input(SIZES, placements, *old, source=SOURCE))
    by_node = origins(assignments)
    assert by_node["a"] | by_node["b"] == set(ALL)
    assert not by_node["a"] & by_node["b"]
    assert [[peer.node for peer in assignments[node].peers] for node in "ab"] == [["b"], ["a"]]
    assert all(assignment.drop == NO_SLOTS for assignment in assignments.values())


def test_nothing_is_read_before_those_have_reported_that_held_it_when_the_operator_started() -> None:
    placements = replicated("a", "b")
    silent = replace(agent("c", draining=True), state=MountState(mount=MOUNT))
    inputs = assignment_input(
        SIZES, placements, agent("a"), agent("b"), silent, source=SOURCE, expected=frozenset("c")
    )
    assignments = assign(inputs)
    assert origins(assignments) == {"a": set(), "b": set(), "c": set()}
    assert all(assignment.source is None for assignment in assignments.values())
    heard = replace(inputs, agents=(*inputs.agents[:2], agent("c", complete=ALL, draining=True)))
    assignments = assign(heard)
    assert not origins(assignments)["a"]
    assert {peer.node for peer in assignments["a"].peers} >= {"c"}


def test_what_the_only_node_of_a_slot_cannot_read_another_one_reads_for_it() -> None:
    placements, failing = replicated("a"), slots.bitmap([7, 200])
    assignments = assign(
        assignment_input(
            SIZES,
            placements,
            agent("a", failing=failing, failing_here=failing, present=ALL),
            agent("b"),
            agent("c"),
            source=SOURCE,
        )
    )
    again = {
        name: [part for part in assignment.parts if part.name == AGAIN]
        for name, assignment in assignments.items()
    }
    assert again["a"] == []
    assert slots.union(*(part.slots for parts in again.values() for part in parts)) == failing
    assert not origins(assignments)["a"] & {7, 200}, "the others read them"
    assert {peer.node for peer in assignments["a"].peers} == {name for name, parts in again.items() if parts}

    # What they have read stays until the first one has it, and goes then.
    (reader, *_) = sorted(name for name, parts in again.items() if parts)
    read = slots.members(again[reader][0].slots).tolist()
    holder = agent(reader, complete=read)
    still = assign(
        assignment_input(
            SIZES,
            placements,
            agent("a", failing=failing, failing_here=failing, present=ALL),
            holder,
            source=SOURCE,
        )
    )
    assert not set(read) & drops(still).get(reader, set())
    assert [peer.node for peer in still["a"].peers] == [reader]
    ended = assign(assignment_input(SIZES, placements, agent("a", complete=ALL), holder, source=SOURCE))
    assert ended[reader].parts == ()
    assert drops(ended)[reader] == set(read)


@pytest.mark.parametrize(
    "peers",
    [
        [],
        [replace(agent("b"), room=0)],
        [replace(agent("b"), draining=True)],
        [replace(agent("b"), crowded=True)],
    ],
    ids=["nobody", "no room", "draining", "crowded"],
)
def test_nobody_reads_again_for_another_node_who_has_no_place_for_it(peers: list[Any]) -> None:
    bad = slots.bitmap([7])
    failing = agent("a", failing=bad, failing_here=bad, present=ALL)
    assignments = assign(assignment_input(SIZES, replicated("a"), failing, *peers, source=SOURCE))
    assert not any(part.name == AGAIN for assignment in assignments.values() for part in assignment.parts)
    assert 7 in origins(assignments)["a"]


def test_what_the_source_lacks_is_read_by_no_second_node() -> None:
    nodes = [agent("a", failing=EVERY, present=ALL), agent("b"), agent("c")]
    assignments = assign(assignment_input(SIZES, replicated("a"), *nodes, source=SOURCE))
    assert not any(part.name == AGAIN for assignment in assignments.values() for part in assignment.parts)
    assert origins(assignments)["a"] == set(ALL)


def test_what_a_second_node_cannot_read_either_goes_back_to_the_first_and_to_no_third_one() -> None:
    bad, alongside = slots.bitmap([7]), slots.bitmap([7, 8])
    nodes = [
        agent("a", failing=alongside, failing_here=alongside, present=ALL),
        agent("b", failing=bad, present=[7]),
        agent("c"),
    ]
    assignments = assign(assignment_input(SIZES, replicated("a"), *nodes, source=SOURCE))
    parts = {
        (name, part.name, part.pull): slots.members(part.slots).tolist()
        for name, assignment in assignments.items()
        for part in assignment.parts
    }
    again = [held for (_, name, _), held in parts.items() if name == AGAIN]
    assert again == [[8]]
    assert 7 in origins(assignments)["a"]
    # Its agent goes on saying that it has failed, and brings no more of it: else it would be asked once more.
    assert parts["b", AGAIN_TOO, "Nothing"] == [7]
    assert 7 not in drops(assignments).get("b", set())


def test_a_node_reads_for_several_others_no_more_than_it_has_room_for() -> None:
    want = Want(key="x", mode="Partition", nodes=("a", "b"))
    placements = placed(SIZES, want)
    held = placements[0].copies[0].nodes
    nodes = [
        agent(name, failing=held[name], failing_here=held[name], present=slots.members(held[name]).tolist())
        for name in "ab"
    ]
    room = 1500
    nodes = [*(replace(view, room=0) for view in nodes), replace(agent("c"), room=room)]
    assignments = assign(assignment_input(SIZES, placements, *nodes, source=SOURCE))
    (part,) = assignments["c"].parts
    assert 0 < slots.bytes_in(part.slots, SIZES.sizes) <= room


def test_what_several_nodes_cannot_read_is_the_sources_fault_and_is_read_by_no_third_one() -> None:
    bad = slots.bitmap([7])
    nodes = [*(agent(node, failing=bad, failing_here=bad) for node in "ab"), agent("c")]
    assignments = assign(assignment_input(SIZES, replicated("a", "b"), *nodes, source=SOURCE))
    assert not any(part.name == AGAIN for assignment in assignments.values() for part in assignment.parts)
