"""What every engine must do: workers, and the engine's own end."""

from __future__ import annotations

import pytest
from tests.unit.engine.contract.world import SMALL_CAPACITY, World

from tdcs.model.cache_engine import Engine, NoSuchWorkerError


async def live(engine: Engine) -> list[str]:
    return [info.name for info in await engine.workers() if info.live]


class WorkersContract:
    """Workers, and the engine's own end."""

    async def test_a_retired_worker_counts_no_longer_until_it_is_started_again(self, world: World) -> None:
        engine, both = world.engine, sorted([world.large, world.small])
        assert await live(engine) == both
        for _ in range(2):  # the second time it is so already
            await engine.retire(worker=world.small)
            assert await live(engine) == [world.large]
        with pytest.raises(NoSuchWorkerError, match="nowhere"):
            await engine.retire(worker="nowhere")
        await world.revive(world.small)
        assert await live(engine) == both

    async def test_workers_are_listed_with_their_capacity(self, world: World) -> None:
        found = await world.engine.workers()
        assert [info.name for info in found] == sorted([world.large, world.small])
        assert all(info.live and ":" in info.address for info in found)
        small = next(info for info in found if info.name == world.small)
        assert small.capacity_bytes == SMALL_CAPACITY

    async def test_closing_twice_is_fine(self, world: World) -> None:
        await world.engine.close()
        await world.engine.close()
