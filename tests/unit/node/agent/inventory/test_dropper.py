"""Dropping blocks on a disk that refuses: each such block waits, no claim is left, and no other one is held up."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version, put_block

from tdcs.model.agent_state import ALL_SLOTS
from tdcs.node.agent.blocks.dropper import Dropper
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork


class Work:
    """Twenty blocks, which are to go, on a disk that can refuse."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        source = fill(folder / "source", dict.fromkeys(map("{:02}".format, range(20)), b"x" * 10))
        version = folder_version(source, store=folder / "manifests")
        self.disk = Disk(folder / "tier")
        self.disk.prepare()
        for block in range(20):
            put_block(self.disk, version.manifest, block, b"x" * 10)
        self.ids: list[int] = version.manifest.block_ids.tolist()
        self.ledger = Ledger(version.manifest)
        self.ledger.observe(np.arange(20))
        self.room = Room(capacity=1 << 30, free=lambda: 1 << 30)
        self.room.observe(200)
        self.mount = MountWork(path=MOUNT, lock=threading.RLock(), room=self.room, clock=lambda: self.now)
        self.mount.opened(self.ledger)
        self.mount.assign(version.assignment(slots=bytes(512), drop=ALL_SLOTS))
        self.dropper = Dropper(disk=self.disk, clock=lambda: self.now)
        self.refuses: dict[int, Exception] = {}
        unspool = self.disk.unspool

        def unspool_or_refuse(block: int) -> None:
            if (error := self.refuses.get(block)) is not None:
                raise error
            unspool(block)

        monkeypatch.setattr(self.disk, "unspool", unspool_or_refuse)

    def gone(self) -> list[bool]:
        return [not self.ledger.is_here(block) and not self.disk.has(self.ids[block]) for block in range(20)]

    async def drop(self) -> int:
        return await self.dropper.drop(self.mount, most=20)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(tmp_path, monkeypatch)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO])
async def test_a_block_that_the_disk_refuses_to_drop_waits_and_holds_up_no_other(
    work: Work, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    work.refuses = dict.fromkeys(work.ids[:5], OSError(code, "the disk refuses"))
    assert await work.drop() == 20
    assert work.gone() == [False] * 5 + [True] * 15
    assert (work.dropper.dropped, work.room.used) == (15, 50)
    assert not work.ledger.blocks_in_work
    assert await work.drop() == 0, "they wait, and are not tried at once"
    assert caplog.text.count("the disk refuses to drop 5 blocks") == 1

    work.refuses.clear()
    work.now += 2.0
    assert await work.drop() == 5
    assert all(work.gone())
    assert work.room.used == 0


async def test_a_single_block_is_dropped_unless_somebody_has_claimed_it_or_the_disk_refuses(
    work: Work,
) -> None:
    (claimed,) = work.ledger.claim([3])
    work.refuses = {work.ids[4]: OSError(errno.EIO, "the disk refuses")}
    dropped = [await work.dropper.drop_block(work.mount, work.ledger, block) for block in (3, 4, 5)]
    assert dropped == [False, False, True]
    assert work.ledger.in_work(claimed)
    assert work.gone() == [block == 5 for block in range(20)]


async def test_an_unforeseen_error_leaves_no_claim(work: Work) -> None:
    work.refuses = {work.ids[7]: ValueError("unforeseen")}
    with pytest.raises(ValueError, match="unforeseen"):
        await work.drop()
    assert not work.ledger.blocks_in_work
    assert work.gone() == [block < 7 for block in range(20)]


async def test_refusals_of_blocks_that_are_gone_are_forgotten(work: Work) -> None:
    work.refuses = dict.fromkeys(work.ids[:5], OSError(errno.EIO, "the disk refuses"))
    assert await work.drop() == 20
    assert set(work.dropper._refused) == set(work.ids[:5])
    for block in range(5):
        work.ledger.located(block, is_here=False)
    work.now += 1000
    assert await work.drop() == 0
    assert not work.dropper._refused
