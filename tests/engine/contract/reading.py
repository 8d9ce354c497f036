"""What every engine must do: digests."""

from __future__ import annotations

import pytest
from tests.engine.contract.world import (
    MIB,
    Mounts,
    World,
    blocks_of,
    holders,
)

from tdcs.engine.protocol import (
    EngineError,
    NoSuchWorkerError,
)


class ReadingContract:
    """Digests."""

    async def test_a_copy_has_the_digest_of_its_source_until_it_is_damaged(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 2 * MIB + 5, "b/c": 100}))
        blocks = await blocks_of(engine, path)
        wanted = [await engine.digest(block=block) for block in blocks]
        assert len(set(wanted)) == len(blocks)
        assert await holders(engine, path) == {frozenset()}  # a look at the source leaves nothing behind
        await engine.put(worker=world.small, blocks=blocks)
        await engine.copy(source=world.small, worker=world.large, blocks=blocks)
        for worker in (world.small, world.large):
            assert [await engine.digest(block=block, worker=worker) for block in blocks] == wanted
        world.corrupt(world.large, blocks[1])
        assert await engine.digest(block=blocks[1], worker=world.large) != wanted[1]
        assert await engine.digest(block=blocks[1], worker=world.small) == wanted[1]
        assert await engine.digest(block=blocks[1]) == wanted[1]

    async def test_the_digest_of_a_copy_that_is_not_there_is_an_error_and_not_the_sources(
        self, world: World, mounts: Mounts
    ) -> None:
        path = await mounts.add(world.source({"a": 10}))
        (block,) = await blocks_of(world.engine, path)
        with pytest.raises(EngineError) as refusal:
            await world.engine.digest(block=block, worker=world.small)
        assert refusal.value.worker == world.small
        with pytest.raises(NoSuchWorkerError, match="nowhere"):
            await world.engine.digest(block=block, worker="nowhere")
