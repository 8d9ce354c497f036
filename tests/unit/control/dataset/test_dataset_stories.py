"""What a user of Datasets sees, from the spec to the bytes, on an API server and a cache in memory."""

import errno
import itertools
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.support.twins.engine import Operation
from tests.support.twins.local_lister import LocalLister
from tests.support.waiting import eventually_async
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.dataset.conftest import MB, TOTAL, ZONES, engine_of, slow
from tests.unit.kube.fake import error

from tdcs.control.context import WorkKey
from tdcs.kube.errors import ForbiddenError
from tdcs.listing.folder import ManifestFolder
from tdcs.model.cache_engine import WorkerInfo
from tdcs.model.kube_resources import (
    DATASETS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
    Resource,
)


@pytest.mark.parametrize(
    ("start", "state"), [("2099-01-01T00:00:00Z", "Scheduled"), ("2001-01-01T00:00:00Z", "Ready")]
)
async def test_a_start_time_is_waited_for_and_a_past_one_means_now(
    cluster: Cluster, start: str, state: str
) -> None:
    await cluster.create_dataset(preload={"startTime": start})
    await cluster.until_state(state)
    assert bool(cluster.held()) == (state == "Ready")
    if state == "Scheduled":
        await cluster.change(DATASETS, "pictures", preload={"startTime": None})
        await cluster.until_state("Ready")


async def test_nodes_are_remounted_for_each_version_and_for_nothing_else(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 1})
    await cluster.until_state("Ready")
    (path,) = await cluster.engine.mounts()
    first = dict(await cluster.engine.versions())
    assert list(first) == [path]
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    assert await cluster.engine.versions() == first
    changed = dict(cluster.engine.source_files(uri="s3://pictures", path=path))
    name = min(changed)
    cluster.engine.sources["s3://pictures"] = {**changed, name: changed[name] + 1}
    await cluster.annotate("pictures", refresh="2")
    await cluster.until(lambda: cluster.status().get("refreshed") == "2")

    async def is_remounted() -> bool:
        return await cluster.engine.versions() != first

    await eventually_async(is_remounted, deadline=30)


async def test_other_keys_endpoints_and_prefixes_of_a_mounted_bucket_are_mounts_of_their_own(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset("first")
    await cluster.until_state("Ready", "first")
    await cluster.create_keys("other", key="another")
    cluster.engine.sources["s3://pictures/train"] = {"001.jpg": MB}
    sources: dict[str, dict[str, Any]] = {
        "keys": {"secretRef": {"name": "other"}},
        "endpoint": {"options": {"endpoint": "https://203.0.113.9"}},
        "inner": {"uri": "s3://pictures/train"},
    }
    for name, source in sources.items():
        await cluster.create_dataset(name, source=source, preload={"enabled": False})
        await cluster.until_state("Ready", name)
    paths = [cluster.status(name)["mountPath"] for name in ("first", *sources)]
    assert len(set(paths)) == 4
    assert cluster.status("first")["state"] == "Ready"


async def test_keys_that_were_changed_for_all_are_shared_by_a_new_dataset(cluster: Cluster) -> None:
    await cluster.create_dataset("first")
    await cluster.until_state("Ready", "first")
    await cluster.create_keys(key="renewed")
    await cluster.annotate("first", refresh="1")
    await cluster.until(lambda: cluster.status("first").get("refreshed") == "1")
    await cluster.create_dataset("second")
    await cluster.until_state("Ready", "second")
    assert cluster.status("first")["mountPath"] == cluster.status("second")["mountPath"]


async def test_a_serving_dataset_stays_ready_when_its_secret_may_not_be_read_any_more(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")

    def forbid(verb: str, resource: Resource) -> None:
        if resource is SECRETS:
            raise error(ForbiddenError)

    cluster.server.refuse = forbid
    await cluster.until_state("Degraded")
    assert cluster.condition("Ready")["status"] == "True"
    reached = cluster.condition("SourceReachable")
    assert (reached["status"], reached["reason"]) == ("False", "SecretForbidden")
    assert "kubectl create rolebinding" in reached["message"]
    await cluster.stop()
    await cluster.start()  # a new operator knows no better
    await cluster.change(DATASETS, "pictures", placement={"nodeCount": 2})
    await cluster.until(lambda: len(cluster.nodes()) == 2 and cluster.condition("Ready")["status"] == "True")
    cluster.server.refuse = lambda verb, resource: None
    await cluster.until_state("Ready")


async def test_the_claim_has_the_size_of_the_data(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    claim = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)["n", "pictures"]
    volume = cluster.server.store(PERSISTENT_VOLUMES)["", "tdcs.n.pictures"]
    assert (
        claim["spec"]["resources"]["requests"]["storage"] == volume["spec"]["capacity"]["storage"] == "20Mi"
    )


async def test_a_claim_of_somebody_else_is_never_touched(cluster: Cluster) -> None:
    foreign = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "pictures", "namespace": "n"},
        "spec": {"x": 1},
    }
    await cluster.server.create(PERSISTENT_VOLUME_CLAIMS, obj=foreign)
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "NameTaken")
    assert "PersistentVolumeClaim n/pictures exists" in cluster.condition("Ready")["message"]
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))
    assert cluster.server.store(PERSISTENT_VOLUME_CLAIMS)["n", "pictures"]["spec"] == {"x": 1}
    assert cluster.held() == {}


async def test_changes_at_the_source_are_found_on_demand(cluster: Cluster) -> None:
    await cluster.create_dataset(source={"checkInterval": "0s"})
    await cluster.until_state("Ready")
    checked = cluster.status()["lastSourceCheckTime"]
    files = {f"new/{n}": MB for n in range(3)} | {"train/001.jpg": 2 * MB}
    cluster.engine.sources["s3://pictures"] = files
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await cluster.until_state("Ready")
    status = cluster.status()
    assert (status["totalFiles"], status["totalBytes"], status["cachedBytes"]) == (4, 5 * MB, 5 * MB)
    assert sum(cluster.held().values()) == 5 * MB
    assert status["lastSourceCheckTime"] >= checked
    listings: list[str] = []
    cluster.engine.before = lambda operation: _note(listings, operation)
    await cluster.annotate("pictures", refresh="2")
    await cluster.until(lambda: cluster.status().get("refreshed") == "2")


def _longer(lists: list[str], than: int) -> bool:
    return len(lists) > than


async def _note(listings: list[str], operation: Operation) -> None:
    listings.append(operation.name)


async def test_a_source_that_is_away_does_not_stop_a_dataset_that_serves(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    files = cluster.engine.sources.pop("s3://pictures")
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.condition("SourceReachable").get("status") == "False")
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.status().get("refreshed") is None
    cluster.engine.sources["s3://pictures"] = files
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await cluster.until_state("Ready")


async def test_blocks_that_somebody_freed_are_loaded_again(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"nodeCount": 1})
    await cluster.until_state("Ready")
    (node,) = cluster.held()
    cluster.agents.evict(node, count=7)
    await cluster.until(lambda: cluster.held() == {node: TOTAL})


async def test_a_source_lost_during_a_load_is_reported_and_the_load_ends_when_it_is_back(
    cluster: Cluster,
) -> None:
    slow(cluster, 0.02)
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.status().get("loadedBytes", 0) > 2 * MB)
    files = cluster.engine.sources.pop("s3://pictures")
    await cluster.until(lambda: cluster.condition("Loaded").get("reason") == "LoadFailed", deadline=60)
    assert "there is no such bucket" in cluster.condition("Ready")["message"]
    assert cluster.condition("Ready")["status"] == "False"
    cluster.engine.sources["s3://pictures"] = files
    await cluster.until_state("Ready")


@pytest.mark.parametrize("loaded", [False, True], ids=["first", "later"])
@pytest.mark.parametrize(
    ("place", "failure"),
    [
        ((ManifestFolder, "write"), OSError(errno.ENOSPC, "No space left on device")),
        ((LocalLister, "list"), OSError(errno.EAGAIN, "Resource temporarily unavailable")),
    ],
    ids=["no room", "no process"],
)
@pytest.mark.failure_mode("operator-disk-full")
async def test_an_operator_that_cannot_list_says_so_and_goes_on_when_it_can(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    loaded: bool,
    place: tuple[type, str],
    failure: OSError,
) -> None:
    def refuses(*_: object, **__: object) -> object:
        raise failure

    if loaded:
        await cluster.create_dataset()
        await cluster.until_state("Ready")
    with monkeypatch.context() as broken:
        broken.setattr(*place, refuses)
        if loaded:
            await cluster.annotate("pictures", refresh="1")
            await cluster.until(lambda: cluster.condition("SourceReachable").get("status") == "False")
            assert cluster.condition("Ready")["status"] == "True"
        else:
            await cluster.create_dataset()
        await cluster.until(lambda: str(failure.strerror) in cluster.condition("Ready").get("message", ""))
    await cluster.until_state("Ready")
    await cluster.until(lambda: cluster.condition("SourceReachable")["status"] == "True")
    assert cluster.status().get("refreshed") == ("1" if loaded else None)


NAMES = ["with blank", "ünïcödé", "a:b", "100%", "x" * 255, "train/+plus&and", "#hash?"]


async def test_strange_names_and_empty_files_are_loaded(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = dict.fromkeys(NAMES, MB) | {"empty": 0}
    await cluster.create_dataset(preload={"paths": [*NAMES, "empty"]})
    await cluster.until_state("Ready")
    assert sum(cluster.held().values()) == len(NAMES) * MB
    assert cluster.status()["totalFiles"] == len(NAMES) + 1


async def test_a_folder_of_twenty_thousand_files_is_counted_and_its_part_loaded(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {f"all/{number:06d}.jpg": 1000 for number in range(20_000)}
    await cluster.create_dataset(preload={"percent": 5}, placement={"nodeCount": 1})
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=120)
    status = cluster.status()
    assert (status["totalFiles"], status["totalBytes"]) == (20_000, 20 * MB)
    slot = 1.5 * 20 * MB / 4096
    assert MB - slot < sum(cluster.held().values()) <= MB


async def test_a_folder_must_be_below_one_that_the_cache_may_read(cluster: Cluster) -> None:
    cluster.engine.sources["file:///nfs/pictures"] = {"a": MB}
    await cluster.create_dataset(source={"uri": "file:///nfs/pictures", "secretRef": None})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "FolderNotAllowed")
    assert "(spec.sources[].folders, spec.sourceFolders)" in cluster.condition("Ready")["message"]


async def test_checks_of_the_source_that_change_nothing_are_no_writes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    lists: list[str] = []
    cluster.engine.before = lambda operation: _note(lists, operation)
    # Every look is a check of the source, as if its interval were always over.
    monkeypatch.setattr("tdcs.decide.relisting.to_seconds", lambda _: 0.001)
    before = list(cluster.server.writes)
    for most in range(3, 10, 3):
        cluster.context.queue.add(WorkKey(DATASETS, "n", "pictures"))
        await cluster.until(partial(_longer, lists, most))
    await cluster.until(lambda: len(cluster.context.queue) == 0)
    assert [write for write in cluster.server.writes[len(before) :] if "status Dataset" in write] == []
    # An hour later its time is written again.
    monkeypatch.setattr("tdcs.decide.relisting.WRITTEN_AGAIN", 0.0)
    cluster.context.queue.add(WorkKey(DATASETS, "n", "pictures"))
    await cluster.until(lambda: len(cluster.server.writes) > len(before))


@pytest.mark.failure_mode("worker-restarts")
async def test_a_worker_that_restarts_keeps_its_data_and_one_that_stays_away_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, looks, ahead = engine_of(), itertools.count(), 0.0
    async with Cluster(
        engine=engine,
        nodes={name: {} for name in ZONES},
        settings=replace(QUICK, return_seconds=300.0),
        most_wait=1.0,
        clock=lambda: time.monotonic() + ahead,
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 2})
        await cluster.until_state("Ready")
        before, read = cluster.nodes(), engine.source_bytes_read
        absent = min(before)

        engine.set_worker(name=absent, live=False)
        calls, workers = 0, engine.workers

        async def counted() -> list[WorkerInfo]:
            nonlocal calls
            calls = next(looks)
            return await workers()

        monkeypatch.setattr(engine, "workers", counted)
        await cluster.until(lambda: calls >= 20)  # by the caches and by the datasets
        engine.set_worker(name=absent, live=True)
        await cluster.until(lambda: cluster.nodes() == before and cluster.status()["state"] == "Ready")
        assert engine.source_bytes_read == read

        def moved_when_it_is_late() -> bool:
            nonlocal ahead
            ahead += 100.0
            return absent not in cluster.nodes() and len(cluster.nodes()) == 2

        engine.set_worker(name=absent, live=False)
        await cluster.until(moved_when_it_is_late)
        await cluster.until_state("Ready")


async def test_a_claim_that_was_deleted_is_made_again_at_once() -> None:
    # No look at the mounts finds it: those are a minute apart.
    settings = replace(QUICK, survey_seconds=60.0)
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=settings) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        claims, volumes = (
            cluster.server.store(kind) for kind in (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
        )

        def phase(value: str) -> None:
            """What the volume controller says of the volume."""
            (volume,) = volumes.values()
            volume["status"] = {"phase": value}
            volume["spec"]["claimRef"]["uid"] = first

        first = claims["n", "pictures"]["metadata"]["uid"]
        phase("Bound")
        claims["n", "pictures"]["status"] = {"phase": "Bound"}
        await cluster.quiet()
        passes = cluster.passes
        await cluster.server.delete(PERSISTENT_VOLUME_CLAIMS, name="pictures", namespace="n")
        await cluster.until(lambda: cluster.passes > passes + 2)
        assert not claims  # one that is made before the volume is released would not be bound
        phase("Released")
        await cluster.until(lambda: ("n", "pictures") in claims)
        assert [volume.get("status") for volume in volumes.values()] != [{"phase": "Released"}]
