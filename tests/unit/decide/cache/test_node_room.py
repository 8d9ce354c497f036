"""Grantable cache space of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.cache.node_room import NodeSpace, has_to_wait, is_crowded, physical_bytes, usable_on
from tdcs.model.agent_state import AgentState, MountState

CAPACITY = 6400
"""A step of the disk use of other programs has 100 bytes, and the reserve 128."""
ROOM = 6272


def node(
    *, capacity: int = CAPACITY, kept: int = 0, disk_free: int = 0, used: int = 0, **held: int
) -> NodeSpace:
    mounts = {path: MountState(mount=path, held_bytes=size) for path, size in held.items()}
    state = AgentState(
        node="n",
        instance="i",
        revision=1,
        used_bytes=used,
        kept_bytes=kept,
        disk_free_bytes=disk_free,
        mounts=mounts,
    )
    return NodeSpace(capacity=capacity, state=state)


@pytest.mark.parametrize(
    ("space", "usable"),
    [
        pytest.param(node(), ROOM, id="an empty node, less the reserve"),
        pytest.param(node(capacity=0), 0, id="no capacity"),
        pytest.param(node(a=300), ROOM, id="what managed mounts hold is theirs to use"),
        pytest.param(node(stranger=300), ROOM - 300, id="what others hold is not"),
        pytest.param(node(stranger=9000), 0, id="never less than nothing"),
        pytest.param(node(kept=1), ROOM - 100, id="bytes of no version in whole steps"),
        pytest.param(node(kept=100), ROOM - 100, id="exactly one step"),
        pytest.param(node(kept=101), ROOM - 200, id="and one byte"),
        pytest.param(node(disk_free=CAPACITY), ROOM, id="the disk has all that the cache may hold"),
        pytest.param(node(disk_free=1099), 1000, id="other programs have the disk but for ten steps"),
        pytest.param(node(disk_free=1099, used=300, a=300), 1300, id="what is held comes on top"),
        pytest.param(node(disk_free=1, used=300, a=300), 300, id="a full disk"),
    ],
)
def test_the_bytes_that_managed_mounts_may_use(space: NodeSpace, usable: int) -> None:
    assert usable_on(space, managed={"a", "b"}) == usable


@given(
    capacity=st.integers(0, 10_000),
    kept=st.integers(0, 10_000),
    disk_free=st.integers(0, 10_000),
    held=st.dictionaries(st.sampled_from("abc"), st.integers(0, 10_000)),
)
def test_usable_bytes_are_never_negative_nor_more_than_blocks_may_take(
    capacity: int, kept: int, disk_free: int, held: dict[str, int]
) -> None:
    space = node(capacity=capacity, kept=kept, disk_free=disk_free, used=sum(held.values()), **held)
    assert 0 <= usable_on(space, managed={"a", "b"}) <= max(physical_bytes(space), 0)


@pytest.mark.parametrize(
    ("held", "granted", "crowded"),
    [
        ({}, {}, False),
        ({"a": ROOM}, {}, False),
        ({"a": ROOM + 1}, {}, True),
        ({"a": 1000}, {"a": ROOM}, False),
        ({"a": 1}, {"b": ROOM}, True),
        ({"a": 1000}, {"a": 10, "b": ROOM - 1000}, False),
        ({"a": 1000}, {"a": 10, "b": ROOM - 999}, True),
    ],
)
def test_a_node_is_crowded_when_what_is_held_or_granted_has_no_room(
    held: dict[str, int], granted: dict[str, int], crowded: bool
) -> None:
    assert is_crowded(node(**held), granted) is crowded


@pytest.mark.parametrize(
    ("held", "granted", "waits"),
    [
        ({}, ROOM, False),
        ({}, ROOM + 1, True),
        ({"b": 1}, ROOM, True),
        ({"b": 1}, ROOM - 1, False),
        ({"a": 100, "b": ROOM}, 100, False),
        ({"a": 100, "b": ROOM}, 101, True),
    ],
)
def test_a_mount_waits_only_for_bytes_that_it_has_not_yet_and_others_still_hold(
    held: dict[str, int], granted: int, waits: bool
) -> None:
    assert has_to_wait(node(**held), path="a", granted=granted) is waits


def state(capacity: int, **held: int) -> AgentState:
    mounts = {f"/{name}": MountState(mount=f"/{name}", held_bytes=size) for name, size in held.items()}
    return AgentState(
        node="a",
        instance="i",
        revision=1,
        capacity_bytes=capacity,
        used_bytes=sum(held.values()),
        mounts=mounts,
    )


def test_what_is_not_known_yet_keeps_its_room() -> None:
    node = NodeSpace(capacity=1000, state=state(1000, known=300, stranger=200))
    assert usable_on(node, managed={"/known"}) == 780
    assert usable_on(node, managed={"/known", "/stranger"}) == 980


def test_what_was_granted_waits_for_what_has_to_leave() -> None:
    node = NodeSpace(capacity=1000, state=state(1000, old=900))
    granted = {"/old": 100, "/new": 800}
    assert is_crowded(node, granted)
    assert has_to_wait(node, path="/new", granted=800)
    space = NodeSpace(capacity=1000, state=state(1000, old=100))
    assert not is_crowded(space, granted)
    assert not has_to_wait(space, path="/new", granted=800)
