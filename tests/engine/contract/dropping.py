"""What every engine must do: removing copies, and placing them again."""

from __future__ import annotations

from tests.engine.contract.world import (
    SMALL_CAPACITY,
    Mounts,
    World,
    blocks_of,
    holders,
)


class DroppingContract:
    """Removing copies, and placing them again."""

    async def test_drop_removes_the_copy_of_one_worker_only(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 10, "b": 10}))
        blocks = await blocks_of(engine, path)
        for worker in (world.small, world.large):
            await engine.put(worker=worker, blocks=blocks)
        first, second = blocks
        assert await engine.drop(worker=world.small, block_ids=[first.id]) == []
        held = {block.id: block.workers for block in await blocks_of(engine, path)}
        assert held == {first.id: {world.large}, second.id: {world.small, world.large}}

    async def test_dropping_what_is_not_there_is_success(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 10}))
        (block,) = await blocks_of(engine, path)
        assert await engine.drop(worker=world.large, block_ids=[block.id, 4242]) == []

    async def test_a_block_that_was_dropped_can_be_copied_again_and_stays(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 10, "b": 10}))
        blocks = await blocks_of(engine, path)
        await engine.put(worker=world.small, blocks=blocks)
        for _ in range(2):
            assert await engine.copy(source=world.small, worker=world.large, blocks=blocks) == []
            await engine.drop(worker=world.large, block_ids=[blocks[0].id])
        failures = await engine.copy(source=world.small, worker=world.large, blocks=blocks)
        assert not failures, failures
        other = await mounts.add(world.source({"c": 20}))  # its life shows that heartbeats have passed
        (marker,) = await blocks_of(engine, other)
        for _ in range(2):
            await engine.put(worker=world.large, blocks=[marker])
            await engine.drop(worker=world.large, block_ids=[marker.id])
        assert await holders(engine, path) == {frozenset({world.large, world.small})}

    async def test_a_block_that_was_dropped_can_be_put_again_and_stays(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 10}))
        blocks = await blocks_of(engine, path)
        for _ in range(2):
            await engine.put(worker=world.large, blocks=blocks)
            # also one drop too many, whose report could come late
            await engine.drop(worker=world.large, block_ids=[blocks[0].id])
            await engine.drop(worker=world.large, block_ids=[blocks[0].id])
        assert await engine.put(worker=world.large, blocks=blocks) == []
        # another block's life shows that heartbeats have passed meanwhile
        other = await mounts.add(world.source({"b": 20}))
        (marker,) = await blocks_of(engine, other)
        for _ in range(2):
            await engine.put(worker=world.large, blocks=[marker])
            await engine.drop(worker=world.large, block_ids=[marker.id])
        assert await holders(engine, path) == {frozenset({world.large})}

    async def test_room_that_was_dropped_can_be_filled_again(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": SMALL_CAPACITY}))
        blocks = await blocks_of(engine, path)
        await engine.put(worker=world.small, blocks=blocks)
        await engine.drop(worker=world.small, block_ids=[block.id for block in blocks])
        other = await mounts.add(world.source({"b": SMALL_CAPACITY}))
        assert await engine.put(worker=world.small, blocks=await blocks_of(engine, other)) == []
        assert await holders(engine, other) == {frozenset({world.small})}
