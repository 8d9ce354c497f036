"""Mounts that no Dataset has any more let go of their room and their bucket; those that somebody has, or uses, stay."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.waiting import eventually_async
from tests.unit.controllers.cluster import Cluster

from tdcs.controllers.context import WorkKey
from tdcs.engine.memory import MemoryEngine, Operation
from tdcs.kube.resources import CACHE_CLUSTERS, DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

MB = 1_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    sources = {f"s3://{name}": {f"f{number}": MB for number in range(5)} for name in ("pictures", "words")}
    async with Cluster(
        engine=MemoryEngine(sources=sources, workers={"a": 100 * MB}), nodes={"a": {}}
    ) as made:
        await made.create_cache()
        await made.create_keys()
        yield made


def take_away(cluster: Cluster, name: str) -> None:
    """As if somebody had deleted the Dataset and removed its finalizer by hand."""
    cluster.server.store(DATASETS).pop(("n", name))
    cluster.context.queue.add(WorkKey(DATASETS, "n", name))


async def mounted(cluster: Cluster) -> set[str]:
    return set(await cluster.engine.mounts())


async def test_a_dataset_that_was_removed_by_hand_leaves_nothing_and_its_bucket_is_free(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    take_away(cluster, "pictures")
    await cluster.until(lambda: not cluster.held())
    assert await mounted(cluster) == set()
    cluster.server.store(PERSISTENT_VOLUME_CLAIMS).clear()
    cluster.server.store(PERSISTENT_VOLUMES).clear()
    await cluster.create_keys("other", key="renewed")
    await cluster.create_dataset("next", source={"secretRef": {"name": "other"}})
    await cluster.until_state("Ready", "next")


async def test_a_load_that_nobody_wants_any_more_stops(cluster: Cluster) -> None:
    begun = asyncio.Event()

    async def pace(operation: Operation) -> None:
        if operation.name == "put" and operation.length:
            begun.set()
            await asyncio.Event().wait()

    cluster.engine.before = pace
    await cluster.create_dataset()
    await cluster.until(begun.is_set)
    take_away(cluster, "pictures")
    await cluster.until(lambda: not any(state.mounts for state in cluster.agents.states().values()))
    assert cluster.held() == {}


async def test_after_a_restart_the_mount_of_nobody_is_found_and_those_of_others_stay(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset()
    await cluster.create_dataset("words", source={"uri": "s3://words"})
    for name in ("pictures", "words"):
        await cluster.until_state("Ready", name)
    await cluster.stop()
    cluster.server.store(DATASETS).pop(("n", "pictures"))
    await cluster.start()
    kept = cluster.status("words")["mountPath"]
    await cluster.until(lambda: sum(cluster.held().values()) == 5 * MB)
    assert await mounted(cluster) == {kept}
    assert cluster.status("words")["state"] == "Ready"


async def test_where_no_dataset_is_left_a_look_at_the_cache_is_enough(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.stop()
    cluster.server.store(DATASETS).clear()
    await cluster.start()

    async def swept() -> bool:
        await cluster.datasets.sweep(cluster="default")
        return not cluster.held()

    await eventually_async(swept, deadline=60)
    assert cluster.server.store(CACHE_CLUSTERS)


@pytest.mark.parametrize("kind", ["bound", "restored"])
async def test_a_mount_that_pods_use_or_a_restored_dataset_will_find_stays(
    cluster: Cluster, kind: str
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.create_dataset("words", source={"uri": "s3://words"})
    await cluster.until_state("Ready", "words")
    path = cluster.status()["mountPath"]
    await cluster.stop()
    volume = cluster.server.store(PERSISTENT_VOLUMES)["", "tdcs.n.pictures"]
    dataset = cluster.server.store(DATASETS)["n", "pictures"]
    if kind == "bound":
        volume["status"]["phase"] = "Bound"
        cluster.server.store(DATASETS).pop(("n", "pictures"))
    else:
        dataset["status"] = {}
        dataset["spec"]["source"]["secretRef"]["name"] = "missing"  # it cannot begin yet
    await cluster.start()
    looks = 0

    async def count(operation: Operation) -> None:
        nonlocal looks
        looks += operation.name == "mounts"

    cluster.engine.before = count
    await cluster.until(lambda: looks > 20)
    assert path in await mounted(cluster)
    if kind == "bound":
        volume["status"]["phase"] = "Released"
        await cluster.until(lambda: sum(cluster.held().values()) == 5 * MB)
        assert await mounted(cluster) == {cluster.status("words")["mountPath"]}
