"""A cache cluster frees the disks of the nodes that it leaves."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.kube.events import utc_now
from tdcs.model.export_view import ExportView
from tdcs.model.kube_resources import CACHE_CLUSTERS, DAEMON_SETS, DATASETS, EVENTS, JOBS, STATEFUL_SETS

NODES = ("a", "b", "c")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    engine = MemoryEngine(sources={"s3://pictures": {"x": 1000}}, workers=dict.fromkeys(NODES, 10**9))
    async with Cluster(engine=engine, nodes={name: {} for name in NODES}) as cluster:
        await cluster.create_keys()
        await cluster.create_cache()
        await cluster.until(lambda: len(worker_sets(cluster)) == 3)
        yield cluster


def worker_sets(cluster: Cluster) -> set[str]:
    return {name for _, name in cluster.server.store(STATEFUL_SETS) if "-worker-" in name}


def cleaned(cluster: Cluster) -> dict[str, list[str]]:
    """The folders that were removed, by node."""
    commands = {}
    for job in cluster.server.store(JOBS).values():
        pod = job["spec"]["template"]["spec"]
        required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (node,) = required["nodeSelectorTerms"][0]["matchFields"][0]["values"]
        commands[node] = pod["containers"][0]["command"][4:]
    return commands


async def test_a_worker_that_goes_leaves_no_blocks_on_its_node(cluster: Cluster) -> None:
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"replicas": 2}}
    )
    await cluster.until(lambda: len(worker_sets(cluster)) == 2)
    folders = ["/var/lib/tdcs/cache/default/alluxioworker", "/var/lib/tdcs/cache/default/agent"]
    assert cleaned(cluster) == {"a": folders}
    order = [write for write in cluster.server.writes if "default-worker-a" in write or "Job" in write]
    assert [write.split()[0] for write in order] == ["create", "merge", "create", "delete"]
    # Back again, and gone again: the disk is freed again.
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"replicas": None}}
    )
    await cluster.until(lambda: len(worker_sets(cluster)) == 3)
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"replicas": 2}}
    )
    await cluster.until(lambda: len(cluster.server.store(JOBS)) == 2 and len(worker_sets(cluster)) == 2)


async def test_a_deleted_cache_frees_every_disk_and_then_goes(cluster: Cluster) -> None:
    await cluster.server.delete(CACHE_CLUSTERS, name="default", namespace="tdcs-system")
    await cluster.until(lambda: not cluster.server.store(CACHE_CLUSTERS))
    assert set(cleaned(cluster)) == set(NODES)
    assert cleaned(cluster)["a"] == [
        "/var/lib/tdcs/cache/default/alluxioworker",
        "/var/lib/tdcs/cache/default/agent",
        "/var/lib/tdcs/cache/default/views",
    ]


async def test_a_cache_in_use_is_not_deleted_and_says_by_whom(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.dataset_deletion.POLL", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.POLL", 0.1)
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.until(lambda: cluster.status("default", resource=CACHE_CLUSTERS).get("datasets") == 1)
    await cluster.server.delete(CACHE_CLUSTERS, name="default", namespace="tdcs-system")
    await cluster.until(
        lambda: cluster.condition("Ready", "default", resource=CACHE_CLUSTERS).get("reason") == "InUse"
    )
    message = cluster.condition("Ready", "default", resource=CACHE_CLUSTERS)["message"]
    assert "n/pictures" in message
    assert len(worker_sets(cluster)) == 3
    # It takes no new Dataset, which would hold its deletion up, and those that it has are served.
    await cluster.create_dataset("late")
    await cluster.until(lambda: cluster.condition("Ready", "late").get("reason") == "CacheClusterDeleting")
    assert (
        "CacheCluster default (spec.cacheClusterRef) is being deleted"
        in cluster.condition("Ready", "late")["message"]
    )
    assert cluster.condition("Ready")["status"] == "True"
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(CACHE_CLUSTERS))
    assert not worker_sets(cluster)
    await cluster.until(lambda: cluster.condition("Ready", "late").get("reason") == "CacheClusterNotFound")
    await cluster.create_cache()
    await cluster.until_state("Ready", "late")


async def test_a_disk_that_cannot_be_freed_is_reported_and_does_not_hold_up(cluster: Cluster) -> None:
    cluster.server.jobs_end_as = "Failed"
    await cluster.server.delete(CACHE_CLUSTERS, name="default", namespace="tdcs-system")
    await cluster.until(lambda: not cluster.server.store(CACHE_CLUSTERS))
    assert {event["type"] for event in cluster.events("DiskNotFreed")} == {"Warning"}
    assert len(cluster.events("DiskNotFreed")) == 3


async def test_a_worker_that_comes_back_after_a_scale_in_is_starting_and_not_lost(cluster: Cluster) -> None:
    def states() -> dict[str, str]:
        status = cluster.status("default", resource=CACHE_CLUSTERS)
        return {worker["node"]: worker["state"] for worker in status.get("workers", ())}

    async def scale(replicas: int) -> None:
        await cluster.server.merge(
            CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"replicas": replicas}}
        )

    await cluster.until(lambda: states() == dict.fromkeys(NODES, "Ready"))
    await scale(2)
    await cluster.until(lambda: len(worker_sets(cluster)) == len(states()) == 2)
    (drained,) = set(NODES) - states().keys()
    cluster.engine.set_worker(name=drained, live=False)  # the master goes on listing it
    await scale(3)
    await cluster.until(lambda: states().get(drained) == "Pending")
    ready = cluster.condition("Ready", "default", resource=CACHE_CLUSTERS)
    assert (ready["reason"], ready["message"]) == (
        "WorkersStarting",
        "2 of 3 cache workers are registered",
    )
    assert not cluster.events("WorkerLost")
    cluster.engine.set_worker(name=drained)
    await cluster.until(lambda: states().get(drained) == "Ready")
    cluster.engine.set_worker(name=drained, live=False)
    await cluster.until(lambda: states().get(drained) == "Lost")


async def test_the_status_follows_a_worker_that_is_lost(cluster: Cluster) -> None:
    def states() -> dict[str, str]:
        status = cluster.status("default", resource=CACHE_CLUSTERS)
        return {worker["node"]: worker["state"] for worker in status.get("workers", ())}

    await cluster.until(lambda: states() == dict.fromkeys(NODES, "Ready"))
    cluster.engine.set_worker(name="b", live=False)
    await cluster.until(lambda: states()["b"] == "Lost", deadline=60)
    assert cluster.status("default", resource=CACHE_CLUSTERS)["readyReplicas"] == 2


async def test_a_cache_in_another_namespace_is_refused_and_says_where_it_belongs(cluster: Cluster) -> None:
    metadata = {"name": "other", "namespace": "n"}
    await cluster.server.create(
        CACHE_CLUSTERS,
        obj={"apiVersion": names.API_VERSION, "kind": "CacheCluster", "metadata": metadata, "spec": {}},
    )

    def is_refused() -> bool:
        status = cluster.server.store(CACHE_CLUSTERS)["n", "other"].get("status") or {}
        return any(condition["reason"] == "WrongNamespace" for condition in status.get("conditions", ()))

    await cluster.until(is_refused)
    (condition,) = cluster.server.store(CACHE_CLUSTERS)["n", "other"]["status"]["conditions"]
    assert "metadata.namespace: tdcs-system" in condition["message"]
    assert "finalizers" not in cluster.server.store(CACHE_CLUSTERS)["n", "other"]["metadata"]
    assert not any("other" in name for _, name in cluster.server.store(STATEFUL_SETS))
    # A Dataset does not find it either.
    await cluster.create_dataset("late", cacheClusterRef={"name": "other"})
    await cluster.until(lambda: cluster.condition("Ready", "late").get("reason") == "CacheClusterNotFound")


async def test_a_dataset_whose_cache_is_gone_shows_no_copies_and_no_grant() -> None:
    async with one_node() as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        assert cluster.status()["copies"]
        cluster.server.store(CACHE_CLUSTERS).clear()  # its finalizers were taken away
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "CacheClusterNotFound")
        status = cluster.status()
        assert not any(condition["status"] == "True" for condition in status["conditions"]), status[
            "conditions"
        ]
        assert not {field for field in ("copies", "grant", "loaded", "cached") if status.get(field)}
        await cluster.create_cache()
        await cluster.until_state("Ready")


FUSE = ("tdcs-system", "default-fuse")


def one_node() -> Cluster:
    """A cluster with one node."""
    engine = MemoryEngine(sources={"s3://pictures": {"x": 1000}}, workers={"a": 10**9})
    return Cluster(engine=engine, nodes={"a": {}})


async def test_a_cache_is_ready_without_fuse_clients() -> None:
    async with one_node() as cluster:
        await cluster.create_cache()
        await cluster.until(
            lambda: cluster.condition("Ready", "default", resource=CACHE_CLUSTERS).get("status") == "True"
        )
        assert FUSE not in cluster.server.store(DAEMON_SETS)


async def test_the_profile_stock_has_fuse_clients_which_go_with_it() -> None:
    async with one_node() as cluster:
        await cluster.create_cache(profile="Stock")
        await cluster.until(lambda: FUSE in cluster.server.store(DAEMON_SETS))
        await cluster.server.merge(
            CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"profile": "Tuned"}}
        )
        await cluster.until(lambda: FUSE not in cluster.server.store(DAEMON_SETS))


async def test_clients_and_workers_keep_their_place_while_no_node_matches() -> None:
    engine = MemoryEngine(sources={}, workers={"a": 10**9})
    async with Cluster(engine=engine, nodes={"a": {"cache": "yes"}}) as cluster:
        tolerations = [{"key": "gpu", "operator": "Exists"}]
        await cluster.create_cache(profile="Stock", nodeSelector={"cache": "yes"}, tolerations=tolerations)
        await cluster.until(lambda: FUSE in cluster.server.store(DAEMON_SETS) and bool(worker_sets(cluster)))

        def progress() -> str:
            condition = cluster.condition(names.PROGRESSING, "default", resource=CACHE_CLUSTERS)
            return str(condition.get("message", ""))

        async def change(**spec: Any) -> None:
            await cluster.server.merge(
                CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": spec}
            )

        def pods() -> list[dict[str, Any]]:
            stored = cluster.server.store(STATEFUL_SETS)
            workers = [stored["tdcs-system", name] for name in worker_sets(cluster)]
            sets = [cluster.server.store(DAEMON_SETS)[FUSE], *workers]
            return [each["spec"]["template"]["spec"] for each in sets]

        await change(nodeSelector={"cache": "no"}, tolerations=[], image="other")
        await cluster.until(lambda: "no node matches" in progress())
        await cluster.until(lambda: all(pod["containers"][0]["image"] == "other" for pod in pods()))
        assert [pod["tolerations"] for pod in pods()] == [tolerations] * 2
        assert pods()[0]["nodeSelector"] == {"cache": "yes"}
        others = [{"key": "disk", "operator": "Exists"}]
        await change(nodeSelector={"cache": "yes"}, tolerations=others)
        await cluster.until(lambda: all(pod["tolerations"] == others for pod in pods()))


async def test_a_cache_that_starts_warns_nobody_and_one_that_never_starts_does() -> None:
    engine = MemoryEngine(sources={"s3://pictures": {"x": 1000}}, workers={"a": 10**9})
    engine.available = False
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_keys()
        await cluster.create_cache()
        await cluster.create_dataset()

        def reasons() -> list[str]:
            conditions = (
                cluster.condition("Ready", "default", resource=CACHE_CLUSTERS),
                cluster.condition("Ready"),
            )
            return [condition.get("reason", "") for condition in conditions]

        await cluster.until(lambda: reasons() == ["CacheStarting"] * 2)
        assert cluster.status()["state"] == "Pending"
        assert "Warning" not in {event["type"] for event in cluster.server.store(EVENTS).values()}
        # One that has had its time is away, and so is one that has answered before.
        cache = cluster.server.store(CACHE_CLUSTERS)["tdcs-system", "default"]
        cache["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z"
        await cluster.until(lambda: reasons() == ["CacheUnavailable"] * 2)
        assert {event["type"] for event in cluster.events("CacheUnavailable")} == {"Warning"}
        cache["metadata"]["creationTimestamp"] = utc_now()
        engine.available = True
        await cluster.until_state("Ready")
        engine.available = False
        await cluster.until(lambda: reasons() == ["CacheUnavailable"] * 2)


@pytest.mark.failure_mode("alluxio-master-away")
async def test_a_dead_master_of_alluxios_is_told_and_takes_nothing_from_the_cache() -> None:
    engine = MemoryEngine(sources={"s3://pictures": {"x": 1000}}, workers={"a": 10**9})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_keys()
        cluster.export(ExportView(paths=1, most=1000, share=999, heap_bytes=1 << 28))
        await cluster.create_cache()

        def condition(kind: str) -> tuple[str, str]:
            found = cluster.condition(kind, "default", resource=CACHE_CLUSTERS)
            return found.get("status", ""), found.get("reason", "")

        await cluster.until(lambda: condition(names.EXPORTED) == ("True", "Exporting"))
        cluster.export(ExportView(silent_since=0.0, silent_at=1.0, failure="UNAVAILABLE"))
        await cluster.until(lambda: condition(names.EXPORTED) == ("False", "MasterAway"))
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        assert condition(names.READY)[0] == "True"

        cluster.export(ExportView(paths=999, most=1000, share=0, heap_bytes=1 << 28))
        await cluster.until(lambda: condition(names.EXPORTED) == ("False", "MasterFull"))
        message = cluster.condition(names.EXPORTED, "default", resource=CACHE_CLUSTERS)["message"]
        assert "part of the 1 files" in message
        assert condition(names.READY)[0] == "True"


async def test_a_cache_that_exports_nothing_any_more_does_not_go_on_saying_that_it_does() -> None:
    async with one_node() as cluster:
        cluster.export(ExportView(paths=1, most=1000, share=999, heap_bytes=1 << 28))
        await cluster.create_cache()

        def exported() -> dict[str, Any]:
            return cluster.condition(names.EXPORTED, "default", resource=CACHE_CLUSTERS)

        async def change_profile(profile: str) -> None:
            patch = {"spec": {"profile": profile}}
            await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch=patch)

        await cluster.until(lambda: bool(exported()))
        await change_profile("Stock")
        await cluster.until(lambda: not exported())
        await change_profile("Tuned")
        await cluster.until(lambda: bool(exported()))


async def test_a_cache_without_alluxio_says_nothing_of_exports() -> None:
    engine = MemoryEngine(sources={}, workers={"a": 10**9})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        cluster.export(ExportView(silent_since=0.0, silent_at=1000.0, failure="UNAVAILABLE"))
        await cluster.create_cache(engine="Native")
        await cluster.until(
            lambda: cluster.condition(names.READY, "default", resource=CACHE_CLUSTERS).get("status") == "True"
        )
        assert not cluster.condition(names.EXPORTED, "default", resource=CACHE_CLUSTERS)
