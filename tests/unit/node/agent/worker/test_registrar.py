"""Registering blocks on a disk that refuses: each such block waits, no claim is left, and no lane is left behind."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version

from tdcs.alluxio.worker_blocks import WorkerBlocks
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.transfer.registrar import Registrar


class Worker(WorkerBlocks):
    """A worker that makes its empty file and lets it be replaced, without any RPC."""

    def __init__(self, blocks: Path) -> None:
        self._folder = blocks
        self.asked: list[int] = []

    async def create(
        self, *, block_id: int, length: int, place: Callable[[str], None], deadline: float = 60.0
    ) -> None:
        self.asked.append(block_id)
        await asyncio.sleep(0)
        place(str(self._folder / str(block_id)))


class Work:
    """Twenty blocks in the spool of a disk that can refuse."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        source = fill(folder / "source", dict.fromkeys(map("{:02}".format, range(20)), b"x" * 10))
        version = folder_version(source, store=folder / "manifests")
        self.disk = Disk(folder / "tier")
        self.disk.prepare()
        self.disk.blocks.mkdir()
        for identity in version.manifest.block_ids.tolist():
            (self.disk.spool / str(identity)).write_bytes(b"x" * 10)
        self.ledger = Ledger(version.manifest)
        self.ledger.observe(spooled=np.arange(20), registered=np.arange(0))
        room = Room(capacity=1 << 30, free=lambda: 1 << 30)
        self.mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room, clock=lambda: self.now)
        self.mount.opened(self.ledger)
        self.mount.assign(version.assignment())
        self.worker = Worker(self.disk.blocks)
        self.registrar = Registrar(worker=self.worker, disk=self.disk, clock=lambda: self.now)
        self.refuses: dict[int, Exception] = {}
        lend = self.disk.lend

        def lend_or_refuse(block: int, *, worker_file: str) -> None:
            if (error := self.refuses.get(block)) is not None:
                raise error
            lend(block, worker_file=worker_file)

        monkeypatch.setattr(self.disk, "lend", lend_or_refuse)

    def registered(self) -> list[bool]:
        """Of each block whether the worker knows it."""
        spooled = self.ledger.spooled_of(np.arange(20))
        return [self.ledger.lies_here(block) and not spooled[block] for block in range(20)]

    async def register(self) -> int:
        return await self.registrar.register(self.mount, most=20, lanes=4)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(tmp_path, monkeypatch)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EIO])
async def test_a_block_that_the_disk_refuses_waits_and_holds_up_no_other(
    work: Work, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    ids = work.ledger.manifest.block_ids.tolist()
    work.refuses = dict.fromkeys(ids[:5], OSError(code, "the disk refuses"))
    assert await work.register() == 20
    assert work.registered() == [False] * 5 + [True] * 15
    assert not work.ledger.blocks_in_work
    assert await work.register() == 0, "they wait, and are not tried at once"
    assert caplog.text.count("the disk refuses 5 blocks") == 1

    work.refuses.clear()
    work.now += 2.0
    assert await work.register() == 5
    assert all(work.registered())


async def test_lanes_that_are_to_end_leave_the_rest_of_their_blocks_to_the_next_call(work: Work) -> None:
    left = iter([False, True, True, False, True])
    assert await work.registrar.register(work.mount, most=20, lanes=3, leaves=lambda: next(left)) == 5
    assert sum(work.registered()) == len(work.worker.asked) == 5
    assert not work.ledger.blocks_in_work
    assert await work.register() == 15
    assert all(work.registered())


async def test_an_unforeseen_error_leaves_no_lane_running_and_no_claim(work: Work) -> None:
    ids = work.ledger.manifest.block_ids.tolist()
    work.refuses = {ids[0]: ValueError("unforeseen")}
    with pytest.raises(ExceptionGroup):
        await work.register()
    asked = len(work.worker.asked)
    assert not work.ledger.blocks_in_work
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(work.worker.asked) == asked < 20


async def test_refusals_of_blocks_that_are_gone_are_forgotten(work: Work) -> None:
    ids = work.ledger.manifest.block_ids.tolist()
    work.refuses = dict.fromkeys(ids[:5], OSError(errno.EIO, "the disk refuses"))
    assert await work.register() == 20
    assert set(work.registrar._refused) == set(ids[:5])
    for block in range(5):
        work.ledger.located(block, spooled=False, registered=False)
    work.now += 1000
    assert await work.register() == 0
    assert not work.registrar._refused


async def test_blocks_whose_files_are_gone_are_missing_and_not_cut_off(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    ids = work.ledger.manifest.block_ids.tolist()
    (work.disk.spool / str(ids[0])).unlink()
    (work.disk.spool / str(ids[1])).write_bytes(b"x" * 9)
    assert await work.register() == 20
    assert [work.ledger.absent(block) for block in range(3)] == [True, True, False]
    assert caplog.text.count("is not as long as its manifest says") == 1
    assert not work.worker.asked.count(ids[0])
