"""What every engine must do: loading from the source, and capacity."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.contract.world import (
    MIB,
    SMALL_CAPACITY,
    Mounts,
    World,
    becomes_empty,
    blocks_of,
    files_of,
    holders,
    placed,
    used,
)

from tdcs.engine.protocol import (
    CapacityError,
    NoSuchWorkerError,
)


class LoadingContract:
    """Loading from the source, and capacity."""

    async def test_put_places_blocks_on_the_worker_that_was_named(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 2 * MIB + 5, "b/c": 100}))
        blocks = await blocks_of(engine, path)
        assert await engine.put(worker=world.small, blocks=blocks) == []
        assert await holders(engine, path) == {frozenset({world.small})}
        assert await used(engine, world.small) == 2 * MIB + 105
        assert await used(engine, world.large) == 0

    async def test_a_limited_put_asks_before_it_reads(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 2 * MIB + 5, "b": 100}))
        asked: list[int] = []

        async def pace(size: int) -> None:
            asked.append(size)
            assert await holders(engine, path) == {frozenset()} or len(asked) > 1

        assert await engine.put(worker=world.small, blocks=await blocks_of(engine, path), pace=pace) == []
        assert sum(asked) == 2 * MIB + 105
        assert await holders(engine, path) == {frozenset({world.small})}

    async def test_putting_twice_is_success_and_takes_no_more_room(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 5 * MIB}))
        stale = await blocks_of(engine, path)
        assert await engine.put(worker=world.small, blocks=stale) == []
        # both with what was listed before the first put, which would not fit twice, and with the truth
        assert await engine.put(worker=world.small, blocks=stale) == []
        assert await engine.put(worker=world.small, blocks=await blocks_of(engine, path)) == []
        assert await engine.put(worker=world.small, blocks=[*stale, *stale]) == []
        assert await used(engine, world.small) == 5 * MIB

    async def test_a_second_worker_holds_another_copy(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": MIB, "b": 10}))
        for worker in (world.small, world.large):
            assert await engine.put(worker=worker, blocks=await blocks_of(engine, path)) == []
        assert await holders(engine, path) == {frozenset({world.small, world.large})}

    async def test_what_does_not_fit_is_refused_before_anything_moves(
        self, world: World, mounts: Mounts
    ) -> None:
        engine = world.engine
        kept = await mounts.add(world.source({"kept": 4 * MIB}))
        assert await engine.put(worker=world.small, blocks=await blocks_of(engine, kept)) == []
        path = await mounts.add(world.source({"a": 3 * MIB, "b": 2 * MIB}))
        with pytest.raises(CapacityError, match=world.small) as refusal:
            await engine.put(worker=world.small, blocks=await blocks_of(engine, path))
        assert str(5 * MIB) in str(refusal.value)
        assert str(4 * MIB) in str(refusal.value)
        assert await holders(engine, kept) == {frozenset({world.small})}
        assert await holders(engine, path) == {frozenset()}

    async def test_a_worker_can_be_filled_to_the_last_byte(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": SMALL_CAPACITY}))
        assert await engine.put(worker=world.small, blocks=await blocks_of(engine, path)) == []
        assert await used(engine, world.small) == SMALL_CAPACITY
        assert await holders(engine, path) == {frozenset({world.small})}

    async def test_two_puts_at_once_do_not_push_each_other_out(self, world: World, mounts: Mounts) -> None:
        engine = world.engine
        paths = [await mounts.add(world.source({"a": 5 * MIB})) for _ in range(2)]
        lists = [await blocks_of(engine, path) for path in paths]
        outcomes = await asyncio.gather(
            *(engine.put(worker=world.small, blocks=blocks) for blocks in lists), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, CapacityError)]
        assert len(refused) == 1, outcomes
        held = sorted([await holders(engine, path) for path in paths], key=str)
        assert held == [{frozenset()}, {frozenset({world.small})}]

    async def test_a_worker_that_nobody_knows_is_refused_by_name(self, world: World, mounts: Mounts) -> None:
        path = await mounts.add(world.source({"a": 10}))
        blocks = await blocks_of(world.engine, path)
        with pytest.raises(NoSuchWorkerError, match="nowhere"):
            await world.engine.put(worker="nowhere", blocks=blocks)
        with pytest.raises(NoSuchWorkerError, match="nowhere"):
            await world.engine.drop(worker="nowhere", block_ids=[1])

    async def test_of_a_file_that_has_changed_since_the_listing_nothing_stays(
        self, world: World, mounts: Mounts
    ) -> None:
        engine = world.engine
        files = {"longer": 5000, "shorter": 5000, "gone": 5000, "parts": 2 * MIB + 5, "same": 5000}
        path = await mounts.add(source := world.source(files))
        listed = {file.path: file.blocks for file in await files_of(engine, path)}
        old = [block for name, blocks in listed.items() if name != "same" for block in blocks]
        await placed(engine, worker=world.large, blocks=listed["parts"][:1])  # a part of the old version
        world.write(source, "longer", 8000)
        world.write(source, "shorter", 3000)
        world.write(source, "parts", 2 * MIB + 6)
        world.remove(source, "gone")

        failures = await engine.put(worker=world.large, blocks=old)

        assert {failure.block_id for failure in failures} >= {block.id for block in old[:-1]} - {
            listed["parts"][0].id
        }
        told = {failure.block_id for failure in failures if failure.outdated}
        assert told >= {listed["longer"][0].id, listed["parts"][1].id}
        # Without a look at the source: what was met is known.
        after = {file.path: file for file in await files_of(engine, path)}
        assert (after["longer"].length, after["parts"].length) == (8000, 2 * MIB + 6)
        await becomes_empty(engine, world.large)

        renewed = await files_of(engine, path, refresh=True)
        assert {file.path for file in renewed} == {"longer", "shorter", "parts", "same"}
        blocks = [block for file in renewed for block in file.blocks]
        await placed(engine, worker=world.large, blocks=blocks)
        for block in blocks:
            copy = await engine.digest(block=block, worker=world.large)
            assert copy == await engine.digest(block=block)
