"""The in-memory engine keeps the contract, and lets a test say what the world does."""

from __future__ import annotations

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.engine.contract import SMALL_CAPACITY, EngineContract, mounts

from tdcs.model.cache_engine import Credentials, Engine, EngineUnavailableError, NoSuchPathError, Source

__all__ = ["mounts"]

URI = "s3://bucket/data"
GOOD = Credentials(access_key_id="an-account", secret_access_key="a-good-secret")
BAD = Credentials(access_key_id="an-account", secret_access_key="a-wrong-secret")


class MemoryWorld:
    """Sources are dictionaries, workers are numbers."""

    large, small = "node-a", "node-b"

    def __init__(self) -> None:
        self.memory = MemoryEngine(
            sources={URI: {"a": 10, "deep/b": 20}, f"{URI}/deep": {"b": 20}},
            workers={self.large: 1 << 30, self.small: SMALL_CAPACITY},
            credentials={URI: GOOD, f"{URI}/deep": GOOD},
        )
        self.engine: Engine = self.memory

    def source(self, below: str = "") -> Source:
        return Source(uri=f"{URI}/{below}".rstrip("/"), credentials=GOOD)

    def refused(self, source: Source) -> Source:
        return Source(uri=source.uri, options=source.options, credentials=BAD)

    async def revive(self, worker: str) -> None:
        self.memory.set_worker(name=worker)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


class TestMemoryEngine(EngineContract):
    """The shared promises."""


async def listed(engine: MemoryEngine, path: str, *, refresh: bool = False) -> dict[bytes, tuple[int, bytes]]:
    pages = [page async for page in engine.files(path=path, refresh=refresh)]
    return {name: (length, tag) for page in pages for name, length, tag in page}


async def test_it_announces_what_it_does_so_that_a_test_can_delay_or_fail_it() -> None:
    seen: list[Operation] = []

    async def before(operation: Operation) -> None:
        seen.append(operation)

    engine = MemoryEngine(sources={"s3://b": {"f": 3}}, workers={"n": 10}, before=before)
    await engine.mount(path="/d", source=Source(uri="s3://b"))
    await listed(engine, "/d")
    assert [operation.name for operation in seen] == ["mount", "ask_source", "files"]


async def test_only_a_refresh_sees_what_changed_at_the_source() -> None:
    engine = MemoryEngine(sources={"s3://b": {"kept": 3, "grown": 4, "gone": 5}}, workers={})
    await engine.mount(path="/d", source=Source(uri="s3://b"))
    before = await listed(engine, "/d")
    engine.sources["s3://b"] = {"kept": 3, "grown": 9}
    assert await listed(engine, "/d") == before
    after = await listed(engine, "/d", refresh=True)
    assert after.keys() == {b"kept", b"grown"}
    assert after[b"kept"] == before[b"kept"]
    assert after[b"grown"][1] != before[b"grown"][1], "another tag"
    with pytest.raises(NoSuchPathError, match="/e"):
        await listed(engine, "/e")


async def test_an_engine_that_is_away_says_so_and_that_trying_again_may_help() -> None:
    engine = MemoryEngine(sources={}, workers={})
    engine.available = False
    with pytest.raises(EngineUnavailableError) as refusal:
        await engine.workers()
    assert refusal.value.retryable
