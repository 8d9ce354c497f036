"""A shared folder that is not mounted on a node: its empty mount point lacks every file, and none of them is gone."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version

from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import FolderReader
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.agent.transfer.source_puller import IN_FLIGHT_BYTES, SourcePuller


def read(folder: Path, name: str = "000") -> SourceFailureError:
    extent = Extent(path=name.encode(), offset=0, length=1, size=1, tag="")
    with pytest.raises(SourceFailureError) as caught:
        FolderReader(str(folder)).read(extent, lambda _: None)
    return caught.value


@pytest.mark.parametrize(
    ("made", "said"),
    [("empty", "empty on this node: see whether it is mounted"), ("none", "is away"), ("file", "no folder")],
)
def test_a_folder_without_anything_says_nothing_of_its_files(tmp_path: Path, made: str, said: str) -> None:
    folder = tmp_path / "source"
    if made == "empty":
        folder.mkdir()
    elif made == "file":
        folder.write_bytes(b"")
    failure = read(folder)
    assert (failure.code, failure.common) == ("SourceAway", True)
    assert said in str(failure)


def test_a_file_that_is_gone_from_a_folder_with_others_is_missing(tmp_path: Path) -> None:
    assert read(fill(tmp_path / "source", {"other": b"x"})).code == "Missing"


@pytest.mark.failure_mode("shared-folder-stale-on-one-node")
def test_a_folder_that_is_not_mounted_lets_no_file_count_as_missing(tmp_path: Path) -> None:
    files = {f"{number:03}": b"x" for number in range(40)}
    version = folder_version(fill(tmp_path / "source", files), store=tmp_path / "manifests")
    shutil.rmtree(tmp_path / "source")
    (tmp_path / "source").mkdir()  # the mount point alone
    disk = Disk(tmp_path / "tier")
    disk.prepare()
    room = Room(capacity=1 << 30, free=lambda: 1 << 34)
    mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room)
    ledger = Ledger(version.manifest)
    ledger.observe(np.arange(0))
    mount.opened(ledger)
    mount.assign(version.assignment())
    puller = SourcePuller(
        disk=disk, room=room, stopped=threading.Event(), in_flight=InFlight(IN_FLIGHT_BYTES)
    )
    puller.run(mount)
    state = mount.state()
    assert {failure.code for failure in state.failed} == {"SourceAway"}, state
    assert state.parts[0].failed_bytes == 0, "they are still to be brought"
