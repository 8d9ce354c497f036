"""A cache that hangs is a view that says so, and delays no other one."""

import asyncio

import pytest
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine, Operation
from tests.support.waiting import eventually_async

from tdcs.control import cache_observer as module
from tdcs.control.cache_observer import CacheObserver
from tdcs.control.cache_registry import Cache
from tdcs.model.cache_engine import EngineUnavailableError


class Two(MemoryCaches):
    """The cache `hangs` answers nothing."""

    def __init__(self, engine: MemoryEngine, second: MemoryEngine) -> None:
        super().__init__(engine)
        self._second = MemoryCaches(second)

    def get(self, *, cluster: str) -> Cache:
        return super().get(cluster=cluster) if cluster == "hangs" else self._second.get(cluster=cluster)


async def test_a_hung_cache_is_said_to_be_away_and_the_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(operation: Operation) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    hung = MemoryEngine(sources={}, workers={"a": 1}, before=hang)
    well = MemoryEngine(sources={}, workers={"b": 1})
    changed: list[str] = []
    observer = CacheObserver(
        caches=Two(hung, well),
        poll_seconds=0.05,
        on_cache=lambda cluster, paths: changed.append(cluster),
        on_agents=lambda cluster, paths: None,
    )
    assert not observer.view("hangs").answered
    await eventually_async(lambda: observer.view("works").answered, deadline=30)
    assert [worker.name for worker in observer.view("works").workers] == ["b"]
    await eventually_async(lambda: observer.view("hangs").failure is not None, deadline=30)
    assert "has not answered within" in str(observer.view("hangs").failure)
    hung.before = None
    await eventually_async(lambda: observer.view("hangs").failure is None, deadline=30)
    assert observer.view("hangs").outages == 1
    assert changed.count("hangs") == 2
    await observer.close()


async def test_readers_learn_of_the_agents_and_of_what_is_mounted() -> None:
    engine = MemoryEngine(sources={}, workers={"a": 1, "b": 1})
    observer = CacheObserver(
        caches=MemoryCaches(engine),
        poll_seconds=0.01,
        on_cache=lambda cluster, paths: None,
        on_agents=lambda cluster, paths: None,
    )
    assert observer.known_agents("default") == ({}, None)
    await observer.look("default")
    await eventually_async(lambda: len(observer.known_agents("default").states) == 2, deadline=30)
    assert observer.known_agents("default").mounts == {}
    await observer.close()


async def test_looks_at_a_master_never_overlap_and_a_cluster_that_is_gone_is_asked_no_more() -> None:
    under_way, most, count = 0, 0, 0

    async def slow(operation: Operation) -> None:
        nonlocal under_way, most, count
        under_way, count = under_way + 1, count + 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1

    engine = MemoryEngine(sources={}, workers={"a": 1}, before=slow)
    observer = CacheObserver(
        caches=MemoryCaches(engine),
        poll_seconds=0.01,
        on_cache=lambda cluster, paths: None,
        on_agents=lambda cluster, paths: None,
    )
    for _ in range(5):
        await observer.look("default")
    assert most == 1
    observer.drop("default")
    before = count
    await asyncio.sleep(0.5)
    assert count <= before + 3  # a look that was under way asks for three things
    await observer.close()


async def test_an_agent_that_is_gone_for_good_is_forgotten_after_a_while() -> None:
    now = 0.0
    engine = MemoryEngine(sources={}, workers={"a": 1, "b": 1})
    caches = MemoryCaches(engine)
    observer = CacheObserver(
        caches=caches,
        poll_seconds=0.01,
        on_cache=lambda cluster, paths: None,
        on_agents=lambda cluster, paths: None,
        clock=lambda: now,
    )
    observer.view("default")
    await eventually_async(lambda: set(observer.view("default").agents) == {"a", "b"}, deadline=60)
    engine.set_worker(name="b", live=False)
    await eventually_async(lambda: set(observer.view("default").away) == {"b"}, deadline=60)
    generation, now = observer.view("default").generation, module.AWAY_SECONDS + 1
    await eventually_async(lambda: not observer.view("default").away, deadline=60)
    assert observer.view("default").generation > generation
    assert set(observer.view("default").agents) == {"a"}
    await observer.close()


async def test_workers_are_waited_for_from_the_first_answer_of_their_master_on() -> None:
    """After all pods of a cache were replaced, its master may answer later than workers are waited for."""
    now = 0.0

    async def refuse(operation: Operation) -> None:
        raise EngineUnavailableError(
            attempted="ask the master", reason="it starts", remedy="Wait", retryable=True
        )

    engine = MemoryEngine(sources={}, workers={"a": 1}, before=refuse)
    observer = CacheObserver(
        caches=MemoryCaches(engine),
        poll_seconds=60,
        on_cache=lambda cluster, paths: None,
        on_agents=lambda cluster, paths: None,
        clock=lambda: now,
    )
    await observer.look("default")
    assert observer.view("default").failure is not None
    assert observer.view("default").since == 0.0

    now, engine.before = 90.0, None
    await observer.look("default")
    assert observer.view("default").failure is None
    assert observer.view("default").since == 90.0

    now, engine.before = 200.0, refuse  # later outages do not begin it again: what was there is known by then
    await observer.look("default")
    now, engine.before = 300.0, None
    await observer.look("default")
    assert observer.view("default").outages == 2
    assert observer.view("default").since == 90.0
    await observer.close()
