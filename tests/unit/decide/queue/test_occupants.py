"""What pods take of nodes, and until when."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decide.builders import groups_of

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.queue.occupants import (
    LONGEST_WAIT,
    Occupant,
    both,
    deleted_pods,
    ends_in,
    measured_in,
    seconds_until_room,
    with_reserved,
)
from tdcs.decide.queue.room_table import RoomTable

GPU = GPU_RESOURCE


@pytest.mark.parametrize(
    ("gone_in", "grace", "leaves", "lingers", "wait", "changes_in"),
    [
        pytest.param(20.0, 30.0, True, False, 20.0, 620.0, id="within its grace"),
        pytest.param(0.0, 30.0, True, False, 0.0, 600.0, id="its time is over now"),
        pytest.param(-600.0, 30.0, True, False, 0.0, 0.0, id="overdue, and still expected"),
        pytest.param(-600.1, 30.0, False, False, math.inf, math.inf, id="held by something else"),
        pytest.param(600.0, 3600.0, True, False, 600.0, 1200.0, id="so long left at the most"),
        pytest.param(3000.0, 3600.0, True, False, 3000.0, 0.0, id="deleted so long ago at the most"),
        pytest.param(2999.0, 3600.0, False, True, 2999.0, 2399.0, id="long ago, with long left"),
        pytest.param(3500.0, 3600.0, True, False, 3500.0, 500.0, id="a moment ago, with long left"),
    ],
)
def test_pods_that_are_deleted_leave_linger_or_are_late(
    gone_in: float, grace: float, leaves: bool, lingers: bool, wait: float, changes_in: float
) -> None:
    pods = deleted_pods({}, gone_in=gone_in, grace=grace, gone_by="then")
    assert (pods.leaves, pods.lingers, pods.ends_in) == (leaves, lingers, wait)
    assert pods.changes_in == changes_in
    assert pods.gone_by == ("then" if wait < math.inf else "")
    assert not pods.may_yield


@given(gone_in=st.floats(-2000, 10_000), grace=st.floats(0, 10_000))
def test_pods_that_are_deleted_are_of_one_kind_and_stay_so_until_they_change(
    gone_in: float, grace: float
) -> None:
    grace = max(grace, gone_in)
    pods = deleted_pods({}, gone_in=gone_in, grace=grace)
    assert pods.leaves + pods.lingers + math.isinf(pods.ends_in) == 1
    if 2.0 < pods.changes_in < math.inf:
        before = deleted_pods({}, gone_in=gone_in - pods.changes_in + 1.0, grace=grace)
        assert (before.leaves, before.lingers) == (pods.leaves, pods.lingers)


@pytest.mark.parametrize(
    ("started", "deadline", "seconds"),
    [(None, None, math.inf), (50.0, None, math.inf), (None, 60, 90.0), (50.0, 60, 40.0), (0.0, 10, 0.0)],
)
def test_a_job_ends_at_its_deadline_and_the_grace_of_its_pods(
    started: float | None, deadline: int | None, seconds: float
) -> None:
    assert ends_in(started=started, deadline=deadline, grace=30.0, now=100.0) == seconds


@pytest.mark.parametrize(
    ("started", "ran", "seconds"),
    [
        (50.0, None, math.inf),
        (None, 60.0, 90.0),
        (50.0, 60.0, 40.0),
        (50.0, 50.0, 30.0),
        (50.0, 49.9, math.inf),
    ],
)
def test_a_job_is_measured_by_others_until_it_has_run_for_longer(
    started: float | None, ran: float | None, seconds: float
) -> None:
    assert measured_in(started=started, ran=ran, grace=30.0, now=100.0) == seconds


def test_the_earlier_of_deadline_and_measured_end_is_expected() -> None:
    occupant = Occupant(key=("n", "a"), uid="a", priority=0, ends_in=50.0, measured_in=20.0)
    assert occupant.expected_in == 20.0


def test_amounts_of_two_are_added_node_by_node() -> None:
    assert both({"a": {GPU: 1}, "b": {"cpu": 2}}, {"b": {"cpu": 3, GPU: 1}, "c": {GPU: 4}}) == {
        "a": {GPU: 1},
        "b": {"cpu": 5, GPU: 1},
        "c": {GPU: 4},
    }
    assert both({}, {}) == {}


def occupant(name: str, *, seconds: float, reserved: tuple[int, ...] = (), **takes: int) -> Occupant:
    return Occupant(
        key=("n", name),
        uid=name,
        priority=0,
        takes={node: {GPU: gpus} for node, gpus in takes.items()},
        ends_in=seconds,
        reserved=groups_of(reserved),
    )


def test_room_for_pods_without_a_node_is_reserved_in_order_and_taken_of_what_is_left() -> None:
    room = RoomTable({"a": {GPU: 4}, "b": {GPU: 2}})
    first, second, third = with_reserved(
        [
            occupant("first", seconds=1, reserved=(4,)),
            occupant("second", seconds=1, reserved=(2,), a=1),
            occupant("third", seconds=1, a=1),
        ],
        room=room,
        scarce=GPU,
    )
    assert first.takes["a"][GPU] == 4
    assert (second.takes["a"][GPU], second.takes["b"][GPU]) == (1, 2)
    assert not first.reserved
    assert third.takes == {"a": {GPU: 1}}
    assert (room.left("a", GPU), room.left("b", GPU)) == (0, 0)


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        ((1,), 0.0),
        ((2,), 10.0),
        ((4,), 20.0),
        ((4, 3), 30.0),
        ((4, 4), math.inf),
        ((5,), math.inf),
    ],
)
def test_a_job_has_room_when_the_last_of_those_that_it_needs_to_end_is_gone(
    pods: tuple[int, ...], seconds: float
) -> None:
    room = RoomTable({"a": {GPU: 1}, "b": {GPU: 0}})
    occupants = [
        occupant("late", seconds=30.0, b=3),
        occupant("early", seconds=10.0, a=1),
        occupant("middle", seconds=20.0, a=2),
        occupant("endless", seconds=math.inf, b=1),
    ]
    groups = groups_of(pods)
    assert seconds_until_room(room=room, groups=groups, scarce=GPU, occupants=occupants) == seconds
    assert seconds_until_room(room=room, groups=groups, scarce=GPU, occupants=occupants[::-1]) == seconds


def test_those_that_end_at_one_time_leave_their_room_together() -> None:
    occupants = [occupant(name, seconds=7.0, a=1) for name in "xyz"]
    room = RoomTable({"a": {GPU: 0}})
    assert seconds_until_room(room=room, groups=groups_of((3,)), scarce=GPU, occupants=occupants) == 7.0
    assert math.isinf(seconds_until_room(room=room, groups=groups_of((1,)), scarce=GPU, occupants=[]))


def test_the_longest_wait_is_ten_minutes() -> None:
    assert LONGEST_WAIT == 600.0
