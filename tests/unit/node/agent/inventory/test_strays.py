"""What belongs to nothing is removed in one pass, and no mount waits for another one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.support.dataplane.agents import put_block
from tests.unit.node.agent.inventory.test_self_describing_files import FIRST, A, B, Node

from tdcs.alluxio.worker_blocks import OpenBlockError, WorkerBlocks
from tdcs.model.agent_state import FileFailure
from tdcs.node.agent.blocks.strays import KEPT_SECONDS, Strays
from tdcs.node.agent.disk.tier import Place
from tdcs.node.agent.transfer.registrar import Registrar


class Worker(WorkerBlocks):
    """A worker that removes what nobody holds open."""

    def __init__(self, blocks: Path) -> None:
        self._folder = blocks
        self.open = set[int]()
        self.removed: list[int] = []

    async def remove(self, block_id: int) -> None:
        if block_id in self.open:
            raise OpenBlockError(str(block_id))
        self.removed.append(block_id)
        (self._folder / str(block_id)).unlink()


class World:
    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.node = Node(folder)
        self.start()

    def start(self) -> None:
        self.node.start()
        self.worker = Worker(self.node.disk.blocks)
        registrar = Registrar(worker=self.worker, disk=self.node.disk, clock=lambda: self.now)
        self.strays = Strays(
            disk=self.node.disk,
            inventory=self.node.inventory,
            registrar=registrar,
            clock=lambda: self.now,
        )

    def due(self, *, emptied: bool = False) -> bool:
        return self.strays.due(self.node.mounts.values(), emptied=emptied)

    async def remove(self, *, emptied: bool = False) -> int:
        self.now += 10
        if not self.due(emptied=emptied):
            return 0
        return await self.strays.remove(self.node.mounts.values(), emptied=emptied)

    def names(self, place: Place) -> list[int]:
        return [int(name) for name in self.node.disk.ids_at(place)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_outdated_blocks_go_in_one_pass_without_the_manifest_that_named_them(world: World) -> None:
    node = world.node
    before = node.version({f"{n:03}": b"AAAA" for n in range(300)})
    for block in range(300):
        folder = node.disk.spool if block % 2 else node.disk.blocks
        put_block(node.disk, before.manifest, block, b"AAAA", folder=folder)
    world.start()
    node.open(node.version({"new": b"BBBB"}, first=FIRST * 5))
    node.look()
    assert node.room.used == 1200
    assert await world.remove() == 300
    assert world.names(Place.SPOOL) == world.names(Place.WORKER) == []
    assert len(world.worker.removed) == 150
    assert node.room.used == 0, "without another look"
    assert node.inventory.looks == 1
    assert not world.due()


async def test_the_room_of_blocks_of_several_mounts_is_free_when_they_are_gone(world: World) -> None:
    node = world.node
    for mount, first, place in (
        (A, FIRST * 3, "spool"),
        (B, FIRST * 2, "spool"),
        ("/datasets/c", FIRST, "worker"),
    ):
        version = node.version({f"{n}": b"AAAA" for n in range(3)}, mount=mount, first=first)
        for block in range(3):
            folder = node.disk.spool if place == "spool" else node.disk.blocks
            put_block(node.disk, version.manifest, block, b"AAAA", folder=folder)
    world.start()
    node.open(node.version({"new": b"BBBB"}, mount="/datasets/d", first=FIRST * 5))
    node.look()
    assert node.room.used == 36
    assert await world.remove() == 9
    assert node.room.used == 0, "without another look"
    assert not len(node.inventory.strangers)


async def test_no_mount_waits_for_the_manifest_of_another_one(world: World) -> None:
    node = world.node
    ours = node.version({"a": b"AAAA"})
    theirs = node.version({"b": b"BBBB"}, mount=B, first=FIRST * 2)
    put_block(node.disk, ours.manifest, 0, b"AAAA")
    put_block(node.disk, theirs.manifest, 0, b"BBBB")
    node.open(node.version({"new": b"CCCC"}, first=FIRST * 3))
    node.open(theirs)
    mount = node.mounts[B]
    mount.ledger = None  # its manifest is on its way
    assert mount.wanted is not None
    mount.wanted = msgspec.structs.replace(mount.wanted, manifest="f" * 32)
    node.look()
    assert await world.remove() == 1
    assert world.names(Place.SPOOL) == [FIRST * 2], "what may be of the other mount stays"


async def test_nothing_goes_before_the_operator_has_said_anything(world: World) -> None:
    node = world.node
    put_block(node.disk, node.version({"a": b"AAAA"}).manifest, 0, b"AAAA")
    node.look()
    assert await world.remove() == 0
    assert await world.remove(emptied=True) == 1


async def test_what_the_worker_has_got_from_others_is_theirs(world: World) -> None:
    node = world.node
    (node.disk.blocks / "17").write_bytes(b"of an Alluxio client")
    (node.disk.spool / "18").write_bytes(b"of nobody")
    node.open(node.version({"a": b"AAAA"}))
    node.look()
    assert await world.remove() == 1
    assert (world.names(Place.WORKER), world.names(Place.SPOOL)) == ([17], [])


async def test_a_block_that_a_reader_holds_open_is_tried_again_and_holds_up_no_other(world: World) -> None:
    node = world.node
    before = node.version({"a": b"AAAA", "b": b"BBBB"})
    for block, content in enumerate((b"AAAA", b"BBBB")):
        put_block(node.disk, before.manifest, block, content, folder=node.disk.blocks)
    world.worker.open = {FIRST}
    node.open(node.version({"new": b"CCCC"}, first=FIRST * 3))
    node.look()
    assert await world.remove() == 1
    assert world.names(Place.WORKER) == [FIRST]
    world.worker.open.clear()
    assert await world.remove() == 1
    assert world.names(Place.WORKER) == []


async def test_the_workers_wrong_file_goes_and_the_spools_right_one_stays(world: World) -> None:
    node = world.node
    other = node.version({"b": b"BBBB"}, mount=B)
    put_block(node.disk, other.manifest, 0, b"BBBB", folder=node.disk.blocks)
    version = node.version({"a": b"AAAA"})
    put_block(node.disk, version.manifest, 0, b"AAAA")
    ledger = node.open(version)
    node.look()
    assert await world.remove() == 1
    assert (world.names(Place.SPOOL), world.names(Place.WORKER)) == ([FIRST], [])
    node.look()
    assert ledger.blocks_here == ledger.manifest.blocks
    assert node.content(version) == [b"AAAA"]


async def test_blocks_of_another_journal_wait_for_an_hour_or_until_something_finds_no_room(
    world: World,
) -> None:
    node = world.node
    old = node.version({"a": b"AAAA"})
    put_block(node.disk, old.manifest, 0, b"AAAA")
    assert node.disk.set_aside() == 1
    node.open(node.version({"b": b"BBBB"}, mount=B, first=FIRST * 3))
    node.look()
    assert await world.remove() == 0
    node.mounts[B].room_failure = FileFailure(path="b", code="NoRoom", reason="the cache is full")
    assert await world.remove() == 1

    put_block(node.disk, old.manifest, 0, b"AAAA")
    node.disk.set_aside()
    node.mounts[B].room_failure = None
    node.look()
    assert await world.remove() == 0
    world.now += KEPT_SECONDS
    assert await world.remove() == 1
    assert world.names(Place.KEPT) == []


async def test_what_a_new_version_lists_stays_until_it_was_looked_for(world: World) -> None:
    node = world.node
    before = node.version({f"{n:03}": b"AAAA" for n in range(60)})
    for block in range(60):
        put_block(node.disk, before.manifest, block, b"AAAA")
    assert node.disk.set_aside() == 60
    world.start()
    node.look()  # nothing is assigned: all are strangers
    node.open(node.version({f"{n:03}": b"AAAA" for n in range(60)}, first=FIRST * 5))
    assert await world.remove() == 0, "it lists them under other ids"
    node.look()
    assert await world.remove() == 0
    assert len(world.names(Place.SPOOL)) == 60
