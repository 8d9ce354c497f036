"""What changes around a Dataset at rest wakes it at once: no story here waits for a pass that comes by itself."""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.control.context import WorkKey
from tdcs.decide.place import holdings
from tdcs.decide.place.agent_assignments import assign
from tdcs.model.agent_state import Assignment
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS

MB = 1_000_000


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("tdcs.control.dataset.mount.mount_snapshot.UNHEARD_SECONDS", 0.2)
    monkeypatch.setattr("tdcs.control.dataset.mount.mount_placer.UNHEARD_SECONDS", 0.2)
    monkeypatch.setattr("tdcs.control.dataset.access.volume_objects.UNSEEN_SECONDS", 0.0)
    engine = MemoryEngine(
        sources={"s3://pictures": {"a": MB}, "s3://words": {"b": MB}}, workers={"n1": 100 * MB}
    )
    settings = replace(QUICK, resync_seconds=600.0, survey_seconds=600.0)
    async with Cluster(engine=engine, nodes={"n1": {}}, settings=settings, most_wait=math.inf) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


async def at_rest(cluster: Cluster, name: str = "pictures") -> None:
    """Until a Dataset is loaded and its passes have nothing to do any more."""
    await cluster.until_state("Ready", name)

    def rests() -> bool:
        cluster.context.queue.add(WorkKey(DATASETS, "n", name))
        mounts = [mount for mount in cluster.mounts if mount.path == path]
        return bool(mounts and mounts[0].last and mounts[0].last.snapshot is not None)

    path = cluster.status(name)["mountPath"]
    await cluster.until(rests)


async def test_a_version_that_is_overwritten_at_the_master_is_set_right(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await at_rest(cluster)
    path = cluster.status()["mountPath"]
    version = (await cluster.engine.versions())[path]
    await cluster.engine.set_version(path=path, version="another")
    await cluster.until(lambda: cluster.engine.known_versions[path] == version)


async def test_room_that_another_program_frees_is_given_to_a_dataset_that_lacks_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.twins.agents.RATE_SECONDS", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.mount.wakes.ROOM_SECONDS", 0.1)
    cluster.engine.sources["s3://pictures"] = {f"{n}.jpg": MB for n in range(10)}
    cluster.agents.foreign["n1"] = 94 * MB
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Placed").get("reason") == "NotAllFits")
    await cluster.until(lambda: 0 < cluster.held().get("n1", 0) == cluster.status()["cachedBytes"] < 10 * MB)
    await cluster.quiet()
    cluster.agents.foreign["n1"] = 0
    await cluster.until(lambda: cluster.held() == {"n1": 10 * MB})


@pytest.mark.failure_mode("operator-starts-with-hundreds-of-agents")
async def test_a_new_operator_looks_at_all_mounts_before_it_sends_agents_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"d{number}" for number in range(6)]
    engine = MemoryEngine(
        sources={f"s3://{name}": {"a": MB} for name in names}, workers=dict.fromkeys(("n1", "n2"), 100 * MB)
    )
    settings = replace(QUICK, learning_seconds=20.0)
    async with Cluster(engine=engine, nodes={"n1": {}, "n2": {}}, settings=settings) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        for name in names:
            await cluster.create_dataset(
                name, source={"uri": f"s3://{name}"}, placement={"mode": "Replicate", "nodeCount": 2}
            )
        for name in names:
            await cluster.until_state("Ready", name)
        await cluster.stop()
        first: dict[str, int] = {}
        assign = cluster.agents.assign

        async def counted(*, node: str, assignments: Sequence[Assignment]) -> None:
            first.setdefault(node, len(assignments))
            await assign(node=node, assignments=assignments)

        monkeypatch.setattr(cluster.agents, "assign", counted)
        await cluster.start()
        await cluster.until(lambda: len(first) == 2)
        assert first == {"n1": len(names), "n2": len(names)}


async def test_a_cache_cluster_that_is_gone_is_not_observed_any_more(cluster: Cluster) -> None:
    observed = cluster.observer._tasks
    await cluster.until(lambda: "default" in observed)
    for namespace, name in list(cluster.server.store(CACHE_CLUSTERS)):
        del cluster.server.store(CACHE_CLUSTERS)[namespace, name]
        cluster.context.queue.add(WorkKey(CACHE_CLUSTERS, namespace, name))
    await cluster.until(lambda: "default" not in observed)


async def test_a_mount_that_is_made_before_its_path_is_seen_in_the_status_wakes_its_dataset(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_dataset("words", source={"uri": "s3://words"})
    await at_rest(cluster, "words")
    await cluster.quiet()
    mount_path, paths = cluster.status("words")["mountPath"], cluster.context.stores.paths
    users = paths.users

    def users_at_path(datasets: Mapping[Key, Object], *, cluster: str, path: str) -> tuple[Key, ...]:
        return users(datasets, cluster=cluster, path=path) if path == mount_path else ()

    monkeypatch.setattr(paths, "users", users_at_path)
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.status().get("state") == "Ready")


async def test_a_pass_computes_the_progress_of_a_want_once_for_an_unchanged_assignment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[str, int] = {"progress": 0, "assign": 0}

    def counted(name: str, call: Any) -> Any:
        def counts(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return call(*args, **options)

        return counts

    await cluster.create_dataset()
    await at_rest(cluster)
    monkeypatch.setattr(holdings, "progress", counted("progress", holdings.progress))
    monkeypatch.setattr("tdcs.control.dataset.mount.mount_placer.assign", counted("assign", assign))
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await at_rest(cluster)
    assert calls["progress"] == calls["assign"] > 0
