"""A block that was removed may be loaded again only when the worker's heartbeat has told the master."""

import pytest

from tdcs.engine.alluxio.removals import Removals


class Clock:
    """Time that passes when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def removals(clock: Clock) -> Removals:
    return Removals(settled_after=3, clock=clock)


def test_a_removed_block_waits_for_the_heartbeat_and_others_do_not(removals: Removals, clock: Clock) -> None:
    removals.note(worker="a", block_ids=[1, 2])
    clock.now += 1
    assert removals.unsettled(worker="a", block_ids=[2, 3]) == 2
    assert removals.unsettled(worker="a", block_ids=[3]) == 0
    assert removals.unsettled(worker="b", block_ids=[1]) == 0
    clock.now += 2
    assert removals.unsettled(worker="a", block_ids=[1, 2]) == 0


def test_a_block_that_is_removed_again_waits_again(removals: Removals, clock: Clock) -> None:
    removals.note(worker="a", block_ids=[1])
    clock.now += 2
    removals.note(worker="a", block_ids=[1])
    clock.now += 2
    assert removals.unsettled(worker="a", block_ids=[1]) == 1


def test_room_may_still_come_free_while_a_removal_is_not_reported(removals: Removals, clock: Clock) -> None:
    assert not removals.pending(worker="a")
    removals.note(worker="a", block_ids=[1])
    assert removals.pending(worker="a")
    assert not removals.pending(worker="b")
    clock.now += 3
    assert not removals.pending(worker="a")
