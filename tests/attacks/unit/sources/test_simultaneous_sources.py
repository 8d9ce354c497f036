"""Datasets that come at the same moment keep to the limits together, as if one had come after the other."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from tests.attacks.unit.sources.listed_store import set_limits
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.model.cache_engine import Source
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize, uncounted

COUNT, FILES, SIZE = 10, 100, 10
NAMES = [f"d{number}" for number in range(COUNT)]


def files(count: int) -> dict[str, int]:
    return {str(number): SIZE for number in range(count)}


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(sources={f"s3://{name}": files(FILES) for name in NAMES}, workers={"a": 10**9})


class CountTogether:
    """A `CheckSize` of the sources of an engine: no count ends before all of them have begun."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._begun = 0
        self._all = asyncio.Event()

    async def __call__(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize:
        assert namespace, "each is counted for a namespace"
        self._begun += 1
        if self._begun == COUNT:
            self._all.set()
        async with asyncio.timeout(10):
            await self._all.wait()
        files = self._engine.sources[source.uri]
        assert isinstance(files, Mapping)
        size = SourcesSize(files=len(files), bytes=sum(files.values()))
        LimitCount(limit, subject=source.uri, path=path).add(files=size.files, size=size.bytes)
        return size


@pytest.fixture
async def cluster(counted: bool, engine: MemoryEngine) -> AsyncIterator[Cluster]:
    """A cache that counts sources before it mounts them, or finds out by the listing how large they are."""
    check_size = CountTogether(engine) if counted else uncounted
    caches = MemoryCaches(engine, check_size=check_size)
    async with Cluster(engine=engine, nodes={"a": {}}, caches=lambda _: caches) as cluster:
        yield cluster
    await caches.end()


def in_state(cluster: Cluster, reason: str) -> list[str]:
    """Datasets of which the condition Ready has this reason."""
    return [name for name in NAMES if cluster.condition("Ready", name).get("reason") == reason]


def ready(cluster: Cluster) -> list[str]:
    return [name for name in NAMES if cluster.condition("Ready", name).get("status") == "True"]


@pytest.mark.parametrize(
    ("counted", "limit", "value"),
    [
        (True, "filesPerNamespace", 3 * FILES),
        (True, "files", 3 * FILES),
        (False, "bytesPerNamespace", str(3 * FILES * SIZE)),
    ],
)
@pytest.mark.threat("names-by-the-million")
async def test_of_ten_datasets_made_at_once_under_a_limit_that_three_fill_three_are_let_in(
    cluster: Cluster, engine: MemoryEngine, counted: bool, limit: str, value: object
) -> None:
    await cluster.create_cache(limits={limit: value})
    await cluster.create_keys()
    for name in NAMES:
        await cluster.create_dataset(name, source={"uri": f"s3://{name}"})
    await cluster.until(lambda: len(ready(cluster)) + len(in_state(cluster, "LimitExceeded")) == COUNT)
    assert len(ready(cluster)) == 3
    for name in in_state(cluster, "LimitExceeded"):
        assert f"spec.limits.{limit}" in cluster.condition("Ready", name)["message"]
    if counted:
        mounted = [path for path in await engine.mounts() if path.startswith("/datasets/")]
        assert len(mounted) == 3, "the cache learned names of sources that are refused"


@pytest.mark.threat("names-by-the-million")
async def test_two_sources_that_grow_at_once_take_the_room_that_is_left_for_one_only_once(
    engine: MemoryEngine,
) -> None:
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        pair = NAMES[:2]
        for name in pair:
            await cluster.create_dataset(name, source={"uri": f"s3://{name}"})
        await cluster.until(lambda: len(ready(cluster)) == 2)
        await set_limits(cluster, filesPerNamespace=3 * FILES)
        for name in pair:
            engine.sources[f"s3://{name}"] = files(2 * FILES)
        for name in pair:
            await cluster.annotate(name, refresh="1")

        def refused() -> list[str]:
            return [
                name
                for name in pair
                if cluster.condition("SourceReachable", name).get("reason") == "LimitExceeded"
            ]

        def sizes() -> list[int]:
            return sorted(cluster.status(name).get("totalFiles", 0) for name in pair)

        await cluster.until(lambda: len(refused()) == 1 and sizes() == [FILES, 2 * FILES])
        await cluster.until(lambda: len(ready(cluster)) == 2)
