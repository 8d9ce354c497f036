"""What only peers may give (a move away from a worker that leaves): until when it is work that is left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version

from tdcs.model import slots
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Part, Peer
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.peer_book import Patience

LEAVER = "leaver"
PATIENCE = Patience(answer=1, silent=30, stalled=120)


class Mover:
    """A mount of ten blocks on a node that stays, and the time."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        files = {f"{number}": b"content" for number in range(10)}
        self.version = folder_version(fill(folder / "source", files), store=folder / "manifests")
        self.ledger = Ledger(self.version.manifest)
        self.mount = MountWork(
            path=MOUNT,
            lock=threading.RLock(),
            room=Room(capacity=1 << 30, free=lambda: 1 << 30),
            clock=lambda: self.now,
            patience=PATIENCE,
            ledger=self.ledger,
        )
        self.ledger.looked_at = True
        self._number = 0

    def assign(self, offered: bytes) -> None:
        """Bring what a worker that leaves has in these slots."""
        self._number += 1
        self.mount.assign(
            self.version.assignment(
                version=self._number,
                parts=(Part(name="Draining", slots=ALL_SLOTS, pull="Peers"),),
                origin=NO_SLOTS,
                peers=[Peer(node=LEAVER, address="127.0.0.1:1", slots=offered)],
                source=None,
            )
        )

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.mount.pass_over_silent_peers()

    def busy(self) -> bool:
        return self.mount.state().busy


@pytest.fixture
def mover(tmp_path: Path) -> Mover:
    return Mover(tmp_path)


def test_what_no_peer_offers_is_no_work_and_what_one_offers_is(mover: Mover) -> None:
    mover.assign(NO_SLOTS)
    assert not mover.busy()
    assert mover.mount.at_rest()
    slot = int(mover.version.manifest.block_slots[3])
    mover.assign(slots.bitmap([slot]))
    assert mover.busy()
    assert mover.ledger.assigned.missing_slots(from_peers=True) == slots.bitmap([slot])


@pytest.mark.failure_mode("draining-worker-has-part-of-slots")
def test_a_slot_that_a_leaving_worker_has_in_part_is_moved_when_it_has_no_more(mover: Mover) -> None:
    mover.assign(ALL_SLOTS)
    mover.tick(0)
    mover.mount.peers.waits(LEAVER)  # it has answered, and has none of these
    mover.tick(PATIENCE.stalled)
    assert mover.busy()
    mover.tick(1)
    assert not mover.busy()
    assert mover.mount.at_rest()
    assert mover.mount.peers_wanted(most=8) == []
    before = mover.ledger.changes
    mover.tick(PATIENCE.stalled)
    assert mover.ledger.changes == before
    mover.assign(slots.prefix(slots.SLOTS // 2))  # it says that it has others now
    assert mover.busy()


@pytest.mark.parametrize("says", ["nothing", "an error", "some, for which there is no room"])
@pytest.mark.failure_mode("draining-worker-has-part-of-slots")
def test_a_move_from_a_worker_that_may_have_more_is_not_over(mover: Mover, says: str) -> None:
    mover.assign(ALL_SLOTS)
    mover.tick(0)
    if says != "nothing":
        mover.mount.peers.waits(LEAVER)
        mover.tick(PATIENCE.stalled)
    if says == "an error":
        mover.mount.peers.failed(LEAVER)
    elif says != "nothing":
        mover.mount.peers.has_some(LEAVER)
    before = mover.ledger.changes
    for _ in range(3):
        mover.tick(PATIENCE.stalled + 1)
    assert mover.busy()
    assert mover.ledger.changes == before  # and a look at it is no change


def test_what_only_peers_may_give_is_never_read_from_the_source_however_wrong_they_are(mover: Mover) -> None:
    mover.assign(ALL_SLOTS)
    for _ in range(4):
        (block,) = mover.ledger.take(now=mover.now, most=1, most_bytes=1, from_peers=True, cursor="peer")
        mover.mount.wrong_from_peer(mover.ledger, block, "its bytes are damaged")
        assert mover.ledger.assigned.missing_slots(from_peers=False) == NO_SLOTS
        mover.ledger._cursors.clear()
        mover.now += 100
    (failure,) = mover.mount.state().failed
    assert (failure.code, failure.reason) == ("Unreadable", "its bytes are damaged")
    assert not mover.ledger.blocks_in_work


def test_what_the_source_may_give_too_is_read_there_after_two_wrong_copies(mover: Mover) -> None:
    peer = Peer(node=LEAVER, address="127.0.0.1:1", slots=ALL_SLOTS)
    mover.mount.assign(mover.version.assignment(version=1, origin=NO_SLOTS, peers=[peer]))
    for _ in range(2):
        (block,) = mover.ledger.take(now=mover.now, most=1, most_bytes=1, from_peers=True)
        mover.mount.wrong_from_peer(mover.ledger, block, "its bytes are damaged")
    assert mover.ledger.take(now=mover.now, most=9, most_bytes=1 << 20, from_peers=False) == [block]
