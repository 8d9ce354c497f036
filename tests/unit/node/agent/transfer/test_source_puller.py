"""Large blocks from a source onto a disk that fails: nothing stays claimed, and no room stays reserved."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version
from tests.support.waiting import eventually
from tests.unit.node.agent.disk.test_large_files import CONTENT, Node

from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.one_worker import OneWorker
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.agent.transfer import source_puller
from tdcs.node.agent.transfer.source_puller import IN_FLIGHT_BYTES, PIECE_BYTES, SourcePuller


@pytest.mark.parametrize("removed", [True, False])
def test_a_large_block_that_cannot_be_read_again_is_given_back_with_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    content = bytes(PIECE_BYTES + 1)
    version = folder_version(fill(tmp_path / "source", {"large": content}), store=tmp_path / "manifests")
    disk = Disk(tmp_path / "tier")
    disk.prepare()
    room = Room(capacity=1 << 30, free=lambda: 1 << 30)
    mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room)
    ledger = Ledger(version.manifest)
    ledger.observe(np.arange(0))
    mount.opened(ledger)
    mount.assign(version.assignment())
    puller = SourcePuller(
        disk=disk, room=room, stopped=threading.Event(), in_flight=InFlight(IN_FLIGHT_BYTES)
    )

    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(source_puller, "hash_of", broken)
        if not removed:  # as after the kernel has made the file system read-only
            patch.setattr(os, "unlink", broken)
        puller.run(mount)
    assert not ledger.blocks_in_work
    assert room._reserved == 0
    assert len(list(disk.partial.iterdir())) == (0 if removed else 1)
    (failure,) = mount.state().failed
    assert (failure.path, failure.code) == ("large", "NoRoom")
    assert "Input/output error" in failure.reason

    mount.room_until = 0.0
    puller.run(mount)
    assert ledger.held_bytes() == len(content), "it is brought once the disk reads again"
    assert (room.used, room._reserved) == (len(content), 0)


@pytest.mark.parametrize("piece", [PIECE_BYTES, 1000])
def test_a_block_of_a_file_that_is_being_changed_waits_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(source_puller, "PIECE_BYTES", piece)
    node = Node(tmp_path)
    node.write_all()
    with monkeypatch.context() as patch:
        patch.setattr(OneWorker, "add", lambda *_: None)
        node.disk.unspool(node.ids[4])
    room = Room(capacity=1 << 30, free=lambda: 1 << 30)
    mount = MountWork(path=node.version.manifest.path, lock=threading.RLock(), room=room)
    ledger = Ledger(node.version.manifest)
    ledger.observe(np.delete(np.arange(11), 4))
    mount.opened(ledger)
    mount.assign(node.version.assignment())
    puller = SourcePuller(
        disk=node.disk, room=room, stopped=threading.Event(), in_flight=InFlight(IN_FLIGHT_BYTES)
    )
    puller.run(mount)
    state = mount.state()
    assert (state.no_room, state.failed, mount.room_until) == (False, (), 0.0)
    assert (ledger.blocks_in_work, room._reserved) == (0, 0)
    assert ledger.assigned.misses()

    node.disk.large._give_back(node.disk.large._files[node.ids[0]])

    def comes() -> bool:
        puller.run(mount)
        return not ledger.assigned.misses()

    eventually(comes, deadline=60)
    assert node.whole.read_bytes() == CONTENT
