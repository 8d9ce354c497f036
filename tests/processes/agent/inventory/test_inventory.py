"""Looks at the folders: what is there, what others change, and what it takes."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import (
    MOUNT,
    Version,
    fill,
    folder_version,
    put_block,
    running_agent,
)
from tests.support.waiting import eventually_async

from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.blocks.view_bytes import KeptByViews
from tdcs.node.agent.disk import disk_room
from tdcs.node.agent.disk.tier import Disk, Ids, Place
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork

FILES = {f"{number:03}": os.urandom(2_000) for number in range(120)}
FOREIGN_CHANGE_SECONDS = 5.0


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")


async def test_what_others_remove_is_seen_within_five_seconds_and_brought_again(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        agent.give(version.assignment(version=2, source=None))  # so that the loss stays to be seen
        for file in list(agent.disk.spool.iterdir())[:50]:
            file.unlink()
        await eventually_async(
            lambda: agent.mount().held_bytes == version.bytes - 50 * 2_000, deadline=FOREIGN_CHANGE_SECONDS
        )
        agent.give(version.assignment(version=3))
        await agent.holds(version)


async def test_nothing_is_done_at_rest(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        looks = []
        original = agent.agent.inventory.look
        agent.agent.inventory.look = lambda mounts: (looks.append(1), original(mounts))  # type: ignore
        await eventually_async(lambda: not agent.agent.inventory._again, deadline=30)
        looks.clear()
        end = time.monotonic() + 2.5
        await eventually_async(lambda: time.monotonic() > end, deadline=5)
        assert not looks


def test_what_is_brought_during_a_look_at_the_folders_takes_its_room(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, room = Disk(tmp_path / "one"), disk_room.Room(capacity=1 << 30, free=lambda: 1 << 30)
    disk.prepare()
    lock, ledger = threading.RLock(), Ledger(version.manifest)
    mount = MountWork(path=MOUNT, lock=lock, room=room, ledger=ledger)
    mount.assign(version.assignment())
    looking = Inventory(disk=disk, room=room, lock=lock)
    looking.look([mount])
    bring, drop = ledger.take(now=0.0, most=2, most_bytes=1 << 20)
    for _ in (bring, drop):
        assert room.reserve(2_000) == ""
    mount.brought(ledger, drop)
    assert room.used == 2_000
    put_block(disk, version.manifest, drop, b"x" * 2_000)
    (disk.spool / "77").write_bytes(b"a stranger")

    def meanwhile(*_: object) -> int:
        mount.brought(ledger, bring)
        mount.dropped(ledger, drop)
        return 10

    monkeypatch.setattr(disk, "size_at", meanwhile)
    looking.look([mount])
    assert room.used == 2_000 + 10
    assert ledger.is_here(bring)
    assert not ledger.is_here(drop)


async def test_a_mount_that_comes_during_a_slow_look_is_looked_at_after_it(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, looking, ticks = threading.Event(), threading.Event(), itertools.count()
    original = Disk.ids_at

    def slow(disk: Disk, place: Place) -> Ids:
        looking.set()
        assert go_on.wait(20)
        return original(disk, place)

    async with running_agent(tmp_path / "one") as agent:
        monkeypatch.setattr(agent.agent.kept_by_views, "due", lambda **_: bool(next(ticks)) and False)
        monkeypatch.setattr(Disk, "ids_at", slow)
        agent.agent.inventory.require()
        await eventually_async(looking.is_set, deadline=10, interval=0.01)
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.agent.mounts[MOUNT].ledger is not None, deadline=10)
        after = next(ticks)

        def many_ticks() -> bool:
            agent.agent.wake()
            return next(ticks) > after + 20

        await eventually_async(many_ticks, deadline=10, interval=0.01)
        go_on.set()
        await agent.holds(version)


def test_bytes_that_only_views_keep_alive_are_counted(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.prepare()
    view = tmp_path / "views" / "d" / "v1"
    view.mkdir(parents=True)
    for block, size in ((1, 1_000), (2, 500)):
        (disk.spool / str(block)).write_bytes(b"x" * size)
        os.link(disk.spool / str(block), view / str(block))
    kept_by_views = KeptByViews(disk=disk)
    kept_by_views.look()
    assert kept_by_views.bytes == 0
    (disk.spool / "1").unlink()
    kept_by_views.look()
    assert kept_by_views.bytes == 1_000
    (view / "1").unlink()
    kept_by_views.look()
    assert kept_by_views.bytes == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_neither_placeholders_nor_what_is_mounted_in_a_view_count_as_kept(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.prepare()
    view = tmp_path / "views" / "d" / "v1"
    (view / "shown").mkdir(parents=True)
    (view / "away").touch()
    os.truncate(view / "away", 1_000_000)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(view / "shown")], check=True)
    try:
        (view / "shown" / "file").write_bytes(b"x" * 1_000)
        kept_by_views = KeptByViews(disk=disk)
        kept_by_views.look()
        assert kept_by_views.bytes == 0
    finally:
        subprocess.run(["umount", str(view / "shown")], check=True)


def test_a_mount_is_counted_again_only_after_a_change(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(version.manifest)
    room_ = disk_room.Room(capacity=1 << 30, free=lambda: 1 << 30)
    mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room_, ledger=ledger)
    mount.assign(version.assignment())
    assert not mount.at_rest()
    everything = np.arange(version.manifest.blocks)
    ledger.observe(everything)
    assert mount.at_rest()
    assert mount.state().held_bytes == version.bytes
    with monkeypatch.context() as patch:
        for name in ("left", "state"):
            patch.setattr(Ledger, name, lambda _: pytest.fail("it was counted"))
        assert mount.at_rest()
        assert mount.state().held_bytes == version.bytes
    ledger.observe(everything[1:])
    assert not mount.at_rest()
    assert mount.state().held_bytes == version.bytes - 2_000


def test_names_that_are_no_ids_are_left_out_and_ids_come_in_order(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.prepare()
    assert disk.ids_at(Place.SPOOL).tolist() == []
    for name in ("30", "7", "200"):
        (disk.spool / name).touch()
    assert disk.ids_at(Place.SPOOL).tolist() == [7, 30, 200]
    for name in (".hidden", "7.tmp", "1_0"):
        (disk.spool / name).touch()
    assert disk.ids_at(Place.SPOOL).tolist() == [7, 30, 200]
