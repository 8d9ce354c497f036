"""Blocks that moved to another node: when they leave this one."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version

from tdcs.model import slots
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork

SECONDS = 4.0


class Leaver:
    """A mount of ten blocks, all of them here, and the time."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        files = {f"{number}": b"content" for number in range(10)}
        self.version = folder_version(fill(folder / "source", files), store=folder / "manifests")
        self.ledger = Ledger(self.version.manifest)
        self.ledger.observe(np.arange(10))
        self.mount = MountWork(
            path=MOUNT,
            lock=threading.RLock(),
            room=Room(capacity=1 << 30, free=lambda: 1 << 30),
            clock=lambda: self.now,
            ledger=self.ledger,
        )
        self._number = 0

    def assign(self, *, drop: bytes = ALL_SLOTS, moved: bytes) -> None:
        """These slots are to leave, and these of them lie elsewhere."""
        self._number += 1
        self.mount.assign(
            self.version.assignment(
                version=self._number, parts=(), drop=drop, moved=moved, handover_seconds=SECONDS
            )
        )

    def leaving(self) -> list[int]:
        """Blocks that are dropped now."""
        blocks = self.mount.to_drop(most=99, skip=self.version.manifest.block_ids[:0])
        assert self.mount.drops() is False  # all that is to be dropped was claimed
        self.ledger.release(blocks)
        return blocks


@pytest.fixture
def leaver(tmp_path: Path) -> Leaver:
    return Leaver(tmp_path)


@pytest.mark.failure_mode("data-moves-before-reader-knows")
def test_blocks_that_are_elsewhere_stay_for_as_long_as_readers_need_to_hear_of_it(leaver: Leaver) -> None:
    leaver.assign(moved=ALL_SLOTS)
    assert leaver.leaving() == []
    leaver.now += SECONDS - 0.1
    leaver.assign(drop=ALL_SLOTS, moved=ALL_SLOTS)  # said again, they do not stay for longer
    assert leaver.leaving() == []
    leaver.now += 0.1
    assert leaver.leaving() == list(range(10))


def test_of_several_moves_each_has_its_time(leaver: Leaver) -> None:
    first = slots.bitmap([int(leaver.version.manifest.block_slots[0])])
    leaver.assign(drop=first, moved=first)
    leaver.now += SECONDS / 2
    leaver.assign(moved=ALL_SLOTS)
    leaver.now += SECONDS / 2
    assert leaver.leaving() == [0]


def test_what_is_wanted_nowhere_or_wrong_goes_at_once(leaver: Leaver) -> None:
    leaver.assign(moved=NO_SLOTS)
    assert leaver.leaving() == list(range(10))
    leaver.assign(moved=ALL_SLOTS)
    leaver.ledger.refuse([3])
    assert leaver.leaving() == [3]


def test_where_room_is_lacking_and_when_all_is_forgotten_nothing_stays(leaver: Leaver) -> None:
    leaver.assign(moved=ALL_SLOTS)
    leaver.mount.no_room(leaver.ledger, [], "full")
    assert leaver.leaving() == list(range(10))
    leaver.mount.room_failure = None
    leaver.mount.forgotten = True
    assert leaver.leaving() == list(range(10))
