"""Files of several blocks whose process or machine is gone in the middle of a change, or whose disk refuses it."""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import xxhash
from tests.support.waiting import eventually
from tests.unit.node.agent.disk.test_large_files import CONTENT, EXTENT, Node, part

from tdcs.model.block_identity import identity_of
from tdcs.node import extents
from tdcs.node.agent.disk import large_file_folders
from tdcs.node.agent.disk.large_file_folders import LargeFileFolders
from tdcs.node.agent.disk.one_worker import OneWorker
from tdcs.node.agent.disk.partial_file import DiskError
from tdcs.node.agent.disk.tier import Disk, Place
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.extents import extent_place


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, *, where: Callable[..., bool], error: Any) -> None:
    """Have a call of `os` fail."""
    real = getattr(os, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if where(*arguments):
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, call)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What happens to files, in turn: the inodes that are synced, "punch", and names that are given."""
    events: list[object] = []
    punch = large_file_folders._punch

    def noted(name: str) -> None:
        real = getattr(os, name)

        def sync(fd: int) -> None:
            real(fd)
            events.append(os.fstat(fd).st_ino)

        monkeypatch.setattr(os, name, sync)

    noted("fsync")
    noted("fdatasync")

    def punched(*arguments: Any) -> None:
        events.append("punch")
        punch(*arguments)

    monkeypatch.setattr(large_file_folders, "_punch", punched)
    return events


def table(node: Node) -> Path:
    return node.disk.large.folders.tables / str(node.ids[0])


def drop(node: Node, blocks: Iterable[int]) -> None:
    for block in blocks:
        node.disk.unspool(node.ids[block])


def test_a_row_is_on_the_disk_before_its_bytes_are_punched_out(node: Node, synced: list[object]) -> None:
    node.write_all((0, 1, 2, 3))
    before = node.parts.stat().st_blocks
    synced.clear()
    drop(node, (1, 2))
    eventually(lambda: synced.count("punch") == 2, deadline=60)
    assert table(node).stat().st_ino in synced[: synced.index("punch")]
    eventually(lambda: node.parts.stat().st_blocks < before, deadline=60)
    assert node.given() == [0, 3]


def test_many_blocks_that_go_are_synced_at_once(node: Node, synced: list[object]) -> None:
    node.write_all(range(10))
    synced.clear()
    with node.disk.large._lock:  # the worker waits for it
        drop(node, range(8))
    eventually(lambda: synced.count("punch") == 8, deadline=60)
    assert synced.count(table(node).stat().st_ino) <= 2, "threads of other stores sync files as well"


def test_a_row_is_on_the_disk_before_its_place_is_written_again(
    node: Node, synced: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all((0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(OneWorker, "add", lambda *_: None)
        drop(node, (1,))
    synced.clear()
    with node.disk.create(node.ids[1], place=extent_place(node.version.manifest, 1)):
        assert synced == [table(node).stat().st_ino]


def test_a_block_that_does_not_come_gives_its_room_back(node: Node) -> None:
    node.write_all((0,))
    before = node.parts.stat().st_blocks
    with node.disk.create(node.ids[1], place=extent_place(node.version.manifest, 1)) as partial:
        partial.write(memoryview(part(1)), offset=0)
        os.fsync(partial.fd)
        assert node.parts.stat().st_blocks > before
    eventually(lambda: node.parts.stat().st_blocks <= before, deadline=60)


def test_a_file_is_on_the_disk_before_it_has_a_name(node: Node, synced: list[object]) -> None:
    node.write(0)
    assert table(node).stat().st_ino in synced
    node.write_all(range(1, 10))
    synced.clear()
    node.write(10)
    assert table(node).stat().st_ino in synced
    synced.clear()
    drop(node, (3,))
    eventually(lambda: bool(node.parts.stat().st_mode & 0o200), deadline=60)
    assert {node.parts.stat().st_ino, table(node).stat().st_ino} <= set(synced)


def test_what_goes_while_a_file_is_copied_gives_its_room_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all()
    going, copy = threading.Event(), large_file_folders._copy_range

    def slow(*arguments: Any) -> int:
        if not going.is_set():
            assert going.wait(60)
        return copy(*arguments)

    monkeypatch.setattr(large_file_folders, "_copy_range", slow)
    drop(node, (0,))
    eventually(lambda: any(node.disk.partial.glob("*.large")), deadline=60)
    drop(node, range(2, 10))
    going.set()
    eventually(lambda: bool(node.parts.stat().st_mode & 0o200), deadline=60)
    eventually(lambda: node.parts.stat().st_blocks * 512 <= 3 * EXTENT, deadline=60)
    assert node.given() == [1, 10]


def test_a_file_that_came_again_is_not_punched_for_the_one_before(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks go while the worker syncs, and others come."""
    large = node.disk.large
    with monkeypatch.context() as patch:
        patch.setattr(OneWorker, "add", lambda *_: None)
        node.write_all((0, 2, 3))
        drop(node, (2, 3))
    stored, sync = large._files[node.ids[0]], LargeFileFolders.sync_table

    def synced(files: LargeFileFolders, one: Any) -> None:
        sync(files, one)
        monkeypatch.setattr(LargeFileFolders, "sync_table", sync)
        drop(node, (0,))
        node.write_all((2, 3))

    monkeypatch.setattr(LargeFileFolders, "sync_table", synced)
    large._give_back(stored)
    assert stored is not large._files[node.ids[0]]
    assert node.given() == [2, 3]


@pytest.mark.parametrize(
    ("length", "extent"),
    [
        (len(CONTENT) | 1 << 62, EXTENT),
        (len(CONTENT) | 1 << 45, EXTENT),
        (1 << 63, 1),
        (len(CONTENT), 1 << 63),
    ],
)
def test_a_table_whose_header_is_damaged_is_removed(node: Node, length: int, extent: int) -> None:
    node.write_all((0, 1))
    raw = bytearray(table(node).read_bytes())
    struct.pack_into("<QQ", raw, extents.row_place(0) - 16, length, extent)
    table(node).write_bytes(raw)
    node.restart()
    assert node.given() == []
    assert not table(node).exists()


def test_a_block_is_noted_in_the_file_it_was_written_to(node: Node) -> None:
    manifest = node.version.manifest

    def keep(partial: Any) -> None:
        node.disk.keep(
            partial,
            block=node.ids[4],
            identity=identity_of(manifest, 4),
            length=EXTENT,
            content_hash=xxhash.xxh3_64_intdigest(part(4)),
        )

    place = extent_place(manifest, 4)
    node.write(0)
    first = node.disk.create(node.ids[4], place=place)
    first.write(memoryview(part(4)), offset=0)
    node.parts.unlink()
    assert node.disk.ids_at(Place.SPOOL).tolist() == []
    node.write(0)
    second = node.disk.create(node.ids[4], place=place)
    with pytest.raises(DiskError), first:
        keep(first)
    assert node.given() == [0]
    with second:
        second.write(memoryview(part(4)), offset=0)
        keep(second)
    assert node.given() == [0, 4]


@pytest.mark.parametrize("header", [False, True])
def test_a_file_whose_process_was_killed_before_its_name_gets_it(
    node: Node, monkeypatch: pytest.MonkeyPatch, header: bool
) -> None:
    node.write_all(range(10))
    with monkeypatch.context() as patch:
        if header:
            whole = str(node.disk.large.folders.whole)
            refuse(patch, "rename", where=lambda _, to: str(to).startswith(whole), error=OSError(5, "EIO"))
        else:
            patch.setattr(LargeFileFolders, "complete", lambda *_: None)
        node.write(10)
    assert node.given() == list(range(11))
    inode = node.parts.stat().st_ino
    node.restart()
    assert node.given() == list(range(11))
    assert (node.whole.stat().st_ino, node.whole.read_bytes()) == (inode, CONTENT)


def test_a_file_that_could_get_no_name_gives_room_back_and_takes_blocks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all(range(10))
    with monkeypatch.context() as patch:
        real = extents.header_bytes

        def header_bytes(header: Any) -> bytes:
            if header.frozen:
                raise OSError(5, "EIO")
            return real(header)

        patch.setattr(extents, "header_bytes", header_bytes)
        node.write(10)
    assert node.given() == list(range(11))
    before = node.parts.stat().st_blocks
    drop(node, range(9))
    eventually(lambda: node.parts.stat().st_blocks < before, deadline=60)
    node.write_all(range(9))
    assert node.whole.read_bytes() == CONTENT


def test_a_process_killed_before_a_file_is_hidden_loses_one_block(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all()
    whole = str(node.disk.large.folders.whole)
    with monkeypatch.context() as patch:
        refuse(patch, "rename", where=lambda source, _: str(source).startswith(whole), error=Killed())
        with pytest.raises(Killed):
            drop(node, (3,))
    node.restart()
    assert not node.whole.exists()
    eventually(lambda: bool(node.parts.stat().st_mode & 0o200), deadline=60)
    assert node.given() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]


def test_a_process_killed_before_a_copy_has_its_name_loses_one_block(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all()
    with monkeypatch.context() as patch:
        patch.setattr(OneWorker, "add", lambda *_: None)
        drop(node, (3,))
        draft = f"{node.disk.partial}/"
        large = str(node.disk.large.folders.parts)
        refuse(
            patch,
            "rename",
            where=lambda source, to: str(source).startswith(draft) and str(to).startswith(large),
            error=Killed(),
        )
        refuse(patch, "unlink", where=lambda path: str(path).startswith(draft), error=Killed())
        with pytest.raises(Killed):
            node.disk.large._thaw(node.disk.large._files[node.ids[0]])
    node.restart()
    assert node.given() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert list(node.disk.partial.iterdir()) == []
    node.write(3)
    assert node.whole.read_bytes() == CONTENT


def test_a_copy_for_which_there_is_no_memory_loses_its_file_and_wedges_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write_all()

    def refused(*_: object) -> int:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(large_file_folders, "_copy_range", refused)
        drop(node, (3,))
        eventually(lambda: not node.parts.exists(), deadline=60)
    eventually(lambda: node.given() == [], deadline=60)
    node.write_all()
    assert node.whole.read_bytes() == CONTENT


def test_one_thread_works_on_all_things_and_goes_on_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, going = threading.Event(), threading.Event()
    done: list[tuple[str, int]] = []

    def work(thing: str) -> None:
        begun.set()
        assert going.wait(60)
        done.append((thing, threading.get_ident()))
        if thing == "fails":
            raise MemoryError

    worker = OneWorker(work, name="works")
    with caplog.at_level(logging.CRITICAL):
        worker.add("fails")
        assert begun.wait(60)
        later = "later"
        for thing in (later, "last", later):
            worker.add(thing)
        going.set()
        eventually(lambda: len(done) == 3, deadline=60)
    assert [thing for thing, _ in done] == ["fails", "later", "last"]
    assert len({thread for _, thread in done}) == 1


def test_a_file_of_several_blocks_is_among_those_whose_facts_are_kept(node: Node) -> None:
    node.write_all((0, 1))
    assert list(node.disk.large.inodes()) == [node.parts.stat().st_ino]


def test_another_file_under_the_name_is_given_to_nobody(node: Node) -> None:
    node.write_all((0, 1))
    replacement = node.parts.with_name("other")
    replacement.write_bytes(bytes(len(CONTENT)))
    os.rename(replacement, node.parts)
    assert node.disk.open(node.ids[0]) is None
    assert node.read(0) is None


def test_what_a_loss_of_power_leaves_of_a_drop_is_no_zeros(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has of the table what was synced, and all holes."""
    make_ready(node.disk)
    node.write_all((0, 1, 2, 3))
    node.disk.mark.advance()
    node.disk.mark.advance()
    content = table(node).read_bytes()
    sync = os.fdatasync
    names = table(node)

    def synced(fd: int) -> None:
        nonlocal content
        sync(fd)
        if os.fstat(fd).st_ino == names.stat().st_ino:
            content = names.read_bytes()

    monkeypatch.setattr(os, "fdatasync", synced)
    punched = threading.Event()
    punch = large_file_folders._punch

    def punching(*arguments: Any) -> None:
        punch(*arguments)
        punched.set()

    monkeypatch.setattr(large_file_folders, "_punch", punching)
    drop(node, (2,))
    assert punched.wait(60)
    names.write_bytes(content)
    node.disk = Disk(node.tier, boot="2")
    node.disk.prepare()
    make_ready(node.disk)
    assert node.given() == [0, 1, 3]
