"""Files of several blocks on a disk: whole ones are plain files, and nobody is ever given a hole."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
import xxhash
from tests.support.dataplane.agents import Version, folder_version
from tests.support.waiting import eventually

from tdcs.model.block_identity import identity_of
from tdcs.model.file_blocks import Cut
from tdcs.node.agent.disk.disk_room import SLACK_BYTES, Room
from tdcs.node.agent.disk.large_file_folders import LargeFileFolders, StoredFile
from tdcs.node.agent.disk.one_worker import OneWorker
from tdcs.node.agent.disk.partial_file import DiskError
from tdcs.node.agent.disk.tier import Disk, Place
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.extents import extent_place, read_part

EXTENT = 8192
CONTENT = random.Random(1).randbytes(10 * EXTENT + 100)


class Node:
    """A disk, and a version with one file of eleven blocks."""

    def __init__(self, folder: Path) -> None:
        source = folder / "source"
        source.mkdir()
        (source / "large").write_bytes(CONTENT)
        self.version: Version = folder_version(source, store=folder / "manifests", cut=Cut(EXTENT, EXTENT))
        self.tier = folder / "tier"
        self.ids = [int(block_id) for block_id in self.version.manifest.block_ids]
        self.disk = Disk(self.tier, boot="1")
        self.disk.prepare()

    def restart(self, *, boot: str = "1") -> None:
        """Another process begins, and nothing of the one before is left but its files."""
        self.disk = Disk(self.tier, boot=boot)
        self.disk.prepare()
        make_ready(self.disk)

    def write(self, block: int, content: bytes | None = None) -> None:
        """Bring a block."""
        manifest, right = self.version.manifest, part(block)
        with self.disk.create(self.ids[block], place=extent_place(manifest, block)) as partial:
            partial.write(memoryview(right if content is None else content), offset=0)
            self.disk.keep(
                partial,
                block=self.ids[block],
                identity=identity_of(manifest, block),
                length=len(right),
                content_hash=xxhash.xxh3_64_intdigest(right),
            )

    def write_all(self, blocks: Iterable[int] = range(11)) -> None:
        for block in blocks:
            self.write(block)

    def given(self) -> list[int]:
        """Blocks that are given to who asks, all of them right."""
        numbers = []
        for number, block in enumerate(self.ids):
            opened = self.disk.open(block)
            if opened is not None:
                assert os.pread(opened.fd, opened.length, opened.base) == part(number)
                assert opened.is_here()
                os.close(opened.fd)
                numbers.append(number)
            assert (self.read(number) is not None) == (opened is not None)
        assert self.disk.ids_at(Place.SPOOL).tolist() == sorted(self.ids[number] for number in numbers)
        return numbers

    def read(self, block: int) -> bytes | None:
        """What a reader finds here."""
        place = extent_place(self.version.manifest, block)
        assert place is not None
        content = read_part(str(self.tier), place, offset=0, length=len(part(block)))
        assert content in (None, part(block))
        return content

    @property
    def whole(self) -> Path:
        return self.disk.large.folders.whole / str(self.ids[0])

    @property
    def parts(self) -> Path:
        return self.disk.large.folders.parts / str(self.ids[0])


def part(block: int) -> bytes:
    return CONTENT[block * EXTENT : (block + 1) * EXTENT]


def test_who_has_a_link_to_a_file_with_a_wrong_block_sees_another_length(node: Node) -> None:
    node.restart(boot="1")
    node.write_all()
    link = node.tier / "of a view"
    os.link(node.whole, link)
    node.whole.chmod(0o644)
    with node.whole.open("r+b") as opened:
        opened.seek(4 * EXTENT)
        opened.write(bytes(EXTENT))
    node.restart(boot="2")
    assert link.stat().st_size != len(CONTENT)
    assert node.given() == [number for number in range(11) if number != 4]
    # What is left is copied from it, and a process that begins anew finds that.
    eventually(lambda: node.parts.stat().st_ino != link.stat().st_ino, deadline=60)
    node.restart(boot="2")
    assert node.given() == [number for number in range(11) if number != 4]
    node.write(4)
    assert node.whole.read_bytes() == CONTENT


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_file_of_which_all_blocks_came_in_any_order_is_one_plain_file(node: Node) -> None:
    order = random.Random(2).sample(range(11), 11)
    for count, block in enumerate(order):
        assert not node.whole.exists()
        assert node.given() == sorted(order[:count])
        node.write(block)
    assert node.whole.read_bytes() == CONTENT
    assert not node.parts.exists()
    assert node.given() == list(range(11))


def test_a_process_that_goes_on_has_what_was_noted_and_nothing_else(node: Node) -> None:
    node.write_all((3, 0, 10))
    manifest = node.version.manifest
    killed = node.disk.create(node.ids[5], place=extent_place(manifest, 5))
    killed.write(memoryview(part(5)[:100]), offset=0)
    node.restart()
    assert node.given() == [0, 3, 10]
    node.write_all((1, 2, 4, 5, 6, 7, 8, 9))
    assert node.whole.read_bytes() == CONTENT
    node.restart()
    assert node.given() == list(range(11))


def test_a_block_that_does_not_come_is_not_there_and_may_come_again(node: Node) -> None:
    node.write(1)
    place = extent_place(node.version.manifest, 4)
    with node.disk.create(node.ids[4], place=place) as partial:
        partial.write(memoryview(b"other"), offset=0)
        with pytest.raises(DiskError):  # somebody else writes it already
            node.disk.create(node.ids[4], place=place)
    assert node.given() == [1]
    node.write(4)
    assert node.given() == [1, 4]


def test_the_last_block_that_goes_takes_the_file_along(node: Node) -> None:
    node.write_all((2, 7))
    node.disk.unspool(node.ids[2])
    assert node.given() == [7]
    node.disk.unspool(node.ids[7])
    assert node.given() == []
    folders = (
        node.disk.large.folders.parts,
        node.disk.large.folders.whole,
        node.disk.large.folders.tables,
        node.disk.partial,
    )
    assert [list(folder.iterdir()) for folder in folders] == [[], [], [], []]


def test_blocks_that_go_from_a_file_that_pods_may_have_open_leave_it_as_it_is(
    node: Node, tmp_path: Path
) -> None:
    node.write_all()
    link = tmp_path / "view"
    os.link(node.whole, link)
    with node.whole.open("rb") as opened:
        for block in (0, 6, 10):
            node.disk.unspool(node.ids[block])
        assert not node.whole.exists()
        eventually(lambda: not os.path.samefile(node.parts, link), deadline=60)
        assert node.given() == [1, 2, 3, 4, 5, 7, 8, 9]
        assert link.read_bytes() == CONTENT
        link.unlink()
        assert opened.read() == CONTENT
    node.write_all((10, 6, 0))
    assert node.whole.read_bytes() == CONTENT


def test_a_process_killed_while_it_copies_gives_no_hole(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write_all()
    monkeypatch.setattr(OneWorker, "add", lambda *_: None)
    node.disk.unspool(node.ids[3])
    monkeypatch.undo()
    node.restart()
    eventually(lambda: bool(node.parts.stat().st_mode & 0o200), deadline=60)
    assert node.given() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    node.write(3)
    assert node.whole.read_bytes() == CONTENT


@pytest.mark.parametrize("lost", ["table", "rows", "another file"])
def test_a_file_that_its_table_does_not_describe_is_removed(node: Node, lost: str) -> None:
    node.write_all()
    table = node.disk.large.folders.tables / str(node.ids[0])
    if lost == "table":
        table.unlink()
    elif lost == "rows":
        os.truncate(table, 200)
    else:
        node.whole.unlink()
        node.whole.write_bytes(bytes(len(CONTENT)))
    node.restart()
    assert node.given() == []
    assert not node.whole.exists()


def test_after_a_loss_of_power_blocks_that_differ_from_their_hash_go(node: Node) -> None:
    make_ready(node.disk)
    node.write_all()
    with node.whole.open("r+b") as damaged:
        damaged.seek(4 * EXTENT + 5)
        damaged.write(b"\0\0\0\0")
    node.restart(boot="2")
    assert not node.whole.exists()
    eventually(lambda: bool(node.parts.stat().st_mode & 0o200), deadline=60)
    assert node.given() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]


def test_a_file_that_somebody_removes_is_not_here_any_more(node: Node) -> None:
    node.write_all((1, 2, 3))
    node.parts.unlink()
    assert node.disk.open(node.ids[1]) is None
    assert node.disk.ids_at(Place.SPOOL).tolist() == []
    node.write_all()
    assert node.whole.read_bytes() == CONTENT


def test_a_disk_that_was_wiped_takes_blocks_again(node: Node) -> None:
    node.write_all((1, 2, 3))
    shutil.rmtree(node.tier)
    node.write_all((4, 5))
    assert node.given() == [4, 5]


@pytest.mark.parametrize("removed", ["table", "file", "both"])
def test_a_block_whose_file_somebody_has_removed_can_be_dropped(node: Node, removed: str) -> None:
    node.write_all((1, 2, 3))
    if removed in {"table", "both"}:
        (node.disk.large.folders.tables / str(node.ids[0])).unlink()
    if removed in {"file", "both"}:
        node.parts.unlink()
    for block in (1, 2, 3):
        node.disk.unspool(node.ids[block])
    assert node.given() == []
    node.write_all()
    assert node.whole.read_bytes() == CONTENT


def test_whoever_reads_while_blocks_come_and_go_gets_right_bytes_or_none(node: Node) -> None:
    node.write_all((0, 1, 2, 3))
    ended = threading.Event()
    wrong: list[BaseException] = []
    reads = [0, 0]

    def read() -> None:
        try:
            while not ended.is_set():
                for block in range(4):
                    reads[node.read(block) is not None] += 1
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    rng = random.Random(3)
    turns = 0
    try:
        while not wrong and (turns < 60 or not all(reads)):
            block = rng.randrange(4)
            node.disk.unspool(node.ids[block])
            if turns % 20 == 0:
                node.disk.large.clear()
                node.disk.large.load()
            for number in range(4):
                if node.ids[number] not in node.disk.large:
                    node.write(number)
            turns += 1
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not wrong


def test_no_block_takes_the_room_of_a_copy_that_is_being_made(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all()
    free, length = 100 << 20, len(CONTENT) - EXTENT
    status = os.statvfs(node.tier)
    fields = list(status)
    fields[1], fields[4] = 1, free  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    begun, go, copy = threading.Event(), threading.Event(), LargeFileFolders.copy

    def slow(self: LargeFileFolders, stored: StoredFile, source: int, draft: str) -> int:
        begun.set()
        assert go.wait(60)
        return copy(self, stored, source, draft)

    monkeypatch.setattr(LargeFileFolders, "copy", slow)
    room = Room(capacity=1 << 40, free=node.disk.free_bytes)
    assert node.disk.free_bytes() == free
    node.disk.unspool(node.ids[0])
    assert begun.wait(60)
    assert node.disk.free_bytes() == free - length
    assert "bytes left" in room.reserve(free - SLACK_BYTES - length + 1)
    assert room.reserve(free - SLACK_BYTES - length) == ""
    go.set()
    eventually(lambda: node.disk.free_bytes() == free, deadline=60)
    assert node.given() == list(range(1, 11))
