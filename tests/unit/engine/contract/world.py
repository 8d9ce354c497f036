"""What the contract's tests are given: an engine, its workers, sources, mounts of their own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import pytest

from tdcs.model.cache_engine import Engine, Source

SMALL_CAPACITY = 8 << 20
"""What the world's small worker may hold."""


class World(Protocol):
    """An engine, its workers and the sources that it reads."""

    engine: Engine
    large: str
    small: str

    def source(self, below: str = "") -> Source:
        """A bucket with files, or a folder of it, with credentials that can read it."""

    def refused(self, source: Source) -> Source:
        """The same source with a secret that is wrong."""

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


@pytest.fixture
async def mounts(world: World) -> AsyncIterator[Mounts]:
    """The test's own mounts. The engine has none when the test ends."""
    yield Mounts(world.engine)
    for path in await world.engine.mounts():
        await world.engine.unmount(path=path)
    assert dict(await world.engine.mounts()) == {}
