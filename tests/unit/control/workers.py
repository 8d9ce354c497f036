"""A cluster in memory: workers come and go with their StatefulSets, pods read, and the operator may die."""

import asyncio
from dataclasses import replace
from typing import Any, Self

from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.server import Key, Server

from tdcs.api import names
from tdcs.control.node_usage import trimmed
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, JOBS, STATEFUL_SETS, Resource


class MortalServer(Server):
    """A server that one of its clients talks to until it dies with a write: the write is made, its answer reaches
    nobody, and nothing else is asked or heard."""

    def __init__(self) -> None:
        super().__init__()
        self.dies_after: int | None = None
        self.dead = asyncio.Event()

    def kill_after(self, writes: int | None) -> None:
        """The next client dies with its write of this number; None: it does not."""
        self.dead = asyncio.Event()
        self.dies_after = None if writes is None else len(self.writes) + writes

    async def get(self, *args: Any, **more: Any) -> Object | None:
        await self._alive()
        return await super().get(*args, **more)

    async def create(self, *args: Any, **more: Any) -> Object:
        await self._alive()
        written = await super().create(*args, **more)
        await self._alive()
        return written

    async def apply(self, *args: Any, **more: Any) -> Object:
        await self._alive()
        written = await super().apply(*args, **more)
        await self._alive()
        return written

    async def apply_status(self, *args: Any, **more: Any) -> Object:
        await self._alive()
        written = await super().apply_status(*args, **more)
        await self._alive()
        return written

    async def merge(self, *args: Any, **more: Any) -> Object:
        await self._alive()
        written = await super().merge(*args, **more)
        await self._alive()
        return written

    async def delete(self, *args: Any, **more: Any) -> bool:
        await self._alive()
        is_deleted = await super().delete(*args, **more)
        await self._alive()
        return is_deleted

    async def _alive(self) -> None:
        if self.dies_after is not None and len(self.writes) >= self.dies_after:
            self.dead.set()
            await asyncio.Event().wait()


class WorkersCluster(Cluster):
    """Its workers run where StatefulSets ask for them, and forget everything when their disks are cleaned.

    Args:
        sources: what the stores hold.
        nodes: names of the nodes.
        capacity: what each worker may hold.
        before: see `MemoryEngine`.
        return_seconds: how long a worker may be away.
    """

    def __init__(
        self,
        *,
        sources: dict[str, dict[str, int]],
        nodes: str,
        capacity: int,
        before: Any = None,
        return_seconds: float = QUICK.return_seconds,
    ) -> None:
        engine = MemoryEngine(
            sources=sources,
            workers=dict.fromkeys(nodes, capacity),
            **({} if before is None else {"before": before}),
        )
        for name in nodes:
            engine.set_worker(name=name, live=False)
        super().__init__(
            engine=engine,
            nodes={name: {"cache": "yes"} for name in nodes},
            settings=replace(QUICK, return_seconds=return_seconds),
            most_wait=30.0,
        )
        self.mortal = MortalServer()
        self.mortal.stores = self.server.stores
        self.server = self.mortal
        self.pods: dict[Key, Object] = {}
        self.cleaned: list[str] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.create_keys()
        return self

    async def start(self) -> None:
        await super().start()
        for key, pod in self.pods.items():
            self.usage.seen(key, trimmed(pod))

    async def restart(self) -> None:
        """The operator is killed, and another one starts."""
        await self.stop()
        self.mortal.kill_after(None)
        await self.start()

    def read(self, pod: str, dataset: str, *, node: str) -> None:
        """A pod with the claim of a dataset runs on a node."""
        key = ("n", pod)
        self.pods[key] = {
            "metadata": {"name": pod, "namespace": "n"},
            "spec": {
                "nodeName": node,
                "containers": [],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": dataset}}],
            },
        }
        self.usage.seen(key, trimmed(self.pods[key]))

    def end(self, pod: str) -> None:
        """It ends."""
        if self.pods.pop(("n", pod), None) is not None:
            self.usage.seen(("n", pod), None)

    async def create_dataset(
        self, name: str = "pictures", *, source: Object | None = None, **spec: Any
    ) -> None:
        source_spec = {"uri": "s3://pictures", "secretRef": {"name": "keys"}, **(source or {})}
        await Server.create(
            self.server,
            DATASETS,
            obj={
                "apiVersion": names.API_VERSION,
                "kind": "Dataset",
                "metadata": {"name": name, "namespace": "n"},
                "spec": {"source": source_spec, **spec},
            },
        )

    async def scale(self, **spec: Any) -> None:
        """Change the CacheCluster's spec."""
        await Server.merge(
            self.server,
            CACHE_CLUSTERS,
            name=names.DEFAULT_CACHE_CLUSTER,
            namespace=names.SYSTEM_NAMESPACE,
            patch={"spec": spec},
        )

    def engine_used(self) -> int:
        """Bytes that are on all workers."""
        return sum(worker.used for worker in self.engine.state.workers.values())

    def workers(self) -> dict[str, str]:
        """The state of each worker, as the CacheCluster's status says."""
        workers = self.status(names.DEFAULT_CACHE_CLUSTER, resource=CACHE_CLUSTERS).get("workers", ())
        return {worker["node"]: worker["state"] for worker in workers}

    def worker_nodes(self) -> set[str]:
        """The nodes with the StatefulSet of a worker."""
        annotations = (
            stateful_set["metadata"].get("annotations") or {}
            for stateful_set in self.server.store(STATEFUL_SETS).values()
        )
        return {notes[names.ANNOTATION_NODE] for notes in annotations if names.ANNOTATION_NODE in notes}

    async def until_workers(self, expected: str) -> None:
        """Until there are workers on these nodes, all Ready, and none elsewhere."""
        await self.until(
            lambda: self.worker_nodes() == {*expected} and self.workers() == dict.fromkeys(expected, "Ready")
        )

    def _changed(self, resource: Resource, obj: Object, deleted: bool) -> None:
        if resource is STATEFUL_SETS:
            node = (obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_NODE)
            if node:
                self._run_worker(node, runs=not deleted and obj["spec"]["replicas"] > 0)
        if resource is JOBS and not deleted:
            self._clean(obj)
        super()._changed(resource, obj, deleted)

    def _run_worker(self, node: str, *, runs: bool) -> None:
        worker = self.engine.state.workers[node]
        if worker.live != runs:
            # The agent ends and begins with the worker's pod.
            self.agents.restart(node, forgets=not worker.blocks)
            self.engine.set_worker(name=node, live=runs)

    def _clean(self, job: Object) -> None:
        affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (node,) = terms[0]["matchFields"][0]["values"]
        assert not self.engine.state.workers[node].live, "the disk of a worker that runs is cleaned"
        self.engine.state.workers[node].blocks.clear()
        self.cleaned.append(node)
