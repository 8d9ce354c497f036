"""Mounts that no Dataset has any more let go of their room and their bucket; those that somebody has, or uses, stay."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine, Operation
from tests.support.waiting import eventually_async
from tests.unit.control.cluster import Cluster

from tdcs.control.context import WorkKey
from tdcs.control.dataset.mount import orphaned_mounts
from tdcs.kube.api import ObjectList
from tdcs.model.agent_state import Assignment
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    Resource,
)
from tdcs.model.manifest_builder import ManifestBuilder

MB = 1_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    sources = {f"s3://{name}": {f"f{number}": MB for number in range(5)} for name in ("pictures", "words")}
    async with Cluster(
        engine=MemoryEngine(sources=sources, workers={"a": 100 * MB}), nodes={"a": {}}
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


def take_away(cluster: Cluster, name: str) -> None:
    """As if somebody had deleted the Dataset and removed its finalizer by hand."""
    cluster.server.store(DATASETS).pop(("n", name))
    cluster.context.queue.add(WorkKey(DATASETS, "n", name))


async def mounted_paths(cluster: Cluster) -> set[str]:
    return set(await cluster.engine.mounts())


@pytest.mark.failure_mode("finalizer-removed")
async def test_a_dataset_that_was_removed_by_hand_leaves_nothing_and_its_bucket_is_free(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    take_away(cluster, "pictures")
    await cluster.until(lambda: not cluster.held())
    assert await mounted_paths(cluster) == set()
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
    path = cluster.status("words")["mountPath"]
    await cluster.until(lambda: sum(cluster.held().values()) == 5 * MB)
    assert await mounted_paths(cluster) == {path}
    assert cluster.status("words")["state"] == "Ready"


async def test_where_no_dataset_is_left_a_look_at_the_cache_is_enough(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.stop()
    cluster.server.store(DATASETS).clear()
    await cluster.start()

    async def swept() -> bool:
        await cluster.datasets.sweep()
        return not cluster.held()

    await eventually_async(swept, deadline=60)
    assert cluster.server.store(CACHE_CLUSTERS)


async def test_what_an_agent_alone_knows_goes_soon_after_the_last_dataset(cluster: Cluster) -> None:
    """An agent that did not hear that a mount is gone, as its operator was killed, holds its blocks."""
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))
    await cluster.until(lambda: not cluster.held())
    path = "/datasets/ffffffffffffffff"
    manifest = cluster.context.caches.folder.write(ManifestBuilder(path=path, source="s3://pictures"))
    stray = Assignment(mount=path, version=1, manifest=manifest, manifest_urls=())
    await cluster.agents.assign(node="a", assignments=[stray])
    view = cluster.observer.view
    # The operator knows of it, and its look after the deletion is over.
    await cluster.until(lambda: any(state.mounts for state in view("default").agents.values()))
    await cluster.quiet()
    cluster.context.queue.add(WorkKey(DATASETS, "n", "pictures"))  # the last event of its deletion
    await cluster.until(lambda: not any(state.mounts for state in cluster.agents.states().values()))


@pytest.mark.parametrize("kind", ["bound", "restored"])
@pytest.mark.failure_mode("finalizer-removed")
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
    assert path in await mounted_paths(cluster)
    if kind == "bound":
        volume["status"]["phase"] = "Released"
        await cluster.until(lambda: sum(cluster.held().values()) == 5 * MB)
        assert await mounted_paths(cluster) == {cluster.status("words")["mountPath"]}


@pytest.mark.parametrize("hanging", ["", "mount"])
async def test_a_dataset_that_was_removed_by_hand_is_not_looked_for_forever(
    cluster: Cluster, hanging: str
) -> None:
    """Nor one that was never mounted."""
    listing_began = asyncio.Event()

    async def hang(operation: Operation) -> None:
        if operation.name == hanging:
            listing_began.set()
            await asyncio.Event().wait()

    cluster.engine.before = hang
    await cluster.create_dataset()
    if hanging:
        await cluster.until(listing_began.is_set)
    else:
        await cluster.until_state("Ready")
    key = WorkKey(DATASETS, "n", "pictures")
    take_away(cluster, "pictures")

    async def forgotten() -> bool:
        return await cluster.datasets.reconcile(key) is None and not list(cluster.mounts)

    await eventually_async(forgotten, deadline=60)
    assert await cluster.datasets.reconcile(key) is None


async def test_a_restart_with_many_mounts_lists_the_volumes_at_most_once_a_sweep(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.create_dataset("words", source={"uri": "s3://words"})
    for name in ("pictures", "words"):
        await cluster.until_state("Ready", name)
    await cluster.stop()
    gets: list[str] = []
    lists: list[str] = []
    volumes = cluster.server.list

    async def counted(resource: Resource, **more: Any) -> ObjectList:
        lists.append(resource.kind)
        return await volumes(resource, **more)

    def note_get(verb: str, resource: Resource) -> None:
        gets.extend([resource.kind] if verb == "get" else [])

    cluster.server.list = counted  # type: ignore[method-assign]
    cluster.server.refuse = note_get
    await cluster.start()
    cluster.engine.state.add_mount(path="/datasets/ffffffffffffffff", uri="s3://nobody")
    cluster.engine.sources["s3://nobody"] = {}
    await cluster.until(lambda: PERSISTENT_VOLUMES.kind in lists)
    for task in cluster._work:
        task.cancel()
    await asyncio.gather(*cluster._work, return_exceptions=True)
    cluster.datasets._orphans._swept_at.clear()
    gets.clear()
    lists.clear()
    await cluster.datasets.sweep()
    assert lists.count(PERSISTENT_VOLUMES.kind) == 1
    assert PERSISTENT_VOLUMES.kind not in gets


async def test_manifests_that_no_mount_agent_or_version_names_are_removed(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    folder, first = cluster.context.caches.folder, cluster.context.caches.folder.digests()
    cluster.engine.sources["s3://pictures"] = {"other": MB}
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await cluster.until_state("Ready")
    await cluster.until(lambda: not first & set(cluster.engine.known_versions.values()))
    await cluster.until(lambda: not first & digests_in_use(cluster))
    await cluster.datasets.sweep()
    assert first < folder.digests()  # a young one may be of a listing that has just ended
    for digest in folder.digests():
        os.utime(folder.file(digest), (0, 0))
    await cluster.datasets.sweep()
    assert folder.digests() == set(cluster.engine.known_versions.values())


@pytest.mark.failure_mode("cache-away")
async def test_while_a_cache_is_away_the_manifests_of_its_mounts_stay_and_others_go(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    folder, published = cluster.context.caches.folder, set(cluster.engine.known_versions.values())

    def version(path: str) -> str:
        builder = ManifestBuilder(path=path, source="s3://pictures")
        return folder.write(builder)

    mine, orphan = version(cluster.status()["mountPath"]), version("/datasets/of-a-dataset-that-is-gone")
    (folder.path / ("0" * 32)).write_bytes(b"damaged")
    for digest in folder.digests():
        os.utime(folder.file(digest), (0, 0))
    cluster.engine.available = False
    await cluster.until(lambda: cluster.observer.view("default").failure)
    await cluster.datasets.sweep()
    assert folder.digests() == {mine, *published}
    assert orphan not in folder.digests()
    cluster.engine.available = True

    async def swept() -> bool:
        await cluster.datasets.sweep()
        return folder.digests() == published

    await eventually_async(swept, deadline=60)


def digests_in_use(cluster: Cluster) -> set[str]:
    """The manifests that the operator takes for used."""
    return orphaned_mounts.used(cluster.mounts)[0]
