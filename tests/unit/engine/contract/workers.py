"""What every engine must do: workers, and the engine's own end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.waiting import eventually_async
from tests.unit.engine.contract.world import (
    SMALL_CAPACITY,
    Mounts,
    World,
    blocks_of,
)

from tdcs.model.cache_engine import (
    NoSuchWorkerError,
)


class WorkersContract:
    """Workers, and the engine's own end."""

    async def test_a_retired_worker_counts_no_longer_until_it_is_started_again(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 10, "b": 20}))
        blocks = await blocks_of(engine, path)
        await world.place(worker=world.small, blocks=blocks)
        await world.place(worker=world.large, blocks=blocks[:1])
        for _ in range(2):  # the second time it is so already
            await engine.retire(worker=world.small)
            held = {block.id: block.workers for block in await blocks_of(engine, path)}
            assert held == {blocks[0].id: {world.large}, blocks[1].id: frozenset()}
            assert [info.name for info in await engine.workers() if info.live] == [world.large]
        with pytest.raises(NoSuchWorkerError, match="nowhere"):
            await engine.retire(worker="nowhere")
        await world.revive(world.small)

        async def back() -> bool:
            held = {block.id: block.workers for block in await blocks_of(engine, path)}
            return held == {blocks[0].id: {world.large, world.small}, blocks[1].id: {world.small}}

        condition: Callable[[], bool | Awaitable[bool]] = back
        await eventually_async(condition, deadline=150)

    async def test_workers_are_listed_with_their_capacity(self, world: World, mounts: Mounts) -> None:
        found = await world.engine.workers()
        assert [info.name for info in found] == sorted([world.large, world.small])
        assert all(info.live and ":" in info.address for info in found)
        small = next(info for info in found if info.name == world.small)
        assert small.capacity_bytes == SMALL_CAPACITY

    async def test_closing_twice_is_fine(self, world: World) -> None:
        await world.engine.close()
        await world.engine.close()
