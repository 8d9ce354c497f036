"""Copies that differ from their source: loaded again once, and not served when they are wrong again."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.unit.control.cluster import Cluster

from tdcs.model.kube_resources import PRELOADS

MB = 1_000_000
FILES = [f"f{number:02d}" for number in range(10)]


@pytest.fixture
async def engine() -> MemoryEngine:
    return MemoryEngine(
        sources={"s3://pictures": dict.fromkeys(FILES, MB)}, workers=dict.fromkeys("abc", 100 * MB)
    )


@pytest.fixture
async def cluster(engine: MemoryEngine) -> AsyncIterator[Cluster]:
    async with Cluster(engine=engine, nodes={name: {"zone": name} for name in "abc"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(placement={"nodeSelector": {"zone": "a"}})
        await cluster.until_state("Ready")
        yield cluster


def on(cluster: Cluster, nodes: str, files: Sequence[str]) -> None:
    """What these nodes hold of these files is never what the source has."""
    cluster.agents.rotten = lambda node, path: node in nodes and path in files


@pytest.mark.failure_mode("copies-differ-from-source")
async def test_copies_that_are_wrong_twice_are_dropped_and_the_dataset_names_them(
    cluster: Cluster,
) -> None:
    on(cluster, "a", FILES[:3])
    await cluster.create_preload(nodes=["a"], verify="All")
    await cluster.until_state("Failed", "warm", resource=PRELOADS)
    assert cluster.condition("Failed", "warm", resource=PRELOADS)["reason"] == "VerifyFailed"
    await cluster.until(lambda: cluster.held() == {"a": 7 * MB})
    await cluster.until(lambda: cluster.condition("Loaded").get("reason") == "CopiesWrong")
    assert cluster.status()["state"] == "Degraded"
    loaded = cluster.condition("Loaded")
    assert (loaded["status"], loaded["reason"]) == ("False", "CopiesWrong")
    assert "3 files differed from the source on a" in loaded["message"]
    assert all(name in loaded["message"] for name in FILES[:3])
    assert "delete Preload n/warm" in loaded["message"]
    assert cluster.condition("Ready")["status"] == "True"  # what reads them reads the source
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    assert cluster.held() == {"a": 7 * MB}

    on(cluster, "a", [])
    await cluster.server.delete(PRELOADS, name="warm", namespace="n")
    await cluster.until(lambda: cluster.held() == {"a": 10 * MB})
    await cluster.until_state("Ready")
    assert cluster.condition("Loaded")["status"] == "True"


async def test_a_comparison_of_other_files_is_complete_where_an_earlier_one_found_wrong_copies(
    cluster: Cluster,
) -> None:
    on(cluster, "a", FILES[:3])
    await cluster.create_preload(nodes=["a"], verify="All")
    await cluster.until_state("Failed", "warm", resource=PRELOADS)
    await cluster.create_preload("others", nodes=["a"], verify="All", paths=FILES[5:])
    await cluster.until_state("Complete", "others", resource=PRELOADS)
    await cluster.until(lambda: cluster.held() == {"a": 7 * MB})
    await cluster.until(lambda: cluster.condition("Loaded").get("reason") == "CopiesWrong")


@pytest.mark.failure_mode("operator-restarts-with-wrong-copies")
async def test_copies_that_were_wrong_are_neither_loaded_nor_called_right_after_a_restart(
    cluster: Cluster, engine: MemoryEngine
) -> None:
    on(cluster, "a", FILES[:3])
    await cluster.create_preload(nodes=["a"], verify="All")
    await cluster.until(lambda: cluster.condition("Loaded").get("reason") == "CopiesWrong")
    await cluster.stop()
    operations: Counter[str] = Counter()

    async def count(operation: Operation) -> None:
        operations[operation.name] += 1

    engine.before = count
    await cluster.start()
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await cluster.until(lambda: operations["workers"] > 20)
    assert cluster.held() == {"a": 7 * MB}
    assert operations["put"] == 0
    assert cluster.condition("Loaded")["reason"] == "CopiesWrong"
    assert cluster.status()["state"] == "Degraded"


@pytest.mark.failure_mode("worker-dies-with-wrong-copies")
async def test_a_worker_that_dies_between_the_comparison_and_the_drop_blocks_nothing(
    cluster: Cluster, engine: MemoryEngine
) -> None:
    on(cluster, "b", FILES[:2])

    async def die(operation: Operation) -> None:
        if operation.name == "digest" and operation.worker == "b":
            engine.set_worker(name="b", live=False)

    engine.before = die
    await cluster.create_preload(nodes=["b"], verify="All")
    await cluster.until(
        lambda: (
            "no live cache worker"
            in cluster.condition("Complete", "warm", resource=PRELOADS).get("message", "")
        )
    )
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    assert cluster.status()["state"] == "Ready"
    engine.before = None
    on(cluster, "b", [])
    engine.set_worker(name="b")  # it comes back with what it held
    await cluster.until_state("Complete", "warm", resource=PRELOADS)
