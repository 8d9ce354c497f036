"""A source or a cache that hangs holds up nobody but its own Datasets."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from tests.support.caches import MemoryCaches
from tests.support.twins.agents import MemoryAgents
from tests.support.twins.engine import MemoryEngine, Operation
from tests.support.twins.local_lister import LocalLister
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.control.cache_registry import Cache
from tdcs.control.context import WorkKey
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SECRETS

MB = 1_000_000
HOLES = [f"hole{number}" for number in range(6)]
NAMESPACES = ["m", "o", "p"]
"""Of the holes: a single one has no places for the listings of all."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    sources = {f"s3://{name}": {"a": MB} for name in ("pictures", *HOLES)}
    engine = MemoryEngine(sources=sources, workers={"a": 100 * MB})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        for namespace in NAMESPACES:
            cluster.server.store(SECRETS)[namespace, "keys"] = cluster.server.store(SECRETS)["n", "keys"]
        yield cluster


async def create_holes(cluster: Cluster) -> None:
    for name, namespace in zip(HOLES, NAMESPACES * 2, strict=True):
        source = {"uri": f"s3://{name}", "secretRef": {"name": "keys"}}
        obj = {"apiVersion": names.API_VERSION, "kind": "Dataset", "spec": {"source": source}}
        await cluster.server.create(DATASETS, obj={**obj, "metadata": {"name": name, "namespace": namespace}})


def states_of_holes(cluster: Cluster) -> set[str | None]:
    datasets = cluster.server.store(DATASETS).items()
    return {(obj.get("status") or {}).get("state") for (_, name), obj in datasets if name in HOLES}


@pytest.mark.parametrize("hanging", ["mount", "files"])
@pytest.mark.failure_mode("source-hangs-at-mount")
async def test_twice_as_many_hanging_mounts_as_passes_hold_up_no_other_dataset(
    cluster: Cluster, hanging: str
) -> None:
    answers, waiting = asyncio.Event(), 0

    async def hang(operation: Operation) -> None:
        nonlocal waiting
        if operation.name == hanging:
            waiting += 1
            await answers.wait()

    cluster.engine.before = hang
    await create_holes(cluster)
    await cluster.until(lambda: waiting == len(HOLES))
    assert states_of_holes(cluster) == {"Mounting"}
    hanging = "nothing more"
    began = time.monotonic()
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.status().get("totalFiles"))
    assert time.monotonic() - began < 10  # and not only when a mount is given up
    await cluster.until_state("Ready")
    answers.set()
    await cluster.until(lambda: states_of_holes(cluster) == {"Ready"})
    assert waiting == len(HOLES)  # each was asked for once, however many passes looked


class TwoCaches(MemoryCaches):
    """The cache cluster `hung` answers nothing; any other one is an engine in memory."""

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.silent = MemoryEngine(sources=engine.sources, workers={"a": 100 * MB})
        self.silent.before = self._never
        self._hung = Cache(
            engine=self.silent,
            agents=MemoryAgents(engine=self.silent, manifests=self.folder.open),
            lister=LocalLister(engine=self.silent, folder=self.folder),
            check_keys=self.silent.check_keys,
        )

    def get(self, *, cluster: str) -> Cache:
        return self._hung if cluster == "hung" else super().get(cluster=cluster)

    @staticmethod
    async def _never(operation: Operation) -> None:
        await asyncio.Event().wait()


@pytest.mark.failure_mode("cache-silent")
async def test_a_cache_that_hangs_delays_its_own_datasets_only_and_does_not_stop_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs.control.cache_observer.ANSWER_SECONDS", 1.0)
    engine = MemoryEngine(sources={"s3://pictures": {"a": MB}}, workers={"a": 100 * MB})
    caches = TwoCaches(engine)
    async with Cluster(engine=engine, nodes={"a": {}}, caches=lambda _: caches) as cluster:
        await cluster.create_cache()
        await cluster.create_cache("hung")
        await cluster.create_keys()
        for number in range(20):
            await cluster.create_dataset(f"stuck{number}", cacheClusterRef={"name": "hung"})
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        assert cluster.context.queue.oldest_age() < 5  # health looks at this: no pass waits for the cache
        assert {cluster.status(f"stuck{number}").get("state") for number in range(20)} <= {
            None,
            "Mounting",
            "Pending",
            "Failed",
        }
        await cluster.server.delete(DATASETS, name="pictures", namespace="n")
        await cluster.until(lambda: ("n", "pictures") not in cluster.server.store(DATASETS))
        await cluster.until(lambda: cluster.context.queue.oldest_age() < 1)
        caches.silent.before = None
        for number in range(20):
            await cluster.until_state("Ready", f"stuck{number}")
    await caches.get(cluster="hung").agents.close()
    await caches.end()


async def test_a_pass_that_finds_a_twin_at_work_comes_back_instead_of_waiting(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    (mount,) = cluster.mounts
    async with mount.lock, asyncio.timeout(60):
        again = await cluster.datasets.reconcile(WorkKey(DATASETS, "n", "pictures"))
    assert again is not None
    assert 0 < again <= 1


@pytest.mark.failure_mode("source-hangs-at-mount")
async def test_unmounting_that_takes_long_holds_up_nobody_and_one_who_comes_meanwhile_mounts_again(
    cluster: Cluster,
) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    begun, answers = asyncio.Event(), asyncio.Event()

    async def hang(operation: Operation) -> None:
        if operation.name == "unmount":
            begun.set()
            await answers.wait()

    cluster.engine.before = hang
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(begun.is_set)
    await cluster.create_dataset("next")
    await cluster.until_state("Mounting", "next")
    async with asyncio.timeout(60):
        await cluster.datasets.reconcile(WorkKey(DATASETS, "n", "pictures"))
    answers.set()
    await cluster.until(lambda: ("n", "pictures") not in cluster.server.store(DATASETS))
    await cluster.until_state("Ready", "next")
    assert cluster.held() == {"a": MB}


def use_claim(
    cluster: Cluster,
    name: str,
    *,
    claim: str = "pictures",
    job: str = "",
    node: str = "a",
    phase: str = "Running",
) -> None:
    """A pod that names a claim."""
    labels = {"tdcs.io/training-job": job} if job else {}
    cluster.server.store(PODS)["n", name] = {
        "metadata": {"name": name, "namespace": "n", "labels": labels},
        "spec": {
            "nodeName": node,
            "volumes": [{"persistentVolumeClaim": {"claimName": claim}}, {"emptyDir": {}}],
        },
        "status": {"phase": phase},
    }


@pytest.mark.failure_mode("dataset-deleted-while-used")
async def test_a_deleted_dataset_keeps_its_data_while_pods_use_its_claim_and_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.dataset_deletion.RETRY_SOON", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.dataset_deletion.POLL", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.POLL", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.RETRY_SOON", 0.1)
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    claim = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)["n", "pictures"]
    claim["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    use_claim(cluster, "reader")
    for number in range(2):
        use_claim(cluster, f"old-worker-{number}", job="old", phase="Succeeded")
        use_claim(cluster, f"train-worker-{number}", job="train")
    use_claim(cluster, "viewer")
    use_claim(cluster, "waits", node="")
    use_claim(cluster, "other", claim="tables")
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "InUse")
    assert cluster.status()["state"] == "Deleting"
    assert cluster.condition("Loaded")["status"] == "True", "its data stays until the pods are gone"
    message = cluster.condition("Ready")["message"]
    assert message == (
        "the claim n/pictures is still used by 4 pods: pod reader, TrainingJob train (pod train-worker-0 and 1 more) "
        "and pod viewer; the cached data is kept for them: end these pods, or delete their TrainingJobs"
    )
    assert cluster.held() == {"a": MB}
    for name in ("viewer", "train-worker-0", "train-worker-1"):
        cluster.server.store(PODS).pop(("n", name))
    await cluster.until(lambda: "by 1 pod: pod reader;" in cluster.condition("Ready")["message"])
    # What has ended keeps nothing: Kubernetes' own protection of the claim would wait for it.
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    cluster.server.store(PODS).pop(("n", "reader"))
    await cluster.until(lambda: not cluster.server.store(DATASETS))
    assert cluster.held() == {}
    assert not cluster.server.store(PERSISTENT_VOLUMES)


async def test_a_dataset_whose_mount_hangs_can_be_deleted(cluster: Cluster) -> None:
    call_began = asyncio.Event()

    async def hang(operation: Operation) -> None:
        if operation.name == "mount":
            call_began.set()
            await asyncio.Event().wait()

    cluster.engine.before = hang
    await cluster.create_dataset()
    await cluster.until(call_began.is_set)
    await cluster.server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))


async def test_a_source_that_refuses_is_tried_again_without_a_write_and_not_every_few_seconds(
    cluster: Cluster,
) -> None:
    attempts = 0

    async def count(operation: Operation) -> None:
        nonlocal attempts
        attempts += operation.name == "mount"

    cluster.engine.before = count
    await cluster.create_dataset(source={"uri": "s3://nowhere"})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceRefused")
    written, tried = [write for write in cluster.server.writes if "Dataset" in write], attempts
    key = WorkKey(DATASETS, "n", "pictures")

    def tried_again() -> bool:
        cluster.context.queue.add(key)  # whatever wakes it before it comes back by itself
        return attempts > tried + 1

    await cluster.until(tried_again)
    assert [write for write in cluster.server.writes if "Dataset" in write] == written
    (mount,) = cluster.mounts
    await cluster.until(lambda: not mount.mounting.busy)
    waits = [await cluster.datasets.reconcile(key) for _ in range(2)]
    assert min(wait for wait in waits if wait is not None) >= cluster.context.settings.survey_seconds
