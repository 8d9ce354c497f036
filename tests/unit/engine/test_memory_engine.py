"""The in-memory engine keeps the contract, and lets a test say what the world does."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.engine.contract import BLOCK_SIZE, MIB, SMALL_CAPACITY, EngineContract, blocks_of, mounts
from tests.unit.engine.contract.world import ListingEngine

from tdcs.model.cache_engine import Block, Credentials, EngineUnavailableError, Source

__all__ = ["mounts"]

GOOD = Credentials(access_key_id="an-account", secret_access_key="a-good-secret")


class MemoryWorld:
    """Sources are dictionaries, workers are numbers."""

    large, small = "node-a", "node-b"

    def __init__(self) -> None:
        self.memory = MemoryEngine(
            sources={},
            workers={self.large: 1 << 30, self.small: SMALL_CAPACITY},
            block_size=BLOCK_SIZE,
        )
        self.engine: ListingEngine = self.memory
        self._buckets = (f"s3://bucket-{number}/data" for number in itertools.count())
        self._files: dict[str, dict[str, int]] = {}

    def source(self, files: Mapping[str, int]) -> Source:
        uri = next(self._buckets)
        self._files[uri] = dict(files)
        self.memory.sources[uri] = lambda: self._files[uri]
        self.memory.credentials[uri] = GOOD
        return Source(uri=uri, credentials=GOOD)

    def write(self, source: Source, name: str, length: int) -> None:
        self._files[source.uri][name] = length

    def remove(self, source: Source, name: str) -> None:
        del self._files[source.uri][name]

    def missing_source(self) -> Source:
        return Source(uri="s3://nowhere", credentials=GOOD)

    def refused(self, source: Source) -> Source:
        wrong = Credentials(access_key_id="an-account", secret_access_key="a-wrong-secret")
        return Source(uri=source.uri, options=source.options, credentials=wrong)

    async def place(self, *, worker: str, blocks: Sequence[Block]) -> None:
        self.memory.cache(worker=worker, blocks=blocks)

    async def revive(self, worker: str) -> None:
        self.memory.set_worker(name=worker)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


class TestMemoryEngine(EngineContract):
    """The shared promises."""


async def test_it_announces_what_it_does_so_that_a_test_can_delay_or_fail_it() -> None:
    seen: list[Operation] = []

    async def before(operation: Operation) -> None:
        seen.append(operation)

    engine = MemoryEngine(sources={"s3://b": {"f": 3}}, workers={"n": 10}, before=before)
    await engine.mount(path="/d", source=Source(uri="s3://b"))
    await blocks_of(engine, "/d")
    assert [operation.name for operation in seen] == ["mount", "ask_source", "files"]


async def test_a_lost_worker_holds_nothing_until_it_comes_back() -> None:
    engine = MemoryEngine(sources={"s3://b": {"f": 3}}, workers={"n": 10 * MIB})
    await engine.mount(path="/d", source=Source(uri="s3://b"))
    engine.cache(worker="n", blocks=await blocks_of(engine, "/d"))
    engine.set_worker(name="n", live=False)
    assert {block.workers for block in await blocks_of(engine, "/d")} == {frozenset()}
    engine.set_worker(name="n", live=True)
    assert {block.workers for block in await blocks_of(engine, "/d")} == {frozenset({"n"})}


async def test_an_engine_that_is_away_says_so_and_that_trying_again_may_help() -> None:
    engine = MemoryEngine(sources={}, workers={})
    engine.available = False
    with pytest.raises(EngineUnavailableError) as refusal:
        await engine.workers()
    assert refusal.value.retryable
