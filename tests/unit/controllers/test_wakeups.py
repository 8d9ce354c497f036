"""What changes around a Dataset at rest wakes it at once: no story here waits for a pass that comes by itself."""

import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
from tests.unit.controllers.cluster import QUICK, Cluster

from tdcs.controllers.context import WorkKey
from tdcs.engine.memory import MemoryEngine
from tdcs.kube.api import Object
from tdcs.kube.objects import Key
from tdcs.kube.resources import CACHE_CLUSTERS, DATASETS

MB = 1_000_000


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("tdcs.controllers.mounts.snapshot.UNHEARD_SECONDS", 0.2)
    monkeypatch.setattr("tdcs.controllers.mounts.reconcile.UNHEARD_SECONDS", 0.2)
    monkeypatch.setattr("tdcs.controllers.mounts.volumes.UNSEEN_SECONDS", 0.0)
    engine = MemoryEngine(
        sources={"s3://pictures": {"a": MB}, "s3://words": {"b": MB}}, workers={"n1": 100 * MB}
    )
    settings = replace(QUICK, resync_seconds=600.0, survey_seconds=30.0)
    async with Cluster(engine=engine, nodes={"n1": {}}, settings=settings, most_wait=math.inf) as made:
        await made.create_cache()
        await made.create_keys()
        yield made


async def at_rest(cluster: Cluster, name: str = "pictures") -> None:
    """Until a Dataset is loaded and its passes have nothing to do any more."""
    await cluster.until_state("Ready", name)

    def rests() -> bool:
        cluster.context.queue.add(WorkKey(DATASETS, "n", name))
        found = [mount for mount in cluster.datasets._mounts if mount.path == path]
        return bool(found and found[0].last and found[0].last.snapshot is not None)

    path = cluster.status(name)["mountPath"]
    await cluster.until(rests)


async def test_a_version_that_is_overwritten_at_the_master_is_set_right(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await at_rest(cluster)
    path = cluster.status()["mountPath"]
    version = (await cluster.engine.versions())[path]
    await cluster.engine.set_version(path=path, version="another")
    await cluster.until(lambda: cluster.engine.known_versions[path] == version, deadline=5)


async def test_room_that_another_program_frees_is_given_to_a_dataset_that_lacks_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.agent.twin.agents.RATE_SECONDS", 0.1)
    monkeypatch.setattr("tdcs.controllers.dataset.controller.ROOM_SECONDS", 0.1)
    cluster.engine.sources["s3://pictures"] = {f"{n}.jpg": MB for n in range(10)}
    cluster.agents.foreign["n1"] = 94 * MB
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Placed").get("reason") == "NotAllFits")
    await cluster.until(lambda: 0 < cluster.held().get("n1", 0) == cluster.status()["cachedBytes"] < 10 * MB)
    await cluster.quiet()
    cluster.agents.foreign["n1"] = 0
    await cluster.until(lambda: cluster.held() == {"n1": 10 * MB}, deadline=5)


async def test_a_cache_cluster_that_is_gone_is_not_observed_any_more(cluster: Cluster) -> None:
    observed = cluster.datasets.observer._tasks
    await cluster.until(lambda: "default" in observed)
    for namespace, name in list(cluster.server.store(CACHE_CLUSTERS)):
        del cluster.server.store(CACHE_CLUSTERS)[namespace, name]
        cluster.context.queue.add(WorkKey(CACHE_CLUSTERS, namespace, name))
    await cluster.until(lambda: "default" not in observed, deadline=5)


async def test_a_mount_that_is_made_before_its_path_is_seen_in_the_status_wakes_its_dataset(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_dataset("words", source={"uri": "s3://words"})
    await at_rest(cluster, "words")
    await cluster.quiet()
    known, paths = cluster.status("words")["mountPath"], cluster.context.stores.paths
    users = paths.users

    def seen(datasets: Mapping[Key, Object], *, cluster: str, path: str) -> tuple[Key, ...]:
        return users(datasets, cluster=cluster, path=path) if path == known else ()

    monkeypatch.setattr(paths, "users", seen)
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=10)
