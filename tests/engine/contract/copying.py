"""What every engine must do: copies from worker to worker."""

from __future__ import annotations

import pytest
from tests.engine.contract.world import (
    MIB,
    Mounts,
    World,
    blocks_of,
    holders,
    used,
)

from tdcs.engine.protocol import (
    CapacityError,
    NoSuchWorkerError,
)


class CopyingContract:
    """Copies from worker to worker."""

    async def test_a_copy_comes_from_another_worker_and_not_from_the_source(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, source = world.engine, world.source({"large": 2 * MIB + 5, "b/small": 100, "c": MIB})
        path = await mounts.add(source)
        blocks = await blocks_of(engine, path)
        assert await engine.put(worker=world.large, blocks=blocks) == []
        for name in ("large", "b/small", "c"):
            world.remove(source, name)
        assert await engine.copy(source=world.large, worker=world.small, blocks=blocks) == []
        assert await holders(engine, path) == {frozenset({world.small, world.large})}
        assert await used(engine, world.small) == 3 * MIB + 105
        # and back again, from what the copy is
        assert await engine.drop(worker=world.large, block_ids=[block.id for block in blocks]) == []
        assert await engine.copy(source=world.small, worker=world.large, blocks=blocks) == []
        assert await holders(engine, path) == {frozenset({world.small, world.large})}

    async def test_copying_twice_is_success_and_takes_no_more_room(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 4 * MIB, "b": 100}))
        blocks = await blocks_of(engine, path)
        await engine.put(worker=world.large, blocks=blocks)
        assert await engine.copy(source=world.large, worker=world.small, blocks=blocks) == []
        for stale in (blocks, [*blocks, *blocks], await blocks_of(engine, path)):
            assert await engine.copy(source=world.large, worker=world.small, blocks=stale) == []
        assert await used(engine, world.small) == 4 * MIB + 100

    async def test_a_block_that_the_giver_does_not_hold_is_a_failure_and_no_load(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"there": 10, "small": 10, "big": MIB}))
        blocks = {block.source_path.rsplit("/", 1)[1]: block for block in await blocks_of(engine, path)}
        await engine.put(worker=world.large, blocks=[blocks["there"]])
        failures = await engine.copy(
            source=world.large,
            worker=world.small,
            blocks=[blocks[name] for name in ("there", "small", "big")],
        )
        assert {failure.block_id for failure in failures} == {blocks["small"].id, blocks["big"].id}
        assert all(world.large in failure.reason for failure in failures)
        held = {block.id: block.workers for block in await blocks_of(engine, path)}
        assert held == {
            blocks["there"].id: {world.large, world.small},
            blocks["small"].id: frozenset(),
            blocks["big"].id: frozenset(),
        }

    async def test_a_copy_that_does_not_fit_is_refused_before_anything_moves(
        self, world: World, mounts: Mounts
    ) -> None:
        engine = world.engine
        kept = await mounts.add(world.source({"kept": 4 * MIB}))
        await engine.put(worker=world.small, blocks=await blocks_of(engine, kept))
        path = await mounts.add(world.source({"a": 3 * MIB, "b": 2 * MIB}))
        await engine.put(worker=world.large, blocks=await blocks_of(engine, path))
        with pytest.raises(CapacityError, match=world.small):
            await engine.copy(source=world.large, worker=world.small, blocks=await blocks_of(engine, path))
        assert await holders(engine, kept) == {frozenset({world.small})}
        assert await holders(engine, path) == {frozenset({world.large})}

    async def test_a_copy_names_the_worker_that_is_not_there(self, world: World, mounts: Mounts) -> None:
        path = await mounts.add(world.source({"a": 10}))
        blocks = await blocks_of(world.engine, path)
        for source, worker in (("nowhere", world.small), (world.small, "nowhere")):
            with pytest.raises(NoSuchWorkerError, match="nowhere") as refusal:
                await world.engine.copy(source=source, worker=worker, blocks=blocks)
            assert refusal.value.worker == "nowhere"
