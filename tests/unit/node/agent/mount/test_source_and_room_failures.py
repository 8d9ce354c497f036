"""What a mount says of its source and of its room: a failure is said as long as it lasts, and no longer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.dataplane.agents import MOUNT, Version, fill, folder_version

from tdcs.model.agent_state import ALL_SLOTS, SourceAccess
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import SourceFailureError


class Work:
    """A mount of three files of which nothing lies here, and its time."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        source = fill(folder / "source", dict.fromkeys("abc", b"x" * 10))
        self.version: Version = folder_version(source, store=folder / "manifests")
        room = Room(capacity=1 << 30, free=lambda: 1 << 30)
        self.mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room, clock=lambda: self.now)
        self.ledger = Ledger(self.version.manifest)
        self.mount.opened(self.ledger)
        self.mount.assign(self.version.assignment())

    def take(self) -> list[int]:
        """Claim all that can be brought now."""
        return self.ledger.take(now=self.now, most=10, most_bytes=1 << 20)

    def codes(self) -> list[str]:
        """What is said to fail."""
        return [failure.code for failure in self.mount.state().failed]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def away(*, busy: bool = False) -> SourceFailureError:
    return SourceFailureError("SourceAway", f"it answers {503 if busy else 500}", common=True, busy=busy)


def test_a_source_that_answers_is_not_away_whatever_failed_in_the_pause_before(work: Work) -> None:
    first, _, third = work.take()
    work.mount.source_refused(work.ledger, first, away())
    work.mount.source.answered(10)
    work.mount.source_refused(work.ledger, third, away())  # in the pause: it is not counted
    work.now += 10
    work.mount.source_refused(work.ledger, third, away())
    assert work.codes() == ["SourceAway"]
    work.mount.source.answered(10)
    assert work.codes() == []


def test_a_source_that_answers_every_second_time_is_never_said_to_be_away(work: Work) -> None:
    for number in range(200):
        work.mount.source_refused(work.ledger, number % 3, away())
        assert "SourceAway" not in work.codes()
        work.now += 9
        work.mount.source.answered(10)
        work.mount.brought(work.ledger, number % 3)
        work.ledger.located(number % 3, is_here=False)


def test_a_file_that_gets_no_answer_while_others_do_fails_alone_and_is_tried_again(work: Work) -> None:
    first = work.take()[0]
    tries = 0
    while work.codes() == []:
        work.mount.source_refused(work.ledger, first, away())
        tries += 1
        work.now += 1
        if tries < 3:
            assert not any(work.ledger.has_failed(block) for block in range(3))
            work.mount.source.answered(10)
    assert work.codes() == ["Unreadable"]
    assert 2 < tries < 10
    (failure,) = work.mount.state().failed
    assert "500" in failure.reason
    (part,) = work.mount.state().parts
    assert part.failed_bytes == 10
    for _ in range(5):  # it alone is asked for from now on
        work.now += 600
        assert first in work.take()
        work.mount.source_refused(work.ledger, first, away())
        assert work.codes() == ["Unreadable"]
        assert first not in work.take(), "with pauses"
    work.now += 600
    work.mount.brought(work.ledger, first)
    assert work.codes() == []


def test_a_file_that_is_always_answered_with_a_request_for_patience_is_named_and_not_failed(
    work: Work,
) -> None:
    first = work.take()[0]
    for _ in range(20):
        work.mount.source_refused(work.ledger, first, away(busy=True))
        work.now += 5
        work.mount.source.answered(10)
    (failure,) = work.mount.state().failed
    assert (failure.code, work.mount.state().failed_count) == ("SourceAway", 0)
    assert "not for this one yet: it answers 503" in failure.reason
    assert work.mount.state().parts[0].failed_bytes == 0
    work.now += 15
    assert first in work.take(), "it is tried again soon"
    work.mount.brought(work.ledger, first)
    assert work.codes() == []


def test_no_file_fails_by_a_source_that_answers_for_none(work: Work) -> None:
    for _ in range(20):
        for block in range(3):
            work.mount.source_refused(work.ledger, block, away())
        work.now += 60
    assert work.codes() == ["SourceAway"]
    work.mount.source.answered(10)
    work.mount.source_refused(work.ledger, 0, away())
    assert work.codes() == [], "what was not answered before counts no more"


def test_an_answer_leaves_no_long_pause_but_a_short_one_for_a_source_that_throttles(work: Work) -> None:
    work.mount.source_refused(work.ledger, 0, away())
    assert work.mount.source.until == 0.0, "one that throttles answers others"
    for _ in range(6):
        work.mount.source_refused(work.ledger, 0, away())
        pause = work.mount.source.until - work.now
        work.now = work.mount.source.until
    work.now -= pause
    assert pause > 10
    work.mount.source.answered(10)
    assert 0 < work.mount.source.until - work.now < 1.01


def test_an_answer_of_a_source_that_was_replaced_does_not_open_the_new_one(work: Work) -> None:
    work.mount.assign(work.version.assignment(version=2, source=SourceAccess(uri="nonsense://nowhere")))
    work.mount.source.answered(10)  # a read of the source before it
    assert work.codes() == ["SourceAway"]


def test_no_room_is_not_said_any_more_when_nothing_is_missing(work: Work) -> None:
    work.mount.no_room(work.ledger, work.take(), "the disk has 0 bytes left")
    assert work.codes() == ["NoRoom"]
    work.mount.assign(work.version.assignment(version=2, parts=(), drop=ALL_SLOTS))
    assert work.codes() == [], "or copies that are nowhere else would be dropped for it"


def test_no_room_is_said_while_a_block_waits_for_it_and_while_it_is_tried(work: Work) -> None:
    work.mount.no_room(work.ledger, work.take(), "the disk has 0 bytes left")
    work.now += 60
    assert work.codes() == ["NoRoom"]
    blocks = work.take()
    assert work.codes() == ["NoRoom"]
    for block in blocks:
        work.mount.source_refused(work.ledger, block, SourceFailureError("Missing", "it is gone"))
    assert work.codes() == ["Missing"] * 3, "there was room for what the source has no more"
