"""Origins that read a slot from the source, and peers that others ask."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decide.builders import MOUNT, agent

from tdcs.decide.place.slot_sources import (
    ORIGINS,
    PEERS,
    AgentNode,
    Mask,
    choose_origins,
    peers_of,
    scores_of,
)
from tdcs.model import slots
from tdcs.model.agent_state import Part

ALL = range(slots.SLOTS)


def mask(numbers: Iterable[int]) -> Mask:
    return slots.mask_of(slots.bitmap(numbers))


def node(
    name: str,
    *,
    pulled: Iterable[int] = (),
    complete: Sequence[int] = (),
    present: Sequence[int] | None = None,
    moves: Iterable[int] = (),
    failing: Iterable[int] = (),
) -> AgentNode:
    """An agent that is to get slots; `moves`: only from peers."""
    view = agent(name, complete=complete, present=present, failing=slots.bitmap(failing))
    moved = slots.bitmap(moves)
    return AgentNode(
        view=view,
        complete=slots.mask_of(view.state.complete),
        present=slots.mask_of(view.state.present),
        pulled=mask(pulled),
        parts=[Part(name="x", slots=moved, pull="Peers")] if any(moves) else [],
    )


def origins(*nodes: AgentNode) -> dict[str, set[int]]:
    choose_origins(MOUNT, nodes)
    return {agent_node.view.node: set(np.flatnonzero(agent_node.origin).tolist()) for agent_node in nodes}


@given(
    pulled=st.dictionaries(
        st.sampled_from("abcdef"), st.frozensets(st.integers(0, slots.SLOTS - 1), max_size=20), min_size=1
    )
)
def test_each_missing_slot_is_read_from_the_source_once(pulled: dict[str, frozenset[int]]) -> None:
    chosen = origins(*(node(name, pulled=numbers) for name, numbers in pulled.items()))
    read = [number for numbers in chosen.values() for number in numbers]
    assert len(read) == len(set(read))
    assert set(read) == frozenset[int]().union(*pulled.values())
    assert all(chosen[name] <= numbers for name, numbers in pulled.items())


def test_nothing_is_read_when_nothing_is_pulled() -> None:
    assert origins(node("a", complete=[1]), node("b")) == {"a": set(), "b": set()}


def test_a_slot_that_another_node_has_is_not_read_from_the_source() -> None:
    assert origins(node("a", pulled=[1, 2]), node("b", complete=[1])) == {"a": {2}, "b": set()}


def test_a_node_that_has_a_part_of_a_slot_alone_reads_it_again() -> None:
    assert origins(node("a", pulled=[1], complete=[1])) == {"a": {1}}


def test_a_slot_that_a_node_cannot_read_is_read_by_another_one() -> None:
    assert origins(node("a", pulled=ALL, failing=ALL), node("b", pulled=ALL))["b"] == {*ALL}
    assert origins(node("a", pulled=[3], failing=[3])) == {"a": {3}}  # nobody else can


def test_of_many_nodes_always_the_same_few_read() -> None:
    def readers(names: Sequence[str]) -> set[str]:
        return {name for name, read in origins(*(node(name, pulled=ALL) for name in names)).items() if read}

    names = [f"n{number}" for number in range(ORIGINS + 10)]
    assert len(readers(names)) == ORIGINS
    assert readers(names) == readers(names[::-1])


def test_scores_depend_on_mount_and_node_alone() -> None:
    assert np.array_equal(scores_of("/m", "a"), scores_of("/m", "a"))
    assert not np.array_equal(scores_of("/m", "a"), scores_of("/m", "b"))
    assert not np.array_equal(scores_of("/m", "a"), scores_of("/n", "a"))
    assert scores_of("/m", "a").min() >= 0
    assert scores_of("/m", "a").max() < 1


def test_who_lacks_nothing_asks_nobody() -> None:
    assert peers_of(MOUNT, []) == {}
    assert peers_of(MOUNT, [node("a", complete=[1]), node("b", pulled=[1], complete=[1])]) == {}


def test_the_peer_with_most_of_what_lacks_is_asked_first_and_never_oneself() -> None:
    asking = node("a", pulled=[1, 2, 3])
    (peers,) = peers_of(MOUNT, [asking, node("b", complete=[1]), node("c", complete=[1, 2])]).values()
    assert [peer.node for peer in peers] == ["c", "b"]
    assert peers[0].complete == slots.bitmap([1, 2])


def test_a_peer_without_any_of_it_is_not_named() -> None:
    asking = node("a", pulled=[1])
    (peers,) = peers_of(MOUNT, [asking, node("b", complete=[2]), node("c")]).values()
    assert peers == ()


def test_a_peer_that_is_to_get_it_is_named_without_having_it() -> None:
    peers = peers_of(MOUNT, [node("a", pulled=[1]), node("b", pulled=[1, 2])])
    assert [(peer.node, peer.slots, peer.complete) for peer in peers["a"]] == [
        ("b", slots.bitmap([1]), slots.bitmap([]))
    ]


def test_a_few_blocks_of_a_slot_are_asked_for_only_to_move_them() -> None:
    holder = node("b", present=[1])
    assert peers_of(MOUNT, [node("a", pulled=[1]), holder])["a"] == ()
    (peer,) = peers_of(MOUNT, [node("a", moves=[1]), holder])["a"]
    assert (peer.node, peer.slots) == ("b", slots.bitmap([1]))


@pytest.mark.parametrize("count", [PEERS - 1, PEERS, PEERS + 5])
def test_only_so_many_peers_are_named(count: int) -> None:
    holders = [node(f"n{number:02}", complete=[1]) for number in range(count)]
    assert len(peers_of(MOUNT, [node("a", pulled=[1]), *holders])["a"]) == min(count, PEERS)
