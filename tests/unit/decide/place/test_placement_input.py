"""Nodes of a cache as its mounts see them: who may hold what, who is away, and who is waited for."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.builders import placement_of

from tdcs.decide.place.placement_input import (
    CacheNodes,
    Hosts,
    ReadOn,
    cache_nodes,
    concerned,
    hosts,
    informed,
    member_nodes,
    nodes_of,
)
from tdcs.decide.place.slot_nodes import NodeView
from tdcs.model import slots
from tdcs.model.agent_state import AgentState, MountState, Part
from tdcs.model.cache_engine import WorkerInfo
from tdcs.model.cache_view import Away, CacheView

PATH = "/datasets/1"
NODES = {name: NodeView(name=name, labels={}) for name in "abcd"}


def state(node: str, *, held: int = 0, capacity: int = 100, **more: Any) -> AgentState:
    """An agent that knows the mount when it holds some of it."""
    mounts = {PATH: MountState(mount=PATH, held_bytes=held, **more)} if held or more else {}
    return AgentState(node=node, instance="i", revision=1, capacity_bytes=capacity, mounts=mounts)


def cluster(**workers: str) -> dict[str, Any]:
    """A CacheCluster with the state of the worker of each node."""
    return {
        "status": {
            "workers": [{"node": node, "state": worker_state} for node, worker_state in workers.items()]
        }
    }


def view(
    *agents: AgentState, away: dict[str, tuple[AgentState, float]] | None = None, live: str = ""
) -> CacheView:
    return CacheView(
        since=0.0,
        agents={agent.node: agent for agent in agents},
        away={node: Away(state=agent, since=since) for node, (agent, since) in (away or {}).items()},
        workers=tuple(
            WorkerInfo(name=name, address="", capacity_bytes=7, used_bytes=0, live=True) for name in live
        ),
    )


def cache(*agents: AgentState, status: dict[str, Any] | None = None, **more: Any) -> CacheNodes:
    return cache_nodes(view=view(*agents, **more), nodes=NODES, cluster=status)


def seen(cache: CacheNodes, *, now: float = 100.0, expected: tuple[str, ...] = (), **more: Any) -> Hosts:
    return hosts(path=PATH, cache=cache, expected=expected, now=now, patience=60.0, **more)


def names(mount_hosts: Hosts) -> str:
    return "".join(candidate.node.name for candidate in mount_hosts.candidates)


def test_a_node_counts_as_reading_until_the_delay_is_over() -> None:
    read = ReadOn().then({"a"}, now=10.0, delay=5.0)
    assert read.then((), now=14.9, delay=5.0).nodes.nodes == {"a"}
    assert read.then((), now=15.0, delay=5.0).nodes.nodes == frozenset()
    assert read.then({"a"}, now=15.0, delay=5.0).nodes.nodes == {"a"}


def test_nodes_of_a_new_operator_are_assumed_to_read_until_they_do_or_time_is_over() -> None:
    first = ReadOn.at_first(["a", "b"], now=0.0)
    assert (set(first.nodes.nodes), set(first.nodes.perhaps)) == (set(), {"a", "b"})
    later = first.then({"a"}, now=1.0, delay=5.0)
    assert (set(later.nodes.nodes), set(later.nodes.perhaps)) == ({"a"}, {"b"})
    assert later.then((), now=5.0, delay=5.0).nodes.perhaps == frozenset()


@pytest.mark.parametrize("status", [None, {}, {"status": {}}, {"status": {"workers": []}}])
def test_without_a_status_of_workers_every_node_is_a_member(status: dict[str, Any] | None) -> None:
    assert member_nodes(status) is None
    assert names(seen(cache(state("a"), state("b"), status=status))) == "ab"


def test_neither_a_draining_node_nor_one_that_is_no_member_holds_anything() -> None:
    status = cluster(a="Ready", b="Draining")
    nodes = cache(state("a"), state("b"), state("c"), status=status)
    assert names(seen(nodes)) == "a"
    assert nodes.draining == {"b"}
    assert nodes.agents.keys() == {"a", "b", "c"}


def test_an_agent_on_a_node_that_left_the_cluster_is_left_out() -> None:
    nodes = cache(state("a"), state("gone", held=5))
    assert nodes.agents.keys() == {"a"}
    assert seen(nodes).held == {}


def test_the_agent_says_its_capacity_and_the_worker_where_it_does_not() -> None:
    nodes = cache(state("a", capacity=0), state("b", capacity=50), live="ab")
    assert {name: space.capacity for name, space in nodes.spaces.items()} == {"a": 7, "b": 50}


def test_what_did_not_change_stays_the_same_object() -> None:
    before = cache(state("a"), state("b"))
    after = cache_nodes(
        view=replace(before.view, agents={**before.view.agents, "b": state("b", capacity=5)}),
        nodes=NODES,
        cluster=None,
        before=before,
    )
    assert after.candidates["a"] is before.candidates["a"]
    assert after.spaces["a"] is before.spaces["a"]
    assert after.spaces["b"].capacity == after.candidates["b"].node.capacity_bytes == 5


def test_an_agent_that_has_not_reported_is_waited_for_only_so_long() -> None:
    nodes = cache(state("a"), live="ab")
    assert seen(nodes, now=59.9).waiting == {"b"}
    assert seen(nodes, now=60.0).waiting == frozenset()
    assert seen(cache(state("a")), now=0.0, expected=("a", "c", "gone")).waiting == {"c"}
    assert (
        seen(cache(live="b", status=cluster(b="Draining")), now=0.0, expected=("b",)).waiting == frozenset()
    )


def test_a_node_that_is_away_keeps_what_it_holds_until_patience_is_over() -> None:
    nodes = cache(state("b"), away={"a": (state("a", held=9), 50.0)})
    soon, late = seen(nodes, now=109.9), seen(nodes, now=110.0)
    assert (names(soon), soon.filled, soon.next_at) == ("ab", {"a": 9}, 110.0)
    assert (names(late), late.filled, late.next_at) == ("b", {}, None)
    assert "a" not in soon.agents


def test_what_a_node_has_that_is_away_counts_as_there_for_a_moment() -> None:
    nodes = cache(away={"a": (state("a", held=9), 50.0)})
    moment, after = seen(nodes, now=59.9, absence=10.0), seen(nodes, now=60.0, absence=10.0)
    assert (set(moment.readable), moment.next_at) == ({"a"}, 60.0)
    assert (set(after.readable), set(after.held), after.next_at) == (set(), {"a"}, 110.0)


def test_a_node_that_is_away_without_any_of_the_mount_is_not_awaited() -> None:
    nodes = cache(state("b"), away={"a": (state("a"), 50.0)})
    assert (names(seen(nodes)), seen(nodes).next_at) == ("b", None)


def test_an_agent_that_is_away_from_a_draining_node_is_still_to_hand_over() -> None:
    nodes = cache(state("b"), away={"a": (state("a", held=9), 90.0)}, status=cluster(a="Draining", b="Ready"))
    mount_hosts = seen(nodes)
    assert (names(mount_hosts), set(mount_hosts.agents)) == ("b", {"a", "b"})
    assert mount_hosts.states.keys() == {"a"}


def test_bytes_of_the_mount_that_a_candidate_holds_are_counted_for_it_alone() -> None:
    candidates = seen(cache(state("a", held=9), state("b"))).candidates
    assert [(candidate.node.name, candidate.node.held_bytes) for candidate in candidates] == [
        ("a", 9),
        ("b", 0),
    ]


def part(*numbers: int, key: str = "x") -> tuple[Part, ...]:
    return (Part(name=key, slots=slots.bitmap(numbers)),)


def test_a_last_state_is_about_the_same_files_or_says_nothing() -> None:
    mount_hosts = seen(cache(state("a", held=9), state("b", held=9), state("c", held=9)))
    parts = {"a": part(0), "b": part(1), "stranger": part(0)}
    assert informed(mount_hosts, [placement_of("a", "b")], parts=parts) == {"a"}
    assert informed(mount_hosts, [placement_of("a")], parts=parts) == {"a", "b"}  # b is to hold nothing
    assert informed(mount_hosts, [], parts={}) == frozenset()


def test_a_source_that_was_away_when_its_agent_went_may_be_back() -> None:
    gone = {"a": (state("a", held=9, source_away=True), 90.0)}
    assert informed(seen(cache(away=gone)), [placement_of("a")], parts={"a": part(0)}) == frozenset()
    here = seen(cache(state("a", held=9, source_away=True)))
    assert informed(here, [placement_of("a")], parts={"a": part(0)}) == {"a"}


def test_only_nodes_with_something_of_the_mount_are_concerned() -> None:
    mount_hosts = seen(cache(state("a", held=9), state("b", version=3), state("c"), state("d")))
    assert concerned(mount_hosts, [placement_of("d")], expected=frozenset("x")) == {"a", "b", "d", "x"}


def test_all_nodes_are_concerned_while_one_drains_or_nothing_is_placed() -> None:
    assert concerned(seen(cache(state("a"), state("b"))), [], expected=frozenset()) == {"a", "b"}
    draining = seen(cache(state("a"), state("b"), status=cluster(a="Draining", b="Ready")))
    assert concerned(draining, [placement_of("b")], expected=frozenset()) == {"a", "b"}


def test_nodes_of_all_copies_of_all_wants() -> None:
    assert nodes_of({}) == frozenset()
    assert nodes_of({"x": {"0": frozenset("a"), "1": frozenset("bc")}, "y": {}}) == {"a", "b", "c"}
