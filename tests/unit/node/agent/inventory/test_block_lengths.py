"""Blocks that were cut off, as by a loss of power: no reader is given one, and they are brought again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.dataplane.agents import MOUNT, fill, folder_version, put_block

from tdcs.node.agent.blocks.block_lengths import BlockLengths
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork

CONTENT = b"x" * 100


class Node:
    """A disk with twenty blocks that a machine without power has left."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        files = {f"{number:02}": CONTENT for number in range(20)}
        self.version = folder_version(fill(folder / "source", files), store=folder / "manifests")
        self.ids: list[int] = self.version.manifest.block_ids.tolist()
        self.disk = Disk(folder / "tier")
        self.disk.prepare()
        for number in range(20):
            put_block(self.disk, self.version.manifest, number, CONTENT)
        lock, room = threading.RLock(), Room(capacity=1 << 30, free=lambda: 1 << 30)
        self.mount = MountWork(path=MOUNT, lock=lock, room=room, clock=lambda: self.now)
        self.ledger = Ledger(self.version.manifest)
        self.mount.opened(self.ledger)
        self.mount.assign(self.version.assignment())
        self.inventory = Inventory(disk=self.disk, room=room, lock=lock, clock=lambda: self.now)
        self.lengths = BlockLengths(disk=self.disk, inventory=self.inventory, clock=lambda: self.now)

    def file(self, number: int) -> Path:
        """Of a block."""
        return self.disk.spool / str(self.ids[number])

    async def look(self) -> int:
        self.inventory.look([self.mount])
        return await self.lengths.check()

    def drop(self) -> None:
        """What the agent does with what shall not lie here."""
        for block in self.ledger.to_drop(most=99, skip=self.version.manifest.block_ids[:0]):
            self.file(block).unlink()
            self.mount.dropped(self.ledger, block)

    def to_bring(self) -> list[int]:
        return self.ledger.take(now=self.now, most=99, most_bytes=1 << 20)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.failure_mode("node-power-lost-with-cut-blocks")
async def test_blocks_that_were_cut_off_are_given_to_no_reader_and_brought_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.file(3).write_bytes(b"")
    node.file(14).write_bytes(CONTENT[:99])
    node.file(15).write_bytes(CONTENT + b"!")
    await node.look()
    wrong = [3, 14, 15]
    assert [number for number in range(20) if node.disk.open(node.ids[number]) is None] == wrong
    assert set(node.disk.refused.of(MOUNT)) == {node.ids[number] for number in wrong}
    assert "3 blocks of" in caplog.text
    assert node.to_bring() == [], "what is wrong goes first"
    node.drop()
    node.now += 2
    assert node.lengths.due()
    await node.lengths.check()
    assert node.to_bring() == wrong
    assert not node.disk.refused.of(MOUNT)
    assert not node.lengths.due()


async def test_one_that_cannot_be_removed_yet_stays_refused_until_it_is_gone(node: Node) -> None:
    node.file(14).write_bytes(b"")
    await node.look()
    for _ in range(3):  # the disk refuses
        node.now += 2
        assert node.lengths.due()
        await node.lengths.check()
    assert node.disk.open(node.ids[14]) is None
    assert node.to_bring() == []
    node.drop()
    node.now += 2
    await node.lengths.check()
    assert node.to_bring() == [14]


async def test_each_block_is_measured_once_and_what_comes_later_too(node: Node) -> None:
    assert await node.look() == 0
    node.file(3).write_bytes(b"")  # the same name: no look finds anything new
    assert await node.look() == 0
    node.file(4).unlink()
    await node.look()
    put_block(node.disk, node.version.manifest, 4, b"")
    assert await node.look() == 1


async def test_a_mount_that_is_forgotten_meanwhile_leaves_no_work(node: Node) -> None:
    node.file(3).write_bytes(b"")
    await node.look()
    node.mount.forgotten = True
    node.file(3).unlink()
    node.ledger.located(3, is_here=False)
    node.now += 2
    await node.lengths.check()
    assert not node.lengths.due()
