"""What an agent keeps of what it read for readers: whole blocks of the listed version, once, while there is room."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.support.dataplane.agents import MOUNT, Version, content_of, fill, folder_version

from tdcs.model.agent_state import NO_SLOTS
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.partial_file import BusyError
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.transfer.read_fills import FULL_SECONDS, IDLE_SECONDS, MOST_OPEN, ReadFills
from tdcs.node.wire.frames import PART_BYTES, SourceWanted

LARGE = 3 * PART_BYTES + 17
FILES = {"a/small": os.urandom(5000), "empty": b"", "large": os.urandom(LARGE)}


@dataclass
class World:
    """A disk that reads fill, and a clock that stands."""

    folder: Path
    version: Version
    now: float = 0.0
    capacity: int = 1 << 30
    fill_bytes: int = 1 << 30
    disk: Disk = field(init=False)
    room: Room = field(init=False)
    mount: MountWork = field(init=False)
    ledger: Ledger = field(init=False)
    fills: ReadFills = field(init=False)

    def __post_init__(self) -> None:
        self.disk = Disk(self.folder / "tier")
        self.disk.prepare()
        self.room = Room(capacity=self.capacity, free=lambda: 1 << 40)
        self.mount = MountWork(path=MOUNT, lock=threading.RLock(), room=self.room)
        self.ledger = Ledger(self.version.manifest)
        self.ledger.observe(np.arange(0))
        self.mount.opened(self.ledger)
        self.assign(self.fill_bytes)
        self.fills = ReadFills(disk=self.disk, room=self.room, clock=lambda: self.now)

    def assign(self, fill_bytes: int, *, version: int = 1) -> None:
        """Have reads fill so many bytes."""
        self.mount.assign(
            self.version.assignment(version=version, parts=(), origin=NO_SLOTS, fill_bytes=fill_bytes)
        )

    def read(self, name: str, *, offset: int = 0, length: int | None = None, tag: str | None = None) -> None:
        """A reader has read a piece of a file."""
        manifest = self.version.manifest
        file = manifest.file_at(name.encode())
        assert file is not None
        content = FILES[name]
        end = len(content) if length is None else offset + length
        (block,) = manifest.blocks_of(file)
        read = SourceWanted(
            mount=MOUNT,
            path=name.encode(),
            block=int(manifest.block_ids[block]),
            offset=offset,
            length=end - offset,
            size=len(content),
            tag=manifest.tag(file) if tag is None else tag,
        )
        self.fills.keep(self.mount, read, memoryview(content[offset:end]))
        self.disk.names.wait()

    def read_parts(self, name: str, *parts: int) -> None:
        """The same, part by part."""
        for part in parts:
            begin = part * PART_BYTES
            self.read(name, offset=begin, length=min(PART_BYTES, len(FILES[name]) - begin))

    @property
    def kept(self) -> dict[str, bytes]:
        """Files with bytes that lie here whole."""
        return {name: content for name, content in content_of(self.disk, self.version).items() if content}

    def nothing_is_open(self) -> bool:
        """Whether nothing is claimed or reserved, and no file is being written."""
        return (
            not self.ledger.blocks_in_work
            and self.room._reserved == 0
            and not list(self.disk.partial.iterdir())
        )


class TurnLock:
    """Lets another thread have its turn, once, when it is released."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._turn: Callable[[], None] | None = turn

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        turn, self._turn = self._turn, None
        if turn is not None:
            thread = threading.Thread(target=turn)
            thread.start()
            thread.join()


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")


@pytest.fixture
def world(tmp_path: Path, version: Version) -> World:
    return World(folder=tmp_path, version=version)


def test_a_block_that_was_read_whole_is_kept_once_and_counted(world: World) -> None:
    world.read("a/small")
    world.read("a/small")
    assert world.kept == {"a/small": FILES["a/small"]}
    assert world.room.used == 5000
    assert world.mount.state().held_bytes == 5000
    assert world.nothing_is_open()


def test_a_large_block_is_put_together_from_its_parts_in_any_order(world: World) -> None:
    world.read_parts("large", 2, 0, 0, 3)
    assert world.kept == {}
    world.read_parts("large", 1)
    assert world.kept == {"large": FILES["large"]}
    assert world.room.used == LARGE
    assert world.nothing_is_open()


def test_pieces_that_are_no_parts_and_other_versions_of_a_file_are_not_kept(world: World) -> None:
    world.read("large", offset=100, length=PART_BYTES)
    world.read("large", offset=PART_BYTES, length=100)
    world.read("a/small", tag="mtime-ms:1")
    world.read("a/small", offset=1)
    assert world.kept == {}
    assert world.nothing_is_open()


def test_a_block_of_which_no_part_came_for_long_is_given_up_and_begun_again(world: World) -> None:
    world.read_parts("large", 0, 1)
    world.now = IDLE_SECONDS + 1
    world.fills.give_up_idle(mounts={MOUNT})
    assert world.nothing_is_open()
    world.read_parts("large", 2, 3)
    assert world.kept == {}
    world.read_parts("large", 0, 1)
    assert world.kept == {"large": FILES["large"]}


def test_what_is_being_put_together_is_given_up_when_reads_fill_no_more(world: World) -> None:
    world.read_parts("large", 0)
    world.assign(0, version=2)
    world.fills.give_up_idle(mounts={MOUNT})
    assert world.nothing_is_open()
    world.read("a/small")
    assert world.kept == {}
    assert not world.fills.fills(world.mount)


@pytest.mark.parametrize("short", ["fill_bytes", "capacity"])
def test_what_finds_no_room_is_not_kept_and_is_tried_again_later(
    tmp_path: Path, version: Version, short: str
) -> None:
    world = World(folder=tmp_path, version=version, **{short: LARGE})
    world.read("a/small")
    assert world.fills.fills(world.mount)
    world.read_parts("large", 0, 1, 2, 3)
    assert world.kept == {"a/small": FILES["a/small"]}
    assert world.fills.fills(world.mount), "smaller blocks find room still"
    for file in world.disk.spool.iterdir():
        file.unlink()
    world.ledger.observe(np.arange(0))
    world.room.observe(LARGE - 100)
    world.assign(100, version=2)
    world.read("a/small")
    assert world.kept == {}
    assert not world.fills.fills(world.mount), "readers ask another agent, which may keep it"
    world.now = FULL_SECONDS
    assert world.fills.fills(world.mount)
    assert world.nothing_is_open()


def test_what_awaits_its_name_counts_as_long_as_that_takes(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(folder=tmp_path, version=version, fill_bytes=LARGE + 4999)
    later: list[Callable[[], None]] = []
    keep_later = world.disk.keep_later
    monkeypatch.setattr(
        world.disk, "keep_later", lambda *given, **named: later.append(lambda: keep_later(*given, **named))
    )
    world.read("a/small")
    world.now = 5.0
    world.read_parts("large", 0, 1, 2, 3)
    assert len(later) == 1, "with both, the disk would have a byte too much of the mount"


def test_a_full_disk_costs_no_read_and_leaves_nothing_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        world.read("a/small")
        world.now = FULL_SECONDS
        world.read_parts("large", 0)
    assert world.kept == {}
    assert world.nothing_is_open()
    world.now = 3 * FULL_SECONDS
    world.read("a/small")
    assert world.kept == {"a/small": FILES["a/small"]}


def test_a_file_that_is_being_changed_is_not_kept_and_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise BusyError("the file is being copied")

    with monkeypatch.context() as patched:
        patched.setattr(world.disk, "create", busy)
        world.read("a/small")
        world.read("large", length=PART_BYTES)
    assert world.ledger.held_bytes() == 0
    assert not world.ledger.blocks_in_work
    assert world.fills.fills(world.mount)
    assert not caplog.text
    world.read("a/small")
    assert world.ledger.held_bytes() == len(FILES["a/small"])


def test_so_many_blocks_are_put_together_at_once_and_no_more(tmp_path: Path) -> None:
    names = [f"{number:02d}" for number in range(MOST_OPEN + 1)]
    content = bytes(PART_BYTES + 1)
    version = folder_version(
        fill(tmp_path / "source", dict.fromkeys(names, content)), store=tmp_path / "manifests"
    )
    world = World(folder=tmp_path, version=version)
    manifest = version.manifest
    for part in (0, 1):
        begin = part * PART_BYTES
        for file in range(len(manifest)):
            read = SourceWanted(
                mount=MOUNT,
                path=manifest.file_path(file),
                block=int(manifest.block_ids[file]),
                offset=begin,
                length=len(content[begin : begin + PART_BYTES]),
                size=len(content),
                tag=manifest.tag(file),
            )
            world.fills.keep(world.mount, read, memoryview(content[begin : begin + PART_BYTES]))
    world.disk.names.wait()
    assert sorted(world.kept) == names[:MOST_OPEN]


def test_two_threads_that_read_the_same_parts_at_once_keep_the_block_once(world: World) -> None:
    threads = [threading.Thread(target=world.read_parts, args=("large", 0, 1, 2, 3)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.kept == {"large": FILES["large"]}
    assert world.room.used == LARGE
    assert world.nothing_is_open()


def test_a_block_is_finished_once_when_two_threads_bring_its_last_two_parts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.read_parts("large", 0, 1)
    (parts,) = world.fills._open.values()
    parts.lock = TurnLock(lambda: world.read_parts("large", 3))  # type: ignore[assignment]
    world.read_parts("large", 2)
    assert world.kept == {"large": FILES["large"]}
    assert world.room.used == LARGE
    assert world.nothing_is_open()
    assert not caplog.records


def test_a_block_that_is_given_up_next_to_a_part_that_comes_is_given_up_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def give_up() -> None:
        world.assign(0, version=2)
        world.fills.give_up_idle(mounts={MOUNT})

    world.read_parts("large", 0, 1)
    (parts,) = world.fills._open.values()
    parts.lock = TurnLock(give_up)  # type: ignore[assignment]
    world.read_parts("large", 2)
    assert world.kept == {}
    assert world.room.used == 0
    assert world.nothing_is_open()
    assert not caplog.records


def test_what_is_known_of_a_mount_goes_with_it(tmp_path: Path, version: Version) -> None:
    world = World(folder=tmp_path, version=version, fill_bytes=5000)
    world.read("a/small")
    assert not world.fills._claimed, "it is here by its name"
    world.read_parts("large", 0)
    world.fills.give_up_idle(mounts={MOUNT})
    assert set(world.fills._short) == {MOUNT}
    world.fills.give_up_idle(mounts=())
    assert not world.fills._short
