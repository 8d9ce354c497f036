"""What the contract's tests are given: an engine, its workers, sources, mounts of their own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest
from tests.support.waiting import eventually_async

from tdcs.model.cache_engine import (
    Block,
    CachedFile,
    Engine,
    Source,
)

MIB = 1 << 20
BLOCK_SIZE = MIB
"""The block size that a world must configure, so that small files have several blocks."""

SMALL_CAPACITY = 8 * MIB
"""What the world's small worker may hold; the large one has room for all tests."""


class ListingEngine(Engine, Protocol):
    """An engine that lists what it has mounted."""

    def files(self, *, path: str, refresh: bool = False) -> AsyncIterator[list[CachedFile]]:
        """All files under a mounted path, in pages, ordered by path, folder by folder."""
        ...


class World(Protocol):
    """An engine, its workers and the sources that it reads."""

    engine: ListingEngine
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

    async def place(self, *, worker: str, blocks: Sequence[Block]) -> None:
        """Let a worker hold blocks, as when a job has read them there."""

    async def revive(self, worker: str) -> None:
        """Start a worker's process again."""


@dataclass
class Mounts:
    """Mounts of one test: each at a path of its own."""

    engine: ListingEngine

    async def add(self, source: Source) -> str:
        """Mount at a new path."""
        path = self.new_path()
        await self.engine.mount(path=path, source=source)
        return path

    def new_path(self) -> str:
        """A path that nobody uses."""
        return f"/datasets/{uuid.uuid4().hex[:16]}"


async def files_of(engine: ListingEngine, path: str, *, refresh: bool = False) -> list[CachedFile]:
    """All pages of a listing as one list."""
    return [file async for page in engine.files(path=path, refresh=refresh) for file in page]


async def blocks_of(engine: ListingEngine, path: str) -> list[Block]:
    """All blocks of a listing."""
    return [block for file in await files_of(engine, path) for block in file.blocks]


async def used(engine: ListingEngine, worker: str) -> int:
    """Bytes that a worker reports as used."""
    return next(info.used_bytes for info in await engine.workers() if info.name == worker)


async def holders(engine: ListingEngine, path: str) -> set[frozenset[str]]:
    """The different sets of workers that hold the blocks under a path."""
    return {block.workers for block in await blocks_of(engine, path)}


@pytest.fixture
async def mounts(world: World) -> AsyncIterator[Mounts]:
    """The test's own mounts. The engine has none, and no blocks of any, when the test begins and when it ends."""
    await _clear(world.engine)  # of tests without this fixture
    yield Mounts(world.engine)
    await _clear(world.engine)


async def _clear(engine: ListingEngine) -> None:
    for path in await engine.mounts():
        await engine.unmount(path=path)
    for info in await engine.workers():
        if info.live:
            await becomes_empty(engine, info.name)


async def becomes_empty(engine: ListingEngine, worker: str) -> None:
    """Wait until a worker reports that it holds nothing."""

    async def empty() -> bool:
        return await used(engine, worker) == 0

    condition: Callable[[], bool | Awaitable[bool]] = empty
    await eventually_async(condition, deadline=90, describe=f"worker {worker} still holds blocks")
