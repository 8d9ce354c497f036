"""Stories of the cache manager: what leaves the cache and comes back, clones for waiting jobs, quotas."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.node_usage import trimmed
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    TRAINING_JOBS,
)

MB = 1_000_000
SIZE = 40 * MB
SOURCES = ("one", "two", "three")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Four nodes, each with room for one and a half of the datasets."""
    files = {f"{number:02}.bin": MB for number in range(40)}
    engine = MemoryEngine(
        sources={f"s3://{name}": files for name in SOURCES}, workers=dict.fromkeys("abcd", 60 * MB)
    )
    async with Cluster(engine=engine, nodes={name: {"zone": name} for name in "abcd"}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


async def create(cluster: Cluster, name: str, **spec: Any) -> None:
    """A dataset that is as a whole on node a, unless said otherwise."""
    placement = {"mode": "Replicate", "nodeCount": 1, "nodeSelector": {"zone": "a"}}
    source = {"uri": f"s3://{name}"}
    await cluster.create_dataset(name, **{"source": source, "placement": placement, **spec})


def job(cluster: Cluster, name: str, dataset: str, *, copy: str | None = None) -> None:
    """A TrainingJob that waits for the dataset, or reads this copy of it."""
    status: dict[str, Any] = {}
    if copy is not None:
        admitted = {"type": "Admitted", "status": "True", "reason": "AllPodsFit"}
        status = {"conditions": [admitted], "copies": [{"dataset": dataset, "copy": copy}]}
    cluster.server.store(TRAINING_JOBS)["n", name] = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"datasets": [{"name": dataset, "mountPath": "/data"}]},
        "status": status,
    }
    cluster.context.queue.add(WorkKey(DATASETS, "n", dataset))  # as the operator's watch of jobs does it


def ends(cluster: Cluster, name: str) -> None:
    job = cluster.server.store(TRAINING_JOBS).pop(("n", name))
    cluster.context.queue.add(WorkKey(DATASETS, "n", job["spec"]["datasets"][0]["name"]))


def grant_reason(cluster: Cluster, name: str) -> str:
    return str(cluster.condition("Granted", name).get("reason"))


def counts(cluster: Cluster, name: str) -> tuple[int, int]:
    """How many jobs read a dataset, and how many wait, by its status."""
    status = cluster.status(name)
    return status.get("activeJobs", -1), status.get("waitingJobs", -1)


def on_disk(cluster: Cluster, name: str) -> int:
    """Bytes of a dataset on all nodes."""
    path = cluster.status(name).get("mountPath", "")
    states = cluster.agents.states().values()
    return sum(state.mounts[path].held_bytes for state in states if path in state.mounts)


async def test_the_idle_dataset_makes_room_for_the_one_that_a_job_waits_for_and_comes_back(
    cluster: Cluster,
) -> None:
    await create(cluster, "one")
    await cluster.until_state("Ready", "one")
    job(cluster, "train", "two")
    await create(cluster, "two")
    await cluster.until_state("Ready", "two")
    assert on_disk(cluster, "two") == SIZE
    # What was left of node a holds a beginning of the other one.
    await cluster.until(lambda: on_disk(cluster, "one") <= 20 * MB)
    assert cluster.condition("Mounted", "one")["status"] == "True"
    assert grant_reason(cluster, "one") == "NotAllFits"
    ends(cluster, "train")
    job(cluster, "other", "one", copy="0")
    await cluster.until_state("Ready", "one")
    assert on_disk(cluster, "one") == SIZE
    await cluster.until(lambda: on_disk(cluster, "two") <= 20 * MB)


async def test_of_idle_datasets_the_least_recently_used_leaves_and_a_pinned_one_never(
    cluster: Cluster,
) -> None:
    await create(cluster, "one", eviction={"policy": "Pin"})
    await cluster.until_state("Ready", "one")
    await create(cluster, "two")
    await cluster.until(lambda: grant_reason(cluster, "two") == "NotAllFits")
    job(cluster, "train", "two", copy="0")
    await cluster.until(lambda: cluster.status("two").get("activeJobs") == 1)
    assert on_disk(cluster, "one") == SIZE
    assert on_disk(cluster, "two") <= 20 * MB


async def test_a_timed_dataset_leaves_when_its_time_is_over_and_comes_back_for_a_job(
    cluster: Cluster,
) -> None:
    await create(cluster, "one", eviction={"policy": "Timed", "ttl": "1s"})
    await cluster.until(lambda: cluster.status("one").get("state") == "Evicted")
    await cluster.until(lambda: on_disk(cluster, "one") == 0)
    assert grant_reason(cluster, "one") == "Expired"
    assert cluster.condition("Ready", "one")["status"] == "True"
    assert "read from the source" in cluster.condition("Ready", "one")["message"]
    job(cluster, "train", "one")
    # For a moment the operator may know the agents only as they were before all of it left.
    await cluster.until(lambda: on_disk(cluster, "one") == SIZE)
    await cluster.until_state("Ready", "one")


async def test_a_timed_dataset_stays_with_another_one_of_its_source_and_says_so(cluster: Cluster) -> None:
    await create(cluster, "twin", source={"uri": "s3://one"})
    await cluster.until_state("Ready", "twin")
    # It finds all of it there: of a load that takes longer than its time something else is said.
    await create(cluster, "one", eviction={"policy": "Timed", "ttl": "2s"})
    await cluster.until(lambda: grant_reason(cluster, "one") == "KeptByTwin")
    text = cluster.condition("Granted", "one")["message"]
    assert "was not used for 2s" in text
    assert "another Dataset of the same source keeps the blocks" in text
    assert "twin" not in text  # it may be another tenant's
    assert grant_reason(cluster, "twin") == "Granted"
    assert on_disk(cluster, "one") == SIZE
    await cluster.server.delete(DATASETS, name="twin", namespace="n")
    await cluster.until(lambda: grant_reason(cluster, "one") == "Expired")


async def test_a_pod_that_mounts_the_claim_keeps_a_timed_dataset_in_the_cache(cluster: Cluster) -> None:
    pod = {
        "metadata": {"name": "notebook", "namespace": "n"},
        "spec": {
            "nodeName": "a",
            "containers": [],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "one"}}],
        },
    }
    cluster.usage.seen(("n", "notebook"), trimmed(pod))
    await create(cluster, "one", eviction={"policy": "Timed", "ttl": "1s"})
    await cluster.until_state("Ready", "one")
    assert cluster.status("one")["inUse"] is True
    cluster.usage.seen(("n", "notebook"), None)
    await cluster.until(lambda: cluster.status("one").get("state") == "Evicted")


async def test_a_new_operator_grants_what_the_last_one_did(cluster: Cluster) -> None:
    await create(cluster, "one", placement={"mode": "Partition", "nodeCount": 3})
    await create(cluster, "two", placement={"mode": "Partition", "nodeCount": 2})
    await cluster.until_state("Ready", "one")
    await cluster.until_state("Ready", "two")
    before, read = {name: cluster.nodes(name) for name in ("one", "two")}, cluster.engine.source_bytes_read
    await cluster.stop()
    await cluster.start()
    await create(cluster, "three", placement={"mode": "Partition", "nodeCount": 2})
    await cluster.until_state("Ready", "three")
    assert {name: cluster.nodes(name) for name in ("one", "two")} == before
    assert cluster.engine.source_bytes_read == read + SIZE


async def test_a_timed_dataset_with_a_file_that_cannot_be_had_leaves_when_its_time_is_over(
    cluster: Cluster,
) -> None:
    cluster.engine.refuse = lambda worker, uri: "no access" if "39.bin" in uri else None
    await create(cluster, "one", eviction={"policy": "Timed", "ttl": "1s"})
    await cluster.until(lambda: cluster.condition("Ready", "one").get("reason") == "FilesFailed")
    await cluster.until(lambda: grant_reason(cluster, "one") == "Expired")
    await cluster.until(lambda: on_disk(cluster, "one") == 0)


async def test_a_clone_is_made_from_peers_for_a_job_that_waits_and_goes_when_it_is_idle(
    cluster: Cluster,
) -> None:
    await create(
        cluster,
        "one",
        placement={"mode": "Replicate", "nodeCount": 1},
        access={"maxConcurrentJobs": 1, "onLimit": "Clone"},
    )
    await cluster.until_state("Ready", "one")
    job(cluster, "first", "one", copy="0")
    job(cluster, "second", "one")

    def clone() -> dict[str, Any]:
        copies = cluster.status("one").get("copies") or ()
        return next((copy for copy in copies if copy["id"] == "clone-1"), {})

    await cluster.until(lambda: [node["bytes"] for node in clone().get("nodes", ())] == [SIZE])
    first = next(copy for copy in cluster.status("one")["copies"] if copy["id"] == "0")
    assert {node["name"] for node in first["nodes"]}.isdisjoint(node["name"] for node in clone()["nodes"])
    assert cluster.engine.source_bytes_read == SIZE
    # The Dataset was Ready all along: what its placement asks for was there.
    assert cluster.status("one")["state"] == "Ready"
    job(cluster, "second", "one", copy="clone-1")
    ends(cluster, "first")
    await cluster.until(lambda: cluster.status("one").get("activeJobs") == 1)
    assert clone()["id"] == "clone-1"
    ends(cluster, "second")
    await cluster.until(lambda: not clone())
    await cluster.until(lambda: on_disk(cluster, "one") == SIZE)


async def test_jobs_of_another_dataset_of_the_source_call_for_no_clone_of_this_one(cluster: Cluster) -> None:
    whole = {"mode": "Replicate", "nodeCount": 1}
    access = {"maxConcurrentJobs": 1, "onLimit": "Clone"}
    await create(cluster, "one", placement=whole, access=access)
    await cluster.create_dataset("twin", source={"uri": "s3://one"}, placement=whole)
    for name in ("one", "twin"):
        await cluster.until_state("Ready", name)
    assert cluster.status("one")["mountPath"] == cluster.status("twin")["mountPath"]
    for name in ("first", "second"):
        job(cluster, name, "twin", copy="0")
    await cluster.until(lambda: counts(cluster, "twin") == (2, 0))
    job(cluster, "third", "one")
    await cluster.until(lambda: counts(cluster, "one") == (0, 1))
    await cluster.quiet()
    assert (grant_reason(cluster, "one"), len(cluster.status("one")["copies"])) == ("Granted", 1)
    # Its own jobs do.
    job(cluster, "fourth", "one")
    await cluster.until(lambda: len(cluster.status("one")["copies"]) == 2)


@pytest.mark.parametrize("lacks", ["nodes", "room"])
async def test_a_clone_without_nodes_or_room_is_refused_in_words_and_nothing_is_lost(
    cluster: Cluster, lacks: str
) -> None:
    more: dict[str, Any] = {} if lacks == "nodes" else {"placement": {"mode": "Replicate", "nodeCount": 1}}
    await create(cluster, "one", access={"maxConcurrentJobs": 1, "onLimit": "Clone"}, **more)
    await cluster.until_state("Ready", "one")
    if lacks == "room":
        placement = {"mode": "Replicate", "nodeCount": 3}
        await create(cluster, "two", placement=placement, eviction={"policy": "Pin"})
        await cluster.until_state("Ready", "two")
    job(cluster, "first", "one", copy="0")
    job(cluster, "second", "one")
    await cluster.until(lambda: grant_reason(cluster, "one") == "NoRoomForClone")
    assert "Add cache nodes" in cluster.condition("Granted", "one")["message"]
    assert on_disk(cluster, "one") == SIZE


async def test_jobs_are_counted_of_a_dataset_that_is_not_mounted_or_is_being_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.POLL", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.RETRY_SOON", 0.1)
    job(cluster, "early", "two")
    await create(cluster, "two", cacheClusterRef={"name": "elsewhere"})
    await cluster.until(lambda: cluster.condition("Ready", "two").get("reason") == "CacheClusterNotFound")
    assert counts(cluster, "two") == (0, 1)

    await create(cluster, "one")
    await cluster.until_state("Ready", "one")
    for name in ("first", "second"):
        job(cluster, name, "one", copy="0")
    claim = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)["n", "one"]
    claim["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    await cluster.server.delete(DATASETS, name="one", namespace="n")
    await cluster.until(lambda: cluster.condition("Ready", "one").get("reason") == "InUse")
    await cluster.until(lambda: counts(cluster, "one") == (2, 0))
    for name in ("first", "second"):
        ends(cluster, name)
    await cluster.until(lambda: counts(cluster, "one") == (0, 0))


async def test_fewer_copies_than_exist_is_reported_and_takes_none_from_a_job(cluster: Cluster) -> None:
    whole = {"mode": "Replicate", "nodeCount": 1}
    access = {"maxConcurrentJobs": 1, "onLimit": "Clone"}
    await create(cluster, "one", placement=whole, access=access)
    await cluster.until_state("Ready", "one")
    job(cluster, "first", "one", copy="0")
    job(cluster, "second", "one")
    await cluster.until(lambda: on_disk(cluster, "one") == 2 * SIZE)
    job(cluster, "second", "one", copy="clone-1")
    await cluster.until(lambda: cluster.status("one").get("activeJobs") == 2)
    fewer = {"spec": {"access": {**access, "maxCopies": 1}}}
    await cluster.server.merge(DATASETS, name="one", namespace="n", patch=fewer)
    await cluster.until(lambda: grant_reason(cluster, "one") == "CopiesAboveMaximum")
    condition = cluster.condition("Granted", "one")
    assert condition["status"] == "True"
    assert "there are 2 copies, and spec.access.maxCopies is 1" in condition["message"]
    assert "set spec.access.maxCopies to 2" in condition["message"]
    later = time.monotonic() + 3 * QUICK.clone_idle_seconds

    def long_since() -> bool:
        assert on_disk(cluster, "one") == 2 * SIZE
        cluster.context.queue.add(WorkKey(DATASETS, "n", "one"))
        return time.monotonic() > later

    await cluster.until(long_since)
    ends(cluster, "second")
    await cluster.until(lambda: grant_reason(cluster, "one") == "Granted")
    await cluster.until(lambda: on_disk(cluster, "one") == SIZE)


async def set_quota(cluster: Cluster, quota: dict[str, Any]) -> None:
    patch = {"spec": {"quotas": [quota]}}
    await cluster.server.merge(CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch=patch)


async def test_a_quota_bounds_what_the_datasets_of_a_namespace_take(cluster: Cluster) -> None:
    cluster.server.store(NAMESPACES)["", "n"] = {"metadata": {"name": "n", "labels": {"team": "vision"}}}
    quota = {"name": "vision", "namespaceSelector": {"matchLabels": {"team": "vision"}}, "bytes": 50 * MB}
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"quotas": [quota]}}
    )
    spread = {"mode": "Partition", "nodeCount": 4}
    await create(cluster, "one", placement=spread)
    await cluster.until_state("Ready", "one")
    await create(cluster, "two", placement=spread)
    await cluster.until(lambda: on_disk(cluster, "one") + on_disk(cluster, "two") >= 47 * MB)
    assert sum(cluster.held().values()) <= 50 * MB
    await cluster.until(
        lambda: "QuotaExceeded" in (grant_reason(cluster, "one"), grant_reason(cluster, "two")),
    )
    other_quota = {"name": "other", "namespaceSelector": {"matchLabels": {"team": "speech"}}, "bytes": 1}
    await cluster.server.merge(
        CACHE_CLUSTERS,
        name="default",
        namespace=names.SYSTEM_NAMESPACE,
        patch={"spec": {"quotas": [other_quota]}},
    )
    await cluster.until(lambda: on_disk(cluster, "one") + on_disk(cluster, "two") == 2 * SIZE)


async def test_a_policy_that_is_not_installed_is_named_and_nothing_leaves(cluster: Cluster) -> None:
    await create(cluster, "one", eviction={"policy": "Magic"})
    await cluster.until(lambda: grant_reason(cluster, "one") == "UnknownPolicy")
    one_of = "set spec.eviction.policy to one of LRFU, LRU, NextUse, Pin, Timed, or install it"
    assert one_of in cluster.condition("Granted", "one")["message"]
    assert cluster.server.store(DATASETS)["n", "one"]["status"]["state"] in ("Loading", "Ready")


async def test_warns_on_cron_that_never_fires_and_ttl_shorter_than_load(cluster: Cluster) -> None:
    await create(cluster, "one", eviction={"policy": "Timed", "schedule": "0 0 30 2 *"})
    await cluster.until(lambda: grant_reason(cluster, "one") == "ScheduleNeverFires")
    assert "'0 0 30 2 *', never fires" in cluster.condition("Granted", "one")["message"]

    slowly = {"uri": "s3://two", "bandwidth": 16 * MB}
    one_node = {"mode": "Replicate", "nodeCount": 1}
    await cluster.create_dataset(
        "two", source=slowly, placement=one_node, eviction={"policy": "Timed", "ttl": "1s"}
    )
    await cluster.until(lambda: grant_reason(cluster, "two") == "TtlShorterThanLoad")
    assert cluster.status("two")["loadSeconds"] > 1
    assert "longer than a load" in cluster.condition("Granted", "two")["message"]


async def test_a_quota_below_what_is_pinned_is_reported_and_evicts_nothing(cluster: Cluster) -> None:
    await create(cluster, "one", eviction={"policy": "Pin"})
    await cluster.until_state("Ready", "one")
    quota = {"name": "all", "namespaceSelector": {}, "bytes": 10 * MB}
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"quotas": [quota]}}
    )
    cluster.context.queue.add(WorkKey(DATASETS, "n", "one"))

    def ready_condition() -> dict[str, Any]:
        return cluster.condition(names.WITHIN_QUOTAS, "default", resource=CACHE_CLUSTERS)

    await cluster.until(lambda: ready_condition())
    assert ready_condition()["reason"] == "PinnedBeyondQuota", "it is Within for no moment"
    assert "all allows 9.5 MiB, and pinned data takes 38.1 MiB" in ready_condition()["message"]
    assert on_disk(cluster, "one") == SIZE
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"quotas": []}}
    )
    cluster.context.queue.add(WorkKey(DATASETS, "n", "one"))
    await cluster.until(lambda: ready_condition().get("status") == "True")
