"""Conditions under normal operations: none leaves True without a cause that a person must act on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from tests.unit.control.cluster import QUICK
from tests.unit.control.jobs import Jobs
from tests.unit.control.workers import WorkersCluster

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PRELOADS,
    TRAINING_JOBS,
    Resource,
)

KB = 1000
SOURCES = {
    "s3://pictures": {f"p{number:02d}": KB for number in range(24)},
    "s3://texts": {f"t{number:02d}": KB for number in range(6)},
}
PASSING = frozenset({names.PROGRESSING, names.SUSPENDED})
"""Conditions that say what goes on just now: they are True for a while by their meaning."""


@dataclass(frozen=True, kw_only=True)
class Fall:
    """A condition that was True and is not any more."""

    kind: str
    name: str
    condition: str
    reason: str
    message: str


class Conditions:
    """Records each condition that leaves True, of objects as they change."""

    def __init__(self) -> None:
        self.falls: list[Fall] = []
        self._true: dict[tuple[str, str, str], set[str]] = {}

    def see(self, resource: Resource, obj: Object) -> None:
        metadata = obj["metadata"]
        key = (resource.kind, metadata.get("namespace", ""), metadata["name"])
        conditions = (obj.get("status") or {}).get("conditions") or ()
        true_before = self._true.get(key, set())
        self.falls += [
            Fall(
                kind=resource.kind,
                name=metadata["name"],
                condition=condition["type"],
                reason=condition["reason"],
                message=condition["message"],
            )
            for condition in conditions
            if condition["type"] in true_before - PASSING and condition["status"] != "True"
        ]
        self._true[key] = {condition["type"] for condition in conditions if condition["status"] == "True"}


class RecordedCluster(WorkersCluster):
    """Records the conditions of all kinds but jobs; its master may be away for long before that is a fault."""

    def __init__(self) -> None:
        super().__init__(sources=dict(SOURCES), nodes="abcd", capacity=100 * KB)
        self._settings = replace(QUICK, return_seconds=0.2, outage_seconds=600.0)
        self.conditions = Conditions()

    @property
    def falls(self) -> list[Fall]:
        return self.conditions.falls

    def _changed(self, resource: Resource, obj: Object, deleted: bool) -> None:
        if resource in (CACHE_CLUSTERS, DATASETS, PRELOADS) and not deleted:
            self.conditions.see(resource, obj)
        super()._changed(resource, obj, deleted)

    def is_whole(self) -> bool:
        """Whether all that is wanted of both Datasets is on nodes, and every condition is true."""
        return all(
            self.status(name).get("loadedRatio") == 1.0
            and self.status(name).get("state") == "Ready"
            and self.condition("Ready", name).get("status") == "True"
            for name in ("pictures", "texts")
        )


@pytest.fixture
async def cluster() -> AsyncIterator[RecordedCluster]:
    async with RecordedCluster() as cluster:
        await cluster.create_cache(nodeSelector={"cache": "yes"}, replicas=3)
        await cluster.create_dataset(placement={"mode": "Partition", "nodeCount": 2})
        await cluster.create_dataset(
            "texts",
            source={"uri": "s3://texts", "checkInterval": "1s"},
            placement={"mode": "Replicate", "nodeCount": 2},
        )
        await cluster.create_preload()
        await cluster.until_state("Complete", "warm", resource=PRELOADS)
        await cluster.until(lambda: cluster.is_whole() and len(cluster.workers()) == 3)
        node = next(iter(cluster.nodes("texts")))
        cluster.read("trainer", "texts", node=node)
        await cluster.until(lambda: cluster.status("texts").get("usedBy"))
        yield cluster


async def whole_with(cluster: RecordedCluster, workers: int) -> None:
    """Until so many workers are Ready, and all data is there."""
    await cluster.until(
        lambda: (
            list(cluster.workers().values()) == ["Ready"] * workers
            and len(cluster.worker_nodes()) == workers
            and cluster.is_whole()
        )
    )


async def looked_at(cluster: RecordedCluster) -> None:
    """Until both Datasets have been looked at several times from now on."""
    before = cluster.passes
    await cluster.until(lambda: cluster.passes > before + 8)


async def answers_again(cluster: RecordedCluster, *, outages: int) -> None:
    """Until the master has come back more often than that."""
    await cluster.until(lambda: cluster.observer.view("default").outages > outages)


async def upgrade(cluster: RecordedCluster, *, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Another version of the spec: the workers restart one after the other, and something happens while one is away."""
    await cluster.scale(image="tdcs/alluxio:next")
    for node in sorted(cluster.worker_nodes()):
        cluster.engine.set_worker(name=node, live=False)
        await meanwhile()
        cluster.agents.restart(node, forgets=False)
        cluster.engine.set_worker(name=node, live=True)
        await whole_with(cluster, 3)


@pytest.mark.failure_mode("conditions-in-normal-operations")
async def test_no_condition_leaves_true_in_normal_operations(cluster: RecordedCluster) -> None:
    # Scale out, and in again.
    await cluster.scale(replicas=4)
    await whole_with(cluster, 4)
    await cluster.scale(replicas=3)
    await whole_with(cluster, 3)
    assert cluster.falls == [], "scaling"

    await upgrade(cluster, meanwhile=lambda: asyncio.sleep(0.05))
    assert cluster.falls == [], "an upgrade"

    # A node that holds data is lost for longer than its worker is waited for, and comes back.
    lost = max(cluster.held(), key=lambda node: cluster.held()[node])
    cluster.engine.set_worker(name=lost, live=False)
    await cluster.until(lambda: cluster.workers().get(lost) == "Lost" and cluster.is_whole())
    cluster.agents.restart(lost, forgets=False)
    cluster.engine.set_worker(name=lost, live=True)
    await whole_with(cluster, 3)
    assert cluster.falls == [], "a lost node"

    await cluster.restart()
    await whole_with(cluster, 3)
    assert cluster.falls == [], "a restart of the operator"

    # The master restarts: it answers nobody for many looks; and once more while the operator restarts.
    for restarts_too in (False, True):
        outages = cluster.observer.view("default").outages
        cluster.engine.available = False
        await cluster.until(lambda: cluster.observer.view("default").failure is not None)
        await looked_at(cluster)
        if restarts_too:
            await cluster.restart()
            await cluster.until(lambda: cluster.observer.view("default").failure is not None)
            await looked_at(cluster)
            outages = 0
        cluster.engine.available = True
        await answers_again(cluster, outages=outages)
        await whole_with(cluster, 3)
    assert cluster.falls == [], "a restart of the master"

    # The source changes and is listed again: one file more, one less, one longer.
    cluster.engine.sources["s3://texts"] = {"t00": 2 * KB, "t02": KB, "new": KB}
    await cluster.annotate("texts", refresh="now")
    await cluster.until(lambda: cluster.status("texts").get("totalFiles") == 3)
    await whole_with(cluster, 3)
    assert cluster.falls == [], "another listing"

    # A node that holds data leaves the cache by its label, and joins again.
    leaver = next(iter(cluster.nodes("texts")))
    await cluster.server.merge(NODES, name=leaver, patch={"metadata": {"labels": {"cache": None}}})
    await cluster.until(lambda: leaver not in cluster.worker_nodes() and cluster.is_whole())
    await cluster.server.merge(NODES, name=leaver, patch={"metadata": {"labels": {"cache": "yes"}}})
    await whole_with(cluster, 3)
    assert cluster.falls == [], "a drain"


class RecordedJobs(Jobs):
    """Jobs that read the Datasets of a cluster, and whose conditions are recorded."""

    def __init__(self, cluster: RecordedCluster) -> None:
        super().__init__(gpus={"x": 4, "y": 4})
        self.conditions = Conditions()
        self.server.stores[DATASETS.plural] = cluster.server.store(DATASETS)

    def _changed(self, resource: Resource, obj: Object, deleted: bool) -> None:
        if resource is TRAINING_JOBS and not deleted:
            self.conditions.see(resource, obj)
        super()._changed(resource, obj, deleted)

    async def looked_at(self) -> None:
        """Until the job has been looked at twice from now on: the second look begins after this."""
        for _ in range(2):
            before = self.passes
            self.context.queue.add(WorkKey(TRAINING_JOBS, "n", "train"))
            await self.until(lambda before=before: self.passes > before)  # type: ignore[misc]


async def test_no_condition_of_a_running_job_leaves_true_in_normal_operations(
    cluster: RecordedCluster,
) -> None:
    for key in (("n", "pictures"), ("n", "texts")):
        cluster.server.store(PERSISTENT_VOLUME_CLAIMS)[key]["status"] = {"phase": "Bound"}
    await cluster.until(lambda: all(cluster.status(name).get("claimName") for name in ("pictures", "texts")))
    reads = [
        {"name": "pictures", "mountPath": "/pictures", "readiness": {"percent": 100}},
        {"name": "texts", "mountPath": "/texts"},
    ]
    async with RecordedJobs(cluster) as jobs:
        await jobs.create(datasets=reads)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until(lambda: jobs.status().get("state") == "Running")

        # The cache is scaled out, and in again: what it holds moves.
        for workers in (4, 3):
            await cluster.scale(replicas=workers)
            await jobs.looked_at()
            await whole_with(cluster, workers)
            await jobs.looked_at()
        assert jobs.conditions.falls + cluster.falls == [], "scaling"

        # Its workers are upgraded, and then the operator.
        await upgrade(cluster, meanwhile=jobs.looked_at)
        await cluster.restart()
        await jobs.stop()
        await jobs.start()
        await jobs.looked_at()
        await whole_with(cluster, 3)
        await jobs.looked_at()
        assert jobs.conditions.falls + cluster.falls == [], "an upgrade"

        # A node that holds data is lost, and comes back.
        lost = max(cluster.held(), key=lambda node: cluster.held()[node])
        cluster.engine.set_worker(name=lost, live=False)
        await cluster.until(lambda: cluster.workers().get(lost) == "Lost")
        await jobs.looked_at()
        await cluster.until(cluster.is_whole)
        cluster.agents.restart(lost, forgets=False)
        cluster.engine.set_worker(name=lost, live=True)
        await whole_with(cluster, 3)
        await jobs.looked_at()
        assert jobs.conditions.falls + cluster.falls == [], "a lost node"

        # The cache's master is silent, and both operators restart meanwhile.
        cluster.engine.available = False
        await cluster.until(lambda: cluster.observer.view("default").failure is not None)
        await cluster.restart()
        await jobs.stop()
        await jobs.start()
        await jobs.looked_at()
        cluster.engine.available = True
        await whole_with(cluster, 3)
        assert jobs.conditions.falls == [], "restarts"

        # The source has another version.
        cluster.engine.sources["s3://texts"] = {"t00": 2 * KB, "t02": KB, "new": KB}
        await cluster.annotate("texts", refresh="now")
        await cluster.until(lambda: cluster.status("texts").get("totalFiles") == 3)
        await jobs.looked_at()
        await whole_with(cluster, 3)
        assert jobs.conditions.falls == [], "another listing"

        # It ends: what it was is over, and said as such.
        for pod in jobs.pods():
            await jobs.end(pod)
        await jobs.until(lambda: jobs.status().get("state") == "Succeeded")
        assert {fall.condition for fall in jobs.conditions.falls} <= {names.RUNNING, names.ADMITTED}
    assert cluster.falls == []
