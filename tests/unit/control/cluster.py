"""The controllers of the data on a small API server in memory: whole stories without a cluster."""

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self, cast

from tests.support.caches import MemoryCaches
from tests.support.twins.agents import MemoryAgents
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.passes import work_off
from tests.unit.control.server import Key, Server, copied

from tdcs.api import names
from tdcs.control.cache_registry import Caches, ClusterObjects
from tdcs.control.cachecluster.cachecluster_controller import CacheClusterController
from tdcs.control.context import Context, Settings, Stores, WorkKey, addresses_of
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.control.dataset.cached_data import CachedData
from tdcs.control.dataset.dataset_controller import DatasetController
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.node_usage import Usage
from tdcs.control.preload_controller import PreloadController
from tdcs.control.release_certificates import Certificates
from tdcs.kube.apply import Applier
from tdcs.kube.events import EventRecorder, utc_now
from tdcs.kube.queue import KeyedQueue
from tdcs.model.export_view import ExportView
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DAEMON_SETS,
    DATASETS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRELOADS,
    PRIORITY_CLASSES,
    SECRETS,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Resource,
)
from tdcs.trust.settings import TrustSettings

QUICK = Settings(
    progress_seconds=0.1,
    survey_seconds=0.3,
    return_seconds=0.1,
    learning_seconds=0.1,
    poll_seconds=0.1,
    resync_seconds=600.0,
    listing_seconds=0.3,
    outage_seconds=0.3,
    give_up_seconds=0.3,
    handover_seconds=0.0,
    clone_idle_seconds=0.5,
)
"""Nobody waits for long in a test."""


class Cluster:
    """Nodes, a cache, and the controllers of Datasets, Preloads and CacheClusters at work; a context manager.

    Args:
        engine: the cache.
        nodes: labels of the nodes, by name.
        settings: rhythms; quick ones by default.
        most_wait: seconds after which a key is looked at again at the latest: longer than a story takes when what
            changes wakes whom it concerns.
        caches: makes what the operator talks to; the engine with agents in memory when left out.
        resolve: gives the addresses of a host.
        trust: whether processes have certificates.
        clock: of the operator's decisions, in seconds that only grow.
        services: networks of Services; none: they are not known.
    """

    def __init__(
        self,
        *,
        engine: MemoryEngine,
        nodes: Mapping[str, Mapping[str, str]],
        settings: Settings = QUICK,
        most_wait: float = 30.0,
        caches: Callable[[ClusterObjects], Caches] | None = None,
        resolve: Callable[[str], Sequence[str]] = addresses_of,
        trust: bool = False,
        clock: Callable[[], float] = time.monotonic,
        services: tuple[str, ...] = ("fd00:5e::/108",),
    ) -> None:
        self._services = services
        self.server = Server()
        self._trust = trust
        self._clock = clock
        self.expected_nodes = frozenset[str]()
        self._resolve = resolve
        self._settings = settings
        self._most_wait = most_wait
        self.engine = engine
        memory = MemoryCaches(engine) if caches is None else None
        self._memory = memory
        self._caches: Callable[[ClusterObjects], Caches] = caches or (lambda _: cast(Caches, memory))
        self.cluster_spec: Object = {}
        for name, labels in nodes.items():
            self.server.store(NODES)["", name] = {"metadata": {"name": name, "labels": dict(labels)}}
        self._work: list[asyncio.Task[None]] = []
        self._requests: dict[WorkKey, object] = {}
        self._states: dict[str, object] = {}
        self.passes = 0
        self._pass_at = 0.0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        if self._memory is not None:
            await self._memory.end()

    @property
    def agents(self) -> MemoryAgents:
        """The agents in memory."""
        return self.memory.agents

    @property
    def memory(self) -> MemoryCaches:
        """The caches in memory."""
        assert self._memory is not None
        return self._memory

    def export(self, view: ExportView) -> None:
        """What Alluxio's master says from now on."""
        self.memory.exports = view

    async def start(self) -> None:
        """An operator begins, with nothing in its memory."""
        server = self.server
        self.usage = Usage(on_claim=self._read_elsewhere)
        stores = Stores(
            namespace=self._settings.namespace,
            cache_clusters=server.store(CACHE_CLUSTERS),
            datasets=server.store(DATASETS),
            preloads=server.store(PRELOADS),
            training_jobs=server.store(TRAINING_JOBS),
            namespaces=server.store(NAMESPACES),
            usage=self.usage,
            nodes=server.store(NODES),
            pods=server.store(PODS),
            priority_classes=server.store(PRIORITY_CLASSES),
            stateful_sets=server.store(STATEFUL_SETS),
            daemon_sets=server.store(DAEMON_SETS),
        )
        self.context = Context(
            api=server,
            applier=Applier(api=server),
            recorder=EventRecorder(api=server, component="test", now=utc_now),
            caches=self._caches(stores),
            stores=stores,
            queue=KeyedQueue(),
            settings=self._settings,
            resolve=self._resolve,
            certificates=Certificates(
                api=server,
                namespace=self._settings.namespace,
                settings=TrustSettings(provider="selfSigned", prefix="tdcs-trust"),
            )
            if self._trust
            else None,
        )
        self.mounts = World(
            context=self.context,
            jobs=self,
            clock=self._clock,
        )
        self.observer, self.cached_data = self.mounts.observer, CachedData(world=self.mounts)
        self.networks = ClusterNetworks(api=server, settings=self._settings, nodes=server.store(NODES))
        self.networks.texts = self._services
        self.datasets = DatasetController(context=self.context, world=self.mounts, networks=self.networks)
        self._passes = {
            DATASETS: self.reconcile_dataset,
            PRELOADS: PreloadController(context=self.context, data=self.cached_data).reconcile,
            CACHE_CLUSTERS: CacheClusterController(
                context=self.context, data=self.cached_data, observer=self.observer
            ).reconcile,
        }
        server.on_change = self._changed
        self.defects: list[Exception] = []
        self._work = [
            asyncio.create_task(
                work_off(
                    self.context.queue,
                    lambda key: self._passes[key.resource](key),
                    defects=self.defects,
                    most_wait=self._most_wait,
                )
            )
            for _ in range(3)
        ]
        for resource in self._passes:
            for namespace, name in list(server.store(resource)):
                self.context.queue.add(WorkKey(resource, namespace, name))

    async def stop(self) -> None:
        """The operator ends as if it were killed: nothing is tidied up, and the agents go on."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self.context.queue.close()
        await self.datasets.close()
        assert not self.defects, self.defects

    def order(self) -> Sequence[Key]:
        """The jobs that wait: none."""
        return ()

    def awaited_nodes(self, dataset: Key) -> Collection[str]:
        """The nodes that the jobs which wait for a Dataset are expected on."""
        return self.expected_nodes

    async def reconcile_dataset(self, key: WorkKey) -> float | None:
        """One pass over a Dataset."""
        self.passes, self._pass_at = self.passes + 1, time.monotonic()
        return await self.datasets.reconcile(key)

    async def quiet(self, *, seconds: float = 0.5) -> None:
        """Until no Dataset has been looked at for so long."""
        await self.until(lambda: time.monotonic() - self._pass_at > seconds)

    def _read_elsewhere(self, claim: Key) -> None:
        self.context.queue.add(WorkKey(DATASETS, *claim))
        dataset = self.server.store(DATASETS).get(claim)
        owner = names.source_dataset_of(dataset) if dataset is not None else None
        if owner in self.server.store(DATASETS):
            self.context.queue.add(WorkKey(DATASETS, *owner))
        for cluster in self.server.store(CACHE_CLUSTERS):
            self.context.queue.add(WorkKey(CACHE_CLUSTERS, *cluster))

    def _changed(self, resource: Resource, obj: Object, deleted: bool) -> None:
        metadata = obj["metadata"]
        key = WorkKey(resource, metadata.get("namespace", ""), metadata["name"])
        if resource is NAMESPACES:  # as the operator does it: rules and quotas select by labels
            for dataset in list(self.server.store(DATASETS)):
                if dataset[0] == key.name:
                    self.context.queue.add(WorkKey(DATASETS, *dataset))
        lost = (obj.get("status") or {}).get("phase") == "Lost"
        if resource is PERSISTENT_VOLUME_CLAIMS and (deleted or lost):
            self.context.queue.add(WorkKey(DATASETS, key.namespace, key.name))
        if resource not in self._passes:
            return
        if resource is CACHE_CLUSTERS:
            workers = (obj.get("status") or {}).get("workers") or ()
            # As the operator does it: Datasets follow the spec, with its rules and limits, and the workers.
            view = (obj.get("spec"), [(worker["node"], worker["state"]) for worker in workers])
            states = None if deleted else copied(view)
            if states != self._states.get(key.name, ...):
                self._states[key.name] = states
                for dataset in list(self.server.store(DATASETS)):
                    self.context.queue.add(WorkKey(DATASETS, *dataset))
        request = (
            metadata.get("generation"),
            metadata.get("deletionTimestamp"),
            str(metadata.get("annotations")),
        )
        previous = self._requests.get(key)
        self._requests[key] = request
        if previous != request or deleted:
            self.context.queue.add(key)
            if resource is PRELOADS:
                self.context.queue.add(WorkKey(DATASETS, key.namespace, names.dataset_of(obj)))

    # What users do and see.

    async def create_cache(self, name: str = names.DEFAULT_CACHE_CLUSTER, **spec: Any) -> None:
        """A CacheCluster: the one that Datasets use by default, or another one."""
        await self.server.create(
            CACHE_CLUSTERS,
            obj={
                "apiVersion": names.API_VERSION,
                "kind": "CacheCluster",
                "metadata": {"name": name, "namespace": self._settings.namespace},
                "spec": spec,
            },
        )

    async def create_keys(self, name: str = "keys", *, account: str = "me", key: str = "s3cr3t") -> None:
        """A Secret with the keys of the store."""
        await self.create_secret(name, {"accessKeyId": account, "secretAccessKey": key})

    async def create_secret(self, name: str, data: Mapping[str, str]) -> None:
        encoded = {field: base64.b64encode(value.encode()).decode() for field, value in data.items()}
        await self.server.apply(
            SECRETS, obj={"kind": "Secret", "metadata": {"name": name, "namespace": "n"}, "data": encoded}
        )

    async def create_dataset(
        self, name: str = "pictures", *, source: Object | None = None, **spec: Any
    ) -> None:
        """A Dataset of s3://pictures."""
        source_spec = {"uri": "s3://pictures", "secretRef": {"name": "keys"}, **(source or {})}
        await self.server.create(DATASETS, obj=_object("Dataset", name, {"source": source_spec, **spec}))

    async def create_preload(self, name: str = "warm", **spec: Any) -> None:
        """A Preload of the Dataset."""
        await self.server.create(
            PRELOADS, obj=_object("Preload", name, {"datasetRef": {"name": "pictures"}, **spec})
        )

    async def change(self, resource: Resource, name: str, **spec: Any) -> None:
        """Merge fields into a spec."""
        await self.server.merge(resource, name=name, namespace="n", patch={"spec": spec})

    async def annotate(self, name: str, **annotations: str) -> None:
        """Annotate a Dataset with keys of tdcs.io."""
        patch = {"annotations": {f"tdcs.io/{key}": value for key, value in annotations.items()}}
        await self.server.merge(DATASETS, name=name, namespace="n", patch={"metadata": patch})

    def status(self, name: str = "pictures", *, resource: Resource = DATASETS) -> Object:
        """The status; empty while there is none."""
        namespace = self._settings.namespace if resource is CACHE_CLUSTERS else "n"
        return dict(self.server.store(resource).get((namespace, name), {}).get("status") or {})

    def condition(self, kind: str, name: str = "pictures", *, resource: Resource = DATASETS) -> Object:
        """A condition; empty while there is none."""
        conditions = self.status(name, resource=resource).get("conditions") or ()
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def nodes(self, name: str = "pictures") -> dict[str, int]:
        """The nodes of a Dataset's copies, with the bytes that are there."""
        return {
            node["name"]: node["bytes"]
            for copy in self.status(name).get("copies", ())
            for node in copy["nodes"]
        }

    async def set_capacity(self, size: int, *nodes: str) -> None:
        """Workers have another size from now on, and the operator knows it."""
        for node in nodes:
            self.engine.set_worker(name=node, capacity=size)

        def sizes_are_current() -> bool:
            view = self.observer.view("default")
            workers = {worker.name: worker for worker in view.workers}
            return all(
                node in workers_by_node and workers_by_node[node].capacity_bytes == size
                for node in nodes
                for workers_by_node in (view.agents, workers)
            )

        await self.until(sizes_are_current)

    def held(self) -> dict[str, int]:
        """Bytes that are on the workers that hold any."""
        sizes = {
            name: sum(self.engine.holdings(worker=name).values()) for _, name in self.server.store(NODES)
        }
        return {name: size for name, size in sizes.items() if size}

    async def until(self, holds: Callable[[], object], *, deadline: float = 60.0) -> None:
        """Until it holds; a failure shows the statuses."""

        async def look() -> bool:
            assert not self.defects, self.defects
            return bool(holds())

        await eventually_async(look, deadline=deadline, interval=0.02, describe=self._describe)

    async def until_state(self, state: str, name: str = "pictures", *, resource: Resource = DATASETS) -> None:
        """Until the object is in a state."""
        await self.until(lambda: self.status(name, resource=resource).get("state") == state)

    def events(self, reason: str) -> list[Object]:
        """The events of a reason."""
        return [event for event in self.server.store(EVENTS).values() if event["reason"] == reason]

    def _describe(self) -> str:
        parts = [
            f"{resource.kind} {key}: {obj.get('status')}"
            for resource in (DATASETS, PRELOADS, CACHE_CLUSTERS)
            for key, obj in self.server.store(resource).items()
        ]
        with contextlib.suppress(AttributeError):
            parts.append(f"held: {self.held()}")
        return "\n".join(parts)


def _object(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": "n"},
        "spec": spec,
    }
