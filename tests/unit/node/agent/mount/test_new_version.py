"""What a mount keeps when a new version of it begins: what lies here, and that peers hear of it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from tests.support.dataplane.agents import MOUNT, Version, fill, folder_version

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Peer, SourceAccess
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.failed_fetches import Failure
from tdcs.node.agent.mount.mount_work import MountWork

PEER = Peer(node="node-2", address="127.0.0.1:1", slots=ALL_SLOTS)


FILES = 10


class Work:
    """A mount of ten files that all lie here, and its next version with one file more before them."""

    def __init__(self, folder: Path, *, held: int = FILES) -> None:
        source = fill(folder / "source", {f"{number}": b"x" * 10 for number in range(FILES)})
        manifests = folder / "manifests"
        self.first: Version = folder_version(source, store=manifests)
        (source / "!new").write_bytes(b"new")
        self.second: Version = folder_version(source, store=manifests)
        room = Room(capacity=1 << 30, free=lambda: 1 << 30)
        self.now = 100.0
        self.mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room, clock=lambda: self.now)
        self.ledger = Ledger(self.first.manifest)
        self.ledger.observe(np.arange(held))
        self.mount.opened(self.ledger)
        self.mount.assign(self.first.assignment(peers=[PEER], origin=NO_SLOTS))

    def follow(self) -> Ledger:
        """Begin the next version; its ledger."""
        self.mount.assign(self.second.assignment(version=2, peers=[PEER], origin=NO_SLOTS))
        ledger = Ledger(self.second.manifest)
        self.mount.opened(ledger)
        return ledger

    def heard(self) -> list[int]:
        """Ids that a peer hears of which begins to ask now."""
        return sorted(self.mount.readable.after(instance=0, place=0, wait_seconds=0).blocks)


def test_peers_hear_after_a_new_version_of_blocks_that_were_held_before_it(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.follow()
    assert work.heard() == sorted(work.first.manifest.block_ids.tolist())


def test_peers_hear_of_no_block_that_was_found_wrong(tmp_path: Path) -> None:
    work = Work(tmp_path)
    wrong, *right = work.first.manifest.block_ids.tolist()
    work.mount.refuse([wrong])
    work.follow()
    assert work.heard() == sorted(right)


def test_a_look_that_began_before_a_new_version_does_not_lose_what_was_brought_since(tmp_path: Path) -> None:
    work = Work(tmp_path, held=0)
    block = work.ledger.take(now=100.0, most=1, most_bytes=100, from_peers=True)[0]
    work.ledger.look()
    work.mount.room.reserve(10)
    work.mount.brought(work.ledger, block)
    newer = work.follow()
    newer.observe(np.arange(0))  # the folders were read before it came
    identity = int(work.first.manifest.block_ids[block])
    assert newer.manifest.block_ids[newer.right_blocks()].tolist() == [identity]
    again = newer.take(now=100.0, most=100, most_bytes=1 << 20, from_peers=True)
    assert identity not in newer.manifest.block_ids[again].tolist(), "it would be brought twice"


def test_two_wrong_answers_are_counted_for_one_block_and_not_for_its_number(tmp_path: Path) -> None:
    work = Work(tmp_path, held=0)
    (first,) = work.ledger.take(now=100.0, most=1, most_bytes=100, from_peers=True)
    work.mount.wrong_from_peer(work.ledger, first, "damaged")
    newer = work.follow()
    newer.observe(np.arange(0))
    (block,) = newer.take(now=100.0, most=1, most_bytes=100, from_peers=True)
    assert (block, newer.path(block), work.ledger.path(first)) == (first, "!new", "0")
    work.mount.wrong_from_peer(newer, block, "damaged")
    assert newer.assigned.missing_slots(from_peers=False) == NO_SLOTS
    newer_block = newer.manifest.block_at(int(work.first.manifest.block_ids[first]))
    assert newer_block is not None
    newer.claim([newer_block])
    work.mount.wrong_from_peer(newer, newer_block, "damaged")
    assert newer.assigned.missing_slots(from_peers=False) != NO_SLOTS, (
        "the second time in vain, also after a version"
    )


def test_a_peer_that_goes_and_comes_back_is_read_by_one_thread(tmp_path: Path) -> None:
    work = Work(tmp_path, held=0)
    assert work.mount.peers_wanted(most=6) == [PEER]
    work.mount.peers.health[PEER.node].lanes = 1
    work.mount.assign(work.first.assignment(version=2, origin=NO_SLOTS))
    assert work.mount.peers.lanes == 1, "the thread has not ended yet"
    work.mount.assign(work.first.assignment(version=3, peers=[PEER], origin=NO_SLOTS))
    assert work.mount.peers_wanted(most=6) == []
    work.mount.peers.health[PEER.node].lanes = 0
    assert work.mount.peers_wanted(most=6) == [PEER]


def test_what_failed_is_failed_in_the_next_version_too_and_is_tried_when_it_is_due(tmp_path: Path) -> None:
    work = Work(tmp_path, held=0)
    denied, missing, *_ = work.ledger.take(now=100.0, most=10, most_bytes=1 << 20, from_peers=True)
    for _ in range(9):  # the pause is five minutes by now
        work.ledger.failed(denied, Failure(code="Denied", reason="403"), now=100.0)
    work.ledger.failed(missing, Failure(code="Missing", reason="404"), now=100.0)
    before = work.mount.state()
    newer = work.follow()
    newer.observe(np.arange(0))
    after = work.mount.state()
    assert {failure.path: failure.code for failure in after.failed} == {"0": "Denied", "1": "Missing"}
    assert after.failed == before.failed
    assert after.parts[0].failed_bytes == before.parts[0].failed_bytes == 20

    due = newer.take(now=101.0, most=20, most_bytes=1 << 20, from_peers=True)
    assert {newer.path(block) for block in due} >= {"!new", "1", "2"}, "what was gone was listed again"
    assert "0" not in {newer.path(block) for block in due}
    newer.release(due)
    assert "0" in {
        newer.path(block) for block in newer.take(now=500.0, most=20, most_bytes=999, from_peers=True)
    }


def test_new_credentials_with_a_new_version_try_all_that_failed_at_once(tmp_path: Path) -> None:
    work = Work(tmp_path, held=0)
    block = work.ledger.take(now=100.0, most=1, most_bytes=100, from_peers=True)[0]
    for _ in range(9):
        work.ledger.failed(block, Failure(code="Denied", reason="403"), now=100.0)
    access = SourceAccess(uri=work.second.source.uri, access_key_id="another")
    work.mount.assign(work.second.assignment(version=2, peers=[PEER], origin=NO_SLOTS, source=access))
    newer = Ledger(work.second.manifest)
    work.mount.opened(newer)
    newer.observe(np.arange(0))
    due = newer.take(now=100.0, most=20, most_bytes=1 << 20, from_peers=True)
    assert "0" in {newer.path(block) for block in due}
