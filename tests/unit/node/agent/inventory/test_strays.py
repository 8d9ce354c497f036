"""What belongs to nothing is removed in one pass, and no mount waits for another one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.support.dataplane.agents import put_block
from tests.unit.node.agent.inventory.test_self_describing_files import ALLUXIOS, A, B, Node

from tdcs.model.agent_state import FileFailure
from tdcs.node.agent.blocks.strays import KEPT_SECONDS, Strays
from tdcs.node.agent.disk.tier import Place


class World:
    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.node = Node(folder)
        self.start()

    def start(self) -> None:
        self.node.start()
        self.strays = Strays(disk=self.node.disk, inventory=self.node.inventory, clock=lambda: self.now)

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
        put_block(node.disk, before.manifest, block, b"AAAA")
    world.start()
    node.open(node.version({"new": b"BBBB"}))
    node.look()
    assert node.room.used == 1200
    assert await world.remove() == 300
    assert world.names(Place.SPOOL) == []
    assert node.room.used == 0, "without another look"
    assert node.inventory.looks == 1
    assert not world.due()


async def test_the_room_of_blocks_of_several_mounts_is_free_when_they_are_gone(world: World) -> None:
    node = world.node
    for mount in (A, B, "/datasets/c"):
        version = node.version({f"{n}": b"AAAA" for n in range(3)}, mount=mount)
        for block in range(3):
            put_block(node.disk, version.manifest, block, b"AAAA")
    world.start()
    node.open(node.version({"new": b"BBBB"}, mount="/datasets/d"))
    node.look()
    assert node.room.used == 36
    assert await world.remove() == 9
    assert node.room.used == 0, "without another look"
    assert not len(node.inventory.strangers)


async def test_no_mount_waits_for_the_manifest_of_another_one(world: World) -> None:
    node = world.node
    ours = node.version({"a": b"AAAA"})
    theirs = node.version({"b": b"BBBB"}, mount=B)
    put_block(node.disk, ours.manifest, 0, b"AAAA")
    put_block(node.disk, theirs.manifest, 0, b"BBBB")
    node.open(node.version({"new": b"CCCC"}))
    node.open(theirs)
    mount = node.mounts[B]
    mount.ledger = None  # its manifest is on its way
    assert mount.assignment is not None
    mount.assignment = msgspec.structs.replace(mount.assignment, manifest="f" * 32)
    node.look()
    assert await world.remove() == 1
    assert world.names(Place.SPOOL) == theirs.manifest.block_ids.tolist(), (
        "what may be of the other mount stays"
    )


async def test_nothing_goes_before_the_operator_has_said_anything(world: World) -> None:
    node = world.node
    put_block(node.disk, node.version({"a": b"AAAA"}).manifest, 0, b"AAAA")
    node.look()
    assert await world.remove() == 0
    assert await world.remove(emptied=True) == 1


async def test_what_the_worker_has_got_from_others_is_theirs(world: World) -> None:
    node = world.node
    node.disk.lent.mkdir()
    (node.disk.lent / "17").write_bytes(b"of an Alluxio client")
    (node.disk.spool / "18").write_bytes(b"of nobody")
    node.open(node.version({"a": b"AAAA"}))
    node.look()
    assert await world.remove() == 1
    assert world.names(Place.SPOOL) == []
    assert [file.name for file in node.disk.lent.iterdir()] == ["17"]


async def test_blocks_without_an_id_wait_for_an_hour_or_until_something_finds_no_room(
    world: World,
) -> None:
    node = world.node
    old = node.version({"a": b"AAAA"})
    put_block(node.disk, old.manifest, 0, b"AAAA")
    assert node.disk.set_aside() == 1
    node.open(node.version({"b": b"BBBB"}, mount=B))
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
    version = node.version({f"{n:03}": b"AAAA" for n in range(60)})
    for block in range(60):
        put_block(node.disk, version.manifest, block, b"AAAA", name=ALLUXIOS + block)
    assert node.disk.set_aside() == 60
    world.start()
    node.look()  # nothing is assigned: all are strangers
    node.open(version)
    assert await world.remove() == 0, "it lists them under other ids"
    node.look()
    assert await world.remove() == 0
    assert len(world.names(Place.SPOOL)) == 60
