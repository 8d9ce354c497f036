"""Room on a worker is counted once, and what does not fit is refused before anything is loaded."""

import asyncio
from typing import Any

import pytest

from tdcs.engine.alluxio.placements import Placements
from tdcs.engine.protocol import Block, CapacityError, PutFailure, WorkerInfo


class Master:
    """One worker of 100 bytes; knows what was placed on it."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    async def workers(self) -> list[WorkerInfo]:
        used = sum(self.held.values())
        return [WorkerInfo(name="a", address="a:1", capacity_bytes=100, used_bytes=used, live=True)]

    async def locations(self, *, block_id: int) -> frozenset[str]:
        return frozenset({"a"} if block_id in self.held else ())


def block(number: int, length: int) -> Block:
    return Block(id=number, length=length, offset=0, source_path="s3://b/f", mount_id=1)


class World:
    """Placements over that master; each batch counts as used at once and ends when the test says so."""

    def __init__(self) -> None:
        self.master = Master()
        fake: Any = self.master
        self._placements = Placements(master=fake, client=lambda _: fake)
        self.begun = asyncio.Event()
        self.end = asyncio.Event()

    async def place(self, *blocks: Block) -> list[PutFailure]:
        async def bring(info: WorkerInfo, batch: list[Block]) -> tuple[list[PutFailure], list[int]]:
            self.master.held |= {each.id: each.length for each in batch}
            self.begun.set()
            await self.end.wait()
            return [], []

        return await self._placements.place(
            worker="a", blocks=blocks, attempted="load", place=bring, at_once=1
        )


async def test_what_is_on_its_way_and_there_already_does_not_take_room_twice() -> None:
    world = World()
    first = asyncio.create_task(world.place(block(1, 60)))
    await world.begun.wait()
    second = asyncio.create_task(world.place(block(2, 40)))
    done, _ = await asyncio.wait({second}, timeout=0.5)
    assert not done  # 60 bytes are there, 60 are set aside: it waits to see what that comes to
    world.end.set()
    assert await asyncio.wait_for(first, timeout=60) == []
    assert await asyncio.wait_for(second, timeout=60) == []
    assert world.master.held == {1: 60, 2: 40}


async def test_what_does_not_fit_is_refused_once_nothing_is_on_its_way() -> None:
    world = World()
    first = asyncio.create_task(world.place(block(1, 60)))
    await world.begun.wait()
    second = asyncio.create_task(world.place(block(2, 41)))
    world.end.set()
    await first
    with pytest.raises(CapacityError, match="41 bytes, and 40 of its 100 bytes are free"):
        await asyncio.wait_for(second, timeout=60)
    assert world.master.held == {1: 60}
