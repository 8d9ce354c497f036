"""A source that grows beyond a limit after it was mounted: the cache does not learn the names of what is too much."""

from collections.abc import AsyncIterator, Mapping

import pytest
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.model.cache_engine import Source
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize

LIMIT, SIZE = 100, 10
URI = "s3://pictures"


class CountingEngine(MemoryEngine):
    """Remembers of each listing of a source how many files that had, and counts them as the operator does.

    Attributes:
        learned: files of the source at each listing that asks it.
        counts: how often it was counted.
    """

    def __init__(self) -> None:
        super().__init__(sources={URI: files(LIMIT)}, workers={"a": 10**9})
        self.learned: list[int] = []
        self.counts = 0

    def files(self, *, path: str, refresh: bool = False) -> AsyncIterator[list[tuple[bytes, int, bytes]]]:
        if refresh:
            self.learned.append(self.now())
        return super().files(path=path, refresh=refresh)

    def now(self) -> int:
        files = self.sources[URI]
        assert isinstance(files, Mapping)
        return len(files)

    async def count(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize:
        assert namespace == "n", "it is counted for a namespace"
        self.counts += 1
        LimitCount(limit, subject=source.uri, path=path).add(files=self.now(), size=self.now() * SIZE)
        return SourcesSize(files=self.now(), bytes=self.now() * SIZE)


def files(count: int) -> dict[str, int]:
    return {str(number): SIZE for number in range(count)}


@pytest.fixture
def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
async def cluster(engine: CountingEngine) -> AsyncIterator[Cluster]:
    """A Dataset that is as large as may be, listed once, and counted once for that."""
    caches = MemoryCaches(engine, check_size=engine.count)
    async with Cluster(engine=engine, nodes={"a": {}}, caches=lambda _: caches) as cluster:
        await cluster.create_cache(limits={"files": LIMIT})
        await cluster.create_keys()
        await cluster.create_dataset(source={"uri": URI})
        await cluster.until_state("Ready")
        assert engine.counts == 1
        assert engine.learned == [LIMIT]
        yield cluster
    await caches.end()


async def refused(cluster: Cluster, engine: CountingEngine, value: str) -> None:
    """Have the source, which has one file too many, looked at; it stays as it was listed before."""
    engine.sources[URI] = files(LIMIT + 1)
    await cluster.annotate("pictures", refresh=value)
    await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "LimitExceeded")
    assert "spec.limits.files" in cluster.condition("SourceReachable")["message"]
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.status()["totalFiles"] == LIMIT


@pytest.mark.threat("names-by-the-million", "folder-names-by-the-million")
async def test_a_source_that_has_grown_is_counted_before_the_cache_lists_it_again(
    cluster: Cluster, engine: CountingEngine
) -> None:
    await refused(cluster, engine, "1")
    assert engine.learned == [LIMIT]
    engine.sources[URI] = files(LIMIT - 1)
    await cluster.annotate("pictures", refresh="2")
    await cluster.until(lambda: cluster.status()["totalFiles"] == LIMIT - 1)
    assert engine.learned == [LIMIT, LIMIT - 1]


async def test_it_is_counted_by_an_operator_that_did_not_mount_it_too(
    cluster: Cluster, engine: CountingEngine
) -> None:
    await cluster.stop()
    await cluster.start()
    await refused(cluster, engine, "1")
    assert max(engine.learned) == LIMIT
