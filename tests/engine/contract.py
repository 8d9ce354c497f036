"""What every engine must do: one suite, run on the in-memory engine (unit tier) and on a real Alluxio (engine tier).

A test class inherits from ``EngineContract`` and gives a fixture ``world``. The tests say what they need by ``World``
alone, and clean up their mounts through it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pytest
from tests.support.waiting import eventually_async

from tdcs.engine.protocol import (
    Block,
    CachedFile,
    CapacityError,
    Engine,
    EngineError,
    MountConflictError,
    NoSuchPathError,
    NoSuchWorkerError,
    Source,
    SourceError,
)

MIB = 1 << 20
BLOCK_SIZE = MIB
"""The block size that a world must configure, so that small files have several blocks."""

SMALL_CAPACITY = 8 * MIB
"""What the world's small worker may hold; the large one has room for all tests."""


class World(Protocol):
    """An engine, its workers and the sources that it reads."""

    engine: Engine
    large: str
    small: str

    def source(self, files: Mapping[str, int]) -> Source:
        """A source of its own with these files (path to length) and credentials that can read it."""

    def write(self, source: Source, name: str, length: int) -> None:
        """Add or replace a file at a source."""

    def remove(self, source: Source, name: str) -> None:
        """Delete a file at a source."""

    def missing_source(self) -> Source:
        """A bucket that does not exist, with good credentials."""

    def refused(self, source: Source) -> Source:
        """The same source with a secret that is wrong."""

    def corrupt(self, worker: str, block: Block) -> None:
        """Change a byte of a worker's copy, behind the engine's back."""

    async def revive(self, worker: str) -> None:
        """Start a worker's process again."""


@dataclass
class Mounts:
    """Mounts of one test: each at a path of its own."""

    engine: Engine

    async def add(self, source: Source) -> str:
        """Mount at a new path."""
        path = self.new_path()
        await self.engine.mount(path=path, source=source)
        return path

    def new_path(self) -> str:
        """A path that nobody uses."""
        return f"/datasets/{uuid.uuid4().hex[:16]}"


async def files_of(engine: Engine, path: str, *, refresh: bool = False) -> list[CachedFile]:
    """All pages of a listing as one list."""
    return [file async for page in engine.files(path=path, refresh=refresh) for file in page]


async def blocks_of(engine: Engine, path: str) -> list[Block]:
    """All blocks of a listing."""
    return [block for file in await files_of(engine, path) for block in file.blocks]


async def used(engine: Engine, worker: str) -> int:
    """Bytes that a worker reports as used."""
    return next(info.used_bytes for info in await engine.workers() if info.name == worker)


async def holders(engine: Engine, path: str) -> set[frozenset[str]]:
    """The different sets of workers that hold the blocks under a path."""
    return {block.workers for block in await blocks_of(engine, path)}


@pytest.fixture
async def mounts(world: World) -> AsyncIterator[Mounts]:
    """The test's own mounts. All mounts of the engine are gone when the test ends, and with them their blocks."""
    yield Mounts(world.engine)
    for path in await world.engine.mounts():
        await world.engine.unmount(path=path)
    for info in await world.engine.workers():
        if info.live:
            await becomes_empty(world.engine, info.name)


async def becomes_empty(engine: Engine, worker: str) -> None:
    """Wait until a worker reports that it holds nothing."""

    async def empty() -> bool:
        return await used(engine, worker) == 0

    condition: Callable[[], bool | Awaitable[bool]] = empty
    await eventually_async(condition, deadline=20, describe=f"worker {worker} still holds blocks")


class EngineContract:
    """The promises of ``tdcs.engine.protocol``."""

    async def test_mounting_the_same_source_twice_is_success(self, world: World, mounts: Mounts) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        await world.engine.mount(path=path, source=source)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_a_trailing_slash_makes_no_other_source(self, world: World, mounts: Mounts) -> None:
        source = world.source({"a": 10})
        path = await mounts.add(source)
        spelled = Source(uri=f"{source.uri}/", options=source.options, credentials=source.credentials)
        await world.engine.mount(path=path, source=spelled)
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_unmounting_what_is_not_mounted_is_success(self, world: World, mounts: Mounts) -> None:
        await world.engine.unmount(path=mounts.new_path())

    async def test_a_path_or_a_source_is_mounted_once(self, world: World, mounts: Mounts) -> None:
        source = world.source({"deep/a": 10, "deep/b": 10})
        below = Source(uri=f"{source.uri}/deep", options=source.options, credentials=source.credentials)
        path = await mounts.add(source)
        for taken, wanted in (
            (path, world.source({"b": 1})),
            (f"{path}/below", world.source({"b": 1})),
            (mounts.new_path(), source),
            (mounts.new_path(), below),
        ):
            with pytest.raises(MountConflictError, match=path) as refusal:
                await world.engine.mount(path=taken, source=wanted)
            assert refusal.value.path == taken
        assert dict(await world.engine.mounts()) == {path: source.uri}

    async def test_a_missing_bucket_is_a_clear_error_and_leaves_no_mount(
        self, world: World, mounts: Mounts
    ) -> None:
        source, path = world.missing_source(), mounts.new_path()
        with pytest.raises(SourceError, match="no such bucket") as refusal:
            await world.engine.mount(path=path, source=source)
        assert source.uri in str(refusal.value)
        assert path in str(refusal.value)
        _no_secret(source, refusal.value)
        assert dict(await world.engine.mounts()) == {}

    async def test_wrong_credentials_are_a_clear_error_without_the_secret(
        self, world: World, mounts: Mounts
    ) -> None:
        source, path = world.refused(world.source({"a": 10})), mounts.new_path()
        with pytest.raises(SourceError, match="refused the credentials") as refusal:
            await world.engine.mount(path=path, source=source)
        assert "accessKeyId" in str(refusal.value)
        _no_secret(source, refusal.value)
        assert dict(await world.engine.mounts()) == {}

    async def test_a_listing_names_every_file_with_blocks_that_add_up(
        self, world: World, mounts: Mounts
    ) -> None:
        wanted = {"b/c/deep": 5, "a": 3 * MIB + 1, "b-2": MIB, "b/x": 1, "empty": 0, "a b ü": 7}
        path = await mounts.add(world.source(wanted))
        found = await files_of(world.engine, path)
        assert {file.path: file.length for file in found} == wanted
        assert [file.path for file in found] == sorted(wanted, key=lambda name: name.split("/"))
        for file in found:
            assert sum(block.length for block in file.blocks) == file.length
            offsets = [block.offset for block in file.blocks]
            assert offsets == [index * BLOCK_SIZE for index in range(len(offsets))]
        blocks = [block for file in found for block in file.blocks]
        assert len({block.id for block in blocks}) == len(blocks) == 4 + 1 + 1 + 1 + 1
        assert {block.workers for block in blocks} == {frozenset()}

    async def test_a_long_listing_comes_in_pages(self, world: World, mounts: Mounts) -> None:
        wanted = {f"d{index % 7}/f{index:05}": 1 for index in range(2500)}
        path = await mounts.add(world.source(wanted))
        pages = [page async for page in world.engine.files(path=path)]
        assert len(pages) > 1
        names = [file.path for page in pages for file in page]
        assert names == sorted(wanted)

    async def test_only_a_refresh_sees_what_changed_at_the_source(self, world: World, mounts: Mounts) -> None:
        source = world.source({"kept": 10, "grown": 10, "deleted": 10})
        path = await mounts.add(source)
        before = {file.path: file for file in await files_of(world.engine, path)}
        await world.engine.put(worker=world.large, blocks=await blocks_of(world.engine, path))
        world.write(source, "grown", 25)
        world.write(source, "new/file", 5)
        world.remove(source, "deleted")
        assert {file.path for file in await files_of(world.engine, path)} == set(before)
        after = {file.path: file for file in await files_of(world.engine, path, refresh=True)}
        assert {name: file.length for name, file in after.items()} == {"kept": 10, "grown": 25, "new/file": 5}
        assert after["kept"].blocks[0].id == before["kept"].blocks[0].id
        assert after["kept"].blocks[0].workers == {world.large}
        assert after["grown"].blocks[0].id != before["grown"].blocks[0].id
        assert after["grown"].blocks[0].workers == frozenset()

    async def test_a_path_without_a_mount_cannot_be_listed_or_pinned(
        self, world: World, mounts: Mounts
    ) -> None:
        path = mounts.new_path()
        with pytest.raises(NoSuchPathError, match=path):
            await files_of(world.engine, path)
        with pytest.raises(NoSuchPathError, match=path):
            await world.engine.pin(path=path, pinned=True)

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

    async def test_room_that_was_dropped_can_be_filled_again(self, world: World, mounts: Mounts) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": SMALL_CAPACITY}))
        blocks = await blocks_of(engine, path)
        await engine.put(worker=world.small, blocks=blocks)
        await engine.drop(worker=world.small, block_ids=[block.id for block in blocks])
        other = await mounts.add(world.source({"b": SMALL_CAPACITY}))
        assert await engine.put(worker=world.small, blocks=await blocks_of(engine, other)) == []
        assert await holders(engine, other) == {frozenset({world.small})}

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

    async def test_a_retired_worker_counts_no_longer_until_it_is_started_again(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, path = world.engine, await mounts.add(world.source({"a": 10, "b": 20}))
        blocks = await blocks_of(engine, path)
        await engine.put(worker=world.small, blocks=blocks)
        await engine.copy(source=world.small, worker=world.large, blocks=blocks[:1])
        for _ in range(2):  # the second time it is so already
            await engine.retire(worker=world.small)
            held = {block.id: block.workers for block in await blocks_of(engine, path)}
            assert held == {blocks[0].id: {world.large}, blocks[1].id: frozenset()}
            assert [info.name for info in await engine.workers() if info.live] == [world.large]
        with pytest.raises(NoSuchWorkerError, match=world.small):
            await engine.put(worker=world.small, blocks=blocks)
        with pytest.raises(NoSuchWorkerError, match="nowhere"):
            await engine.retire(worker="nowhere")
        await world.revive(world.small)

        async def back() -> bool:
            held = {block.id: block.workers for block in await blocks_of(engine, path)}
            return held == {blocks[0].id: {world.large, world.small}, blocks[1].id: {world.small}}

        condition: Callable[[], bool | Awaitable[bool]] = back
        await eventually_async(condition, deadline=90)

    async def test_unmount_frees_the_room_and_leaves_the_source_alone(
        self, world: World, mounts: Mounts
    ) -> None:
        engine, source = world.engine, world.source({"a": 2 * MIB, "b/c": 10})
        path = await mounts.add(source)
        await engine.pin(path=path, pinned=True)
        for worker in (world.small, world.large):
            await engine.put(worker=worker, blocks=await blocks_of(engine, path))
        await engine.unmount(path=path)
        assert dict(await engine.mounts()) == {}
        for worker in (world.small, world.large):
            await becomes_empty(engine, worker)
        again = await mounts.add(source)
        assert {file.path: file.length for file in await files_of(engine, again)} == {"a": 2 * MIB, "b/c": 10}
        assert await holders(engine, again) == {frozenset()}

    async def test_settings_of_a_path_are_taken(self, world: World, mounts: Mounts) -> None:
        path = await mounts.add(world.source({"a": 10}))
        for value in ("NO_CACHE", "CACHE"):
            await world.engine.set_path_properties(
                path=path, properties={"alluxio.user.file.readtype.default": value}
            )

    async def test_workers_are_listed_with_their_capacity(self, world: World, mounts: Mounts) -> None:
        found = await world.engine.workers()
        assert [info.name for info in found] == sorted([world.large, world.small])
        assert all(info.live and ":" in info.address for info in found)
        small = next(info for info in found if info.name == world.small)
        assert small.capacity_bytes == SMALL_CAPACITY

    async def test_closing_twice_is_fine(self, world: World) -> None:
        await world.engine.close()
        await world.engine.close()


def _no_secret(source: Source, error: SourceError) -> None:
    assert source.credentials is not None
    for secret in source.credentials.secrets:
        for text in (str(error), repr(error), error.reason, error.attempted, error.remedy, repr(source)):
            assert secret not in text
