"""A load goes on whatever else happens to its mount: checks of the source, other wants, twins, labels of nodes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.caches import MemoryCaches
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.control.context import WorkKey
from tdcs.model.agent_state import ALL_SLOTS, Assignment
from tdcs.model.cache_engine import EngineError
from tdcs.model.kube_resources import DATASETS, NODES, PRELOADS

MB = 1_000_000
BIG = 50 * MB


class Held:
    """Holds back the placing of blocks until it is let go, and counts what the engine was asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.go = asyncio.Event()
        self.calls: Counter[str] = Counter()
        cluster.engine.before = self._before

    async def _before(self, operation: Operation) -> None:
        placing = operation.name == "put" and operation.length
        self.calls[f"block of {operation.length}" if placing else operation.name] += 1
        if operation.length == BIG and placing:
            await self.go.wait()

    @property
    def big(self) -> int:
        """How often the big block was begun."""
        return self.calls[f"block of {BIG}"]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(sources={"s3://pictures": {"big": BIG}}, workers=dict.fromkeys("abcd", 1000 * MB))
    nodes = {name: {"zone": name} for name in "abcd"}
    async with Cluster(engine=engine, nodes=nodes) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


@pytest.fixture
def held(cluster: Cluster) -> Held:
    return Held(cluster)


async def test_a_look_at_the_source_on_demand_is_answered_while_a_large_block_is_on_its_way(
    cluster: Cluster, held: Held
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1}, source={"checkInterval": "0s"})
    await cluster.until(lambda: held.big)
    for number in range(3):
        await cluster.annotate("pictures", refresh=str(number))
        await cluster.until(lambda refresh=str(number): cluster.status().get("refreshed") == refresh)  # type: ignore[misc]
    assert cluster.status()["state"] == "Loading"
    held.go.set()
    await cluster.until_state("Ready")
    assert held.big == 1


@pytest.mark.failure_mode("source-changes-during-load")
async def test_the_source_is_checked_during_a_load_and_new_blocks_follow_the_one_on_its_way(
    cluster: Cluster, held: Held
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1}, source={"checkInterval": "1s"})
    await cluster.until(lambda: held.big)
    cluster.engine.sources["s3://pictures"] = {"big": BIG, "new": MB}
    await cluster.until(lambda: cluster.status().get("totalFiles") == 2)
    assert cluster.status()["state"] == "Loading"
    held.go.set()
    await cluster.until_state("Ready")
    assert sum(cluster.held().values()) == BIG + MB
    assert held.big == 1


async def test_a_file_that_is_replaced_at_the_source_is_loaded_as_it_is_now(
    cluster: Cluster, held: Held
) -> None:
    cluster.engine.sources["s3://pictures"] = {"big": BIG, "small": MB}
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until(lambda: held.big)
    cluster.engine.sources["s3://pictures"] = {"big": BIG, "small": 2 * MB}
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("totalBytes") == BIG + 2 * MB)
    held.go.set()
    await cluster.until(lambda: sum(cluster.held().values()) == BIG + 2 * MB)
    await cluster.until_state("Ready")
    assert held.big == 1


async def test_labels_that_nobody_selects_by_neither_stop_a_load_nor_list_anything(
    cluster: Cluster, held: Held
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1, "nodeSelector": {"zone": "a"}})
    await cluster.until(lambda: held.big)
    listed = held.calls["files"]
    for labels in ({"zone": "d", "x": "1"}, {"zone": "d", "x": "2"}, {"zone": "a"}):
        cluster.server.store(NODES)["", "d"]["metadata"]["labels"] = labels
        await cluster.datasets.reconcile(WorkKey(DATASETS, "n", "pictures"))
    held.go.set()
    await cluster.until_state("Ready")
    assert held.calls["files"] == listed
    assert held.big == 1


async def test_a_preload_of_other_nodes_begins_next_to_a_load_and_completes_before_it(
    cluster: Cluster, held: Held
) -> None:
    cluster.engine.sources["s3://pictures"] = {"big": BIG, "val/1": MB}
    await cluster.create_dataset(preload={"paths": ["big"]}, placement={"nodeCount": 1})
    await cluster.until(lambda: held.big)
    await cluster.create_preload(paths=["val"], nodes=["c"])
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
    assert cluster.status()["state"] == "Loading"
    await cluster.server.delete(PRELOADS, name="warm", namespace="n")
    held.go.set()
    await cluster.until_state("Ready")
    assert held.big == 1


async def test_another_bandwidth_holds_for_the_load_under_way(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {f"{number:03d}": MB // 100 for number in range(200)}
    await cluster.create_dataset(preload={"bandwidth": "10k"}, placement={"nodeCount": 1})
    await cluster.until(lambda: cluster.status().get("loadedBytes", 0) > 0)
    await cluster.change(DATASETS, "pictures", preload={"bandwidth": "1G"})
    await cluster.until_state("Ready")  # within a minute; the first limit makes it 200 seconds
    assert cluster.engine.source_bytes_read == 2 * MB


async def test_a_twin_that_meets_an_error_does_not_disturb_a_load(cluster: Cluster, held: Held) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until(lambda: held.big)
    before, failed = cluster.engine.before, asyncio.Event()
    assert before is not None

    async def fail(operation: Operation) -> None:
        await before(operation)
        if operation.name == "workers" and not failed.is_set():
            failed.set()
            raise EngineError(attempted="ask for the workers", reason="it is broken", remedy="Wait")

    cluster.engine.before = fail
    await cluster.create_dataset("twin", placement={"nodeCount": 1})
    await cluster.until(failed.is_set)
    held.go.set()
    await cluster.until_state("Ready")
    await cluster.until_state("Ready", "twin")
    assert held.big == 1


async def test_reads_may_fill_what_is_free_of_each_cache_while_no_dataset_preloads_the_source(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset(preload={"enabled": False})
    await cluster.until_state("Ready")
    path = cluster.status()["mountPath"]

    def fill() -> dict[str, int]:
        return {node: assignment.fill_bytes for node, assignment in cluster.agents.assigned(path).items()}

    def capacities() -> dict[str, int]:
        return {node: state.capacity_bytes for node, state in cluster.agents.states().items()}

    await cluster.until(lambda: fill().keys() == capacities().keys())
    assert all(0.8 * size < fill()[node] <= size for node, size in capacities().items())

    cluster.engine.sources["s3://large"] = {"file": capacities()["a"] // 2}
    placement = {"nodeCount": 1, "nodeSelector": {"zone": "a"}}
    await cluster.create_dataset("large", source={"uri": "s3://large"}, placement=placement)
    await cluster.until_state("Ready", "large")
    await cluster.until(lambda: fill()["a"] <= capacities()["a"] // 2)
    assert fill()["b"] > 0.8 * capacities()["b"]

    await cluster.change(DATASETS, "pictures", preload={"enabled": True})
    await cluster.until(lambda: not any(fill().values()))


async def test_a_suspended_preload_stops_at_once_whatever_is_on_its_way(cluster: Cluster, held: Held) -> None:
    await cluster.create_dataset(preload={"enabled": False})
    await cluster.until_state("Ready")
    await cluster.create_preload(nodes=["a"])
    await cluster.until(lambda: held.big)
    await cluster.change(PRELOADS, "warm", suspend=True)
    await cluster.until_state("Suspended", "warm", resource=PRELOADS)
    assert cluster.held() == {}
    await cluster.change(PRELOADS, "warm", suspend=False)
    held.go.set()
    await cluster.until_state("Complete", "warm", resource=PRELOADS)


async def test_copies_count_what_of_them_is_there_and_not_what_others_want(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {f"{number:02d}": MB for number in range(20)}
    await cluster.create_dataset("whole", placement={"nodeSelector": {"zone": "a"}})
    await cluster.until_state("Ready", "whole")
    await cluster.create_dataset("part", preload={"percent": 10}, placement={"nodeSelector": {"zone": "a"}})
    await cluster.until_state("Ready", "part")
    assert cluster.nodes("whole") == {"a": 20 * MB}
    assert cluster.nodes("part") == {"a": 2 * MB}
    assert cluster.status("part")["physicalBytes"] == 20 * MB


async def test_a_source_without_files_says_so_and_is_looked_at_again(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {}
    await cluster.create_dataset(source={"checkInterval": "0s"})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceEmpty")
    assert (
        "there is no file under s3://pictures: correct spec.source.uri"
        in cluster.condition("Ready")["message"]
    )
    cluster.engine.sources["s3://pictures"] = {"a": MB}
    await cluster.until_state("Ready")


@pytest.mark.parametrize("patterns", [{"include": ["/train/"]}, {"exclude": ["*"]}])
async def test_a_source_of_whose_files_no_pattern_takes_one_says_so(
    cluster: Cluster, patterns: dict[str, list[str]]
) -> None:
    cluster.engine.sources["s3://pictures"] = {}
    await cluster.create_dataset(source=patterns)
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceEmpty")
    message = cluster.condition("Ready")["message"]
    assert "there is no file under s3://pictures that the patterns of spec.source.include" in message


@pytest.mark.failure_mode("operator-starts-with-empty-disk")
async def test_a_manifest_that_is_lost_everywhere_is_listed_again_when_a_node_asks_for_it(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    caches = cluster.context.caches
    assert isinstance(caches, MemoryCaches)
    (digest,) = caches.folder.digests()
    caches.folder.remove(digest)
    for _ in range(3):  # as nodes do while they wait
        await cluster.cached_data.obtain(digest)
    await cluster.until(lambda: caches.folder.has(digest))
    await cluster.cached_data.obtain("0" * 32)  # of no mount: nothing is listed


async def test_what_somebody_freed_is_seen_and_loaded_again_without_a_listing(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {f"{number:02d}": MB for number in range(20)}
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until_state("Ready")
    operations = Held(cluster).calls
    (node,) = cluster.held()
    cluster.agents.evict(node, count=7)
    await cluster.until(lambda: operations[f"block of {MB}"] == 7)
    await cluster.until(lambda: cluster.held() == {node: 20 * MB})
    assert not operations["files"]


@pytest.mark.failure_mode("file-replaced-before-load")
async def test_a_file_that_grew_after_its_listing_is_loaded_as_it_is_and_nothing_else_stays(
    cluster: Cluster,
) -> None:
    files = {f"{number:02d}": MB for number in range(20)}
    cluster.engine.sources["s3://pictures"] = lambda: files
    grown = False

    async def grow(operation: Operation) -> None:
        nonlocal grown
        if operation.name == "put" and operation.length and not grown:
            grown = True
            files.update({"07": 3 * MB, "08": 2 * MB, "new": MB})
            del files["09"]

    cluster.engine.before = grow
    await cluster.create_dataset(
        placement={"mode": "Replicate", "nodeCount": 2}, source={"checkInterval": "0s"}
    )
    await cluster.until(lambda: cluster.status().get("totalBytes") == sum(files.values()))
    await cluster.until_state("Ready")

    assert grown
    assert cluster.status()["totalFiles"] == 20  # the source was listed again, whatever its interval
    lengths = [sorted(cluster.engine.holdings(worker=node).values()) for node in "abcd"]
    assert sorted(lengths) == [[], [], *[sorted(files.values())] * 2]


async def test_a_dataset_that_was_replaced_as_a_whole_is_listed_again_and_not_given_up(
    cluster: Cluster,
) -> None:
    files = {f"{number:03d}": MB for number in range(300)}
    cluster.engine.sources["s3://pictures"] = lambda: files
    reads: Counter[int] = Counter()

    async def grow(operation: Operation) -> None:
        if operation.name == "put":
            reads[operation.length] += 1
            files.update(dict.fromkeys(files, MB + 1))

    cluster.engine.before = grow
    await cluster.create_dataset(placement={"nodeCount": 1}, source={"checkInterval": "0s"})
    await cluster.until_state("Ready")

    assert cluster.status()["cachedBytes"] == 300 * (MB + 1)
    # How often the old version is tried before that depends on how long the listing takes.
    assert reads[MB + 1] == 300
    assert cluster.engine.source_bytes_read == 300 * (MB + 1)


async def test_a_file_that_is_replaced_while_no_operator_works_is_listed_again(
    cluster: Cluster, held: Held
) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1}, source={"checkInterval": "0s"})
    await cluster.until(lambda: held.big > 0)
    await cluster.until_state("Loading")
    await cluster.stop()  # killed in the middle of it
    cluster.engine.sources["s3://pictures"] = {"big": 2 * MB}
    await cluster.start()
    held.go.set()

    await cluster.until(lambda: cluster.status().get("totalBytes") == 2 * MB)
    await cluster.until_state("Ready")
    assert sum(cluster.held().values()) == 2 * MB


@pytest.mark.failure_mode("clock-jumps")
async def test_a_clock_that_jumped_back_does_not_keep_the_source_from_being_checked(cluster: Cluster) -> None:
    await cluster.create_dataset(source={"checkInterval": "1s"})
    await cluster.until_state("Ready")
    await cluster.stop()
    cluster.server.store(DATASETS)["n", "pictures"]["status"]["lastSourceCheckTime"] = "2099-01-01T00:00:00Z"
    cluster.engine.sources["s3://pictures"] = {"big": BIG, "new": MB}
    await cluster.start()
    await cluster.until(lambda: cluster.status().get("totalBytes") == BIG + MB, deadline=20)


@pytest.mark.failure_mode("agent-has-other-operators-table")
async def test_an_agent_that_was_given_a_higher_version_by_another_operator_is_taken_over(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset(placement={"nodeSelector": {"zone": "a"}})
    await cluster.until_state("Ready")
    path = cluster.status()["mountPath"]
    mount = cluster.agents.states()["a"].mounts[path]
    theirs = Assignment(mount=path, version=mount.version + 50, manifest=mount.manifest, drop=ALL_SLOTS)
    await cluster.agents.assign(node="a", assignments=[theirs])
    await cluster.until(lambda: cluster.agents.states()["a"].mounts[path].version > theirs.version)
    await cluster.until(lambda: cluster.held() == {"a": BIG})
    await cluster.until_state("Ready")
