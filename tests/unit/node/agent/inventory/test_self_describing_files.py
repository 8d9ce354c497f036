"""What a file of the store is follows from what it says of itself alone: not from its name or its length."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import Version, fill, folder_version, put_block

from tdcs.model.block_identity import identity_of, same_blocks
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.node import file_facts
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.own_ids import enter_own_ids, has_own_ids
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.readable import ReadableBlocks

A, B = "/datasets/a", "/datasets/b"
ALLUXIOS = 1 << 24
"""An id as Alluxio gives them."""


class Node:
    """A disk, and the agent's ledgers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = Disk(folder / "tier")
        self.disk.prepare()
        self.start()

    def start(self) -> None:
        """The agent starts: nothing is known but what lies on the disk."""
        self.disk = Disk(self.folder / "tier")
        self.lock = threading.RLock()
        self.room = Room(capacity=1 << 30, free=lambda: 1 << 40)
        self.inventory = Inventory(disk=self.disk, room=self.room, lock=self.lock)
        self.mounts: dict[str, MountWork] = {}

    def version(self, files: Mapping[str, bytes], *, mount: str = A, cut: Cut = WHOLE_BLOCKS) -> Version:
        """What is listed of these files. They have one time: a path with a length is the same file every time."""
        source = self.folder / "source" / mount.strip("/")
        shutil.rmtree(source, ignore_errors=True)
        fill(source, files)
        for path in source.rglob("*"):
            os.utime(path, (1, 1))
        return folder_version(source, store=self.folder / "manifests", mount=mount, cut=cut)

    def open(self, version: Version) -> Ledger:
        """The agent works by this version."""
        path = version.manifest.path
        mount = self.mounts.get(path) or MountWork(path=path, lock=self.lock, room=self.room)
        self.mounts[path] = mount
        ledger = Ledger(version.manifest)
        mount.opened(ledger)
        mount.assign(version.assignment())
        return ledger

    def look(self) -> None:
        self.inventory.look(list(self.mounts.values()))

    def content(self, version: Version) -> list[bytes | None]:
        """What is given to who asks for the version's blocks."""
        contents = []
        for block in version.manifest.block_ids.tolist():
            opened = self.disk.open(block)
            contents.append(None if opened is None else os.read(opened.fd, 1 << 20))
            if opened is not None:
                os.close(opened.fd)
        return contents


def here(ledger: Ledger) -> list[bool]:
    """Of each block, whether it lies here."""
    return [ledger.is_here(block) for block in range(ledger.manifest.blocks)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.failure_mode("block-of-another-file")
def test_a_block_with_the_id_and_length_of_another_file_is_not_taken_for_it(node: Node) -> None:
    before = node.version({"a-0": b"AAAA", "a-1": b"AAAA"})
    after = node.version({"b-0": b"BBBB", "b-1": b"BBBB"}, mount=B)
    for block, name in enumerate(after.manifest.block_ids.tolist()):
        put_block(node.disk, before.manifest, block, b"AAAA", name=name)
    ledger = node.open(after)
    node.look()
    assert not ledger.blocks_here
    assert node.content(after) == [None, None]
    assert node.mounts[B].state().held_bytes == 0


def test_nobody_is_given_a_block_before_the_disk_was_looked_through(node: Node) -> None:
    version = node.version({"a": b"AAAA"})
    put_block(node.disk, version.manifest, 0, b"AAAA")
    assert node.content(version) == [None]
    node.open(version)
    node.look()
    assert node.content(version) == [b"AAAA"]


class Follower(ReadableBlocks):
    """A list whose follower asks for each block as soon as it is told of it, and takes no for an answer."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk
        self.given: dict[int, bool] = {}

    def add(self, blocks: Iterable[int]) -> None:
        ids = list(blocks)
        super().add(ids)
        for block in ids:
            opened = self._disk.open(block)
            self.given[block] = opened is not None
            if opened is not None:
                os.close(opened.fd)


def test_who_waits_for_blocks_is_given_what_a_look_finds_as_soon_as_it_is_told(node: Node) -> None:
    version = node.version({"a": b"AAAA", "b": b"BBBB"})
    first, second = version.manifest.block_ids.tolist()
    put_block(node.disk, version.manifest, 0, b"AAAA")
    node.start()
    node.open(version)
    follower = node.mounts[A].readable = Follower(node.disk)
    node.look()
    assert follower.given == {first: True}

    # What was a stranger to the version before is given, too.
    node.open(node.version({"a": b"AAAA"}))
    put_block(node.disk, version.manifest, 1, b"BBBB")
    node.look()
    assert node.content(version) == [b"AAAA", None]
    node.open(version)
    node.look()
    assert follower.given == {first: True, second: True}


def test_a_block_that_is_brought_during_the_first_look_is_given_before_its_end(node: Node) -> None:
    version = node.version({"a": b"AAAA"})
    node.start()
    node.disk.look()
    (block,) = version.manifest.block_ids.tolist()
    with node.disk.create(block) as partial:
        partial.write(memoryview(b"AAAA"), offset=0)
        node.disk.keep(
            partial, block=block, identity=identity_of(version.manifest, 0), length=4, content_hash=0
        )
    assert node.content(version) == [b"AAAA"]


def test_the_next_version_takes_over_only_what_is_the_same_file(node: Node) -> None:
    before = node.version({"a": b"AAAA", "b": b"BBBB"})
    for block, content in enumerate((b"AAAA", b"BBBB")):
        put_block(node.disk, before.manifest, block, content)
    assert node.open(before) is not None
    node.look()
    after = node.version({"a": b"AAAA", "c": b"CCCC"})
    ledger = node.open(after)
    assert here(ledger) == [True, False]
    assert same_blocks(after.manifest, before.manifest, np.arange(2)).tolist() == [0, -1]


@pytest.mark.failure_mode("block-of-another-file")
def test_a_block_under_another_id_is_adopted_under_the_one_that_a_manifest_gives_it(node: Node) -> None:
    version = node.version({"a": b"AAAA", "large": bytes(range(10))}, cut=Cut(4, 4))
    content = [b"AAAA", bytes(range(4)), bytes(range(4, 8)), bytes((8, 9))]
    for block, block_content in enumerate(content):
        put_block(node.disk, version.manifest, block, block_content, name=ALLUXIOS + block)
    node.start()
    ledger = node.open(version)
    node.look()
    assert ledger.blocks_here == ledger.manifest.blocks
    assert node.content(version) == content
    assert not len(node.inventory.strangers)


@pytest.mark.failure_mode("disk-of-earlier-release")
def test_blocks_that_an_earlier_release_has_named_by_alluxios_ids_get_their_own_ones(node: Node) -> None:
    files = {"a": b"AAAA", "b": b"BBBB", "c": b"CCCC"}
    version = node.version(files)
    put_block(node.disk, version.manifest, 0, b"AAAA", name=ALLUXIOS)
    put_block(node.disk, version.manifest, 1, b"BBBB", folder=node.disk.lent, name=ALLUXIOS + 1)
    put_block(node.disk, version.manifest, 2, b"CCCC", folder=node.disk.lent, name=ALLUXIOS + 2)
    (node.disk.lent / "99").write_bytes(b"of somebody who does not say what it is")
    node.disk.refused.add(A, [ALLUXIOS + 2])
    node.disk.epoch.write_text("0a1b2c3d-journal\n")
    assert enter_own_ids(node.disk) == 2
    assert list(node.disk.lent.iterdir()) == list(node.disk.spool.iterdir()) == []
    assert has_own_ids(node.disk)
    assert enter_own_ids(node.disk) == 0

    node.start()
    node.look()
    assert node.room.used == 8, "what waits takes room"
    ledger = node.open(version)
    node.look()
    assert here(ledger) == [True, True, False], "what was found wrong is brought again"
    assert node.content(version) == [b"AAAA", b"BBBB", None]
    assert node.room.used == 8


def test_another_length_or_another_part_of_the_same_file_is_another_block(node: Node) -> None:
    whole = node.version({"a": bytes(8)}, cut=Cut(8, 8))
    put_block(node.disk, whole.manifest, 0, bytes(8))
    halves = node.version({"a": bytes(8)}, cut=Cut(4, 4))
    ledger = node.open(halves)
    node.look()
    assert not ledger.blocks_here


def test_names_that_can_be_no_ids_disturb_no_look(node: Node) -> None:
    version = node.version({"a": b"AAAA"})
    put_block(node.disk, version.manifest, 0, b"AAAA")
    for name in ("9" * 18, "9" * 19, "9" * 40, "x", "-1"):
        (node.disk.spool / name).touch()
    ledger = node.open(version)
    node.look()
    assert ledger.blocks_here == ledger.manifest.blocks
    assert node.inventory.strangers["name"].tolist() == [int("9" * 18)]


def test_files_say_what_they_are_where_the_file_system_keeps_no_attributes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object, **__: object) -> bytes:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    monkeypatch.setattr(os, "getxattr", unsupported)
    version = node.version({"a": b"AAAA", "b": b"BBBB"})
    for block, content in enumerate((b"AAAA", b"BBBB")):
        put_block(node.disk, version.manifest, block, content)
    node.start()
    ledger = node.open(version)
    node.look()
    assert ledger.blocks_here == ledger.manifest.blocks
    index = Path(node.disk.facts._index)
    assert index.stat().st_size == 2 * file_facts._INDEXED.size
    (node.disk.spool / str(version.manifest.block_ids[0])).unlink()
    node.disk.drop_facts_of_removed_files()
    assert index.stat().st_size == file_facts._INDEXED.size
    node.start()
    ledger = node.open(version)
    node.look()
    assert here(ledger) == [False, True]
