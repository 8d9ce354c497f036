"""One pass over a CacheCluster: observe, plan, apply, report."""

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster, CacheClusterStatus, CacheWorker
from tdcs.api.conditions import Finding, finding
from tdcs.controllers import status
from tdcs.controllers.cachecluster import children, cleaning, plan
from tdcs.controllers.cachecluster.children import Blueprint
from tdcs.controllers.cachecluster.plan import FuseView
from tdcs.controllers.context import Context, Store, WorkKey
from tdcs.controllers.invalid import explain
from tdcs.controllers.sizes import counted
from tdcs.engine.protocol import EngineError
from tdcs.kube.api import Object
from tdcs.kube.apply import ForeignObjectError, belongs
from tdcs.kube.errors import InvalidError
from tdcs.kube.resources import (
    CACHE_CLUSTERS,
    CONFIG_MAPS,
    DAEMON_SETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)


class CacheClusterController:
    """Keeps the pods of every cache cluster, and reports what its master knows of the workers."""

    def __init__(self, *, context: Context) -> None:
        self._context = context

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.api.get(CACHE_CLUSTERS, name=key.name)
        if obj is None:
            return None
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        try:
            cluster = CacheCluster.model_validate(obj)
        except ValidationError as error:
            if deleting:
                await self._without_finalizer(obj)  # nothing was made of what cannot be understood
                return None
            await self._publish(
                obj, CacheClusterStatus(), finding(names.READY, False, "InvalidSpec", explain(error))
            )
            return None
        if deleting:
            return await self._tear_down(obj, cluster)
        obj = await self._with_finalizer(obj)
        wanted = self._wanted_nodes(obj, cluster)
        blueprint = self._blueprint(obj, cluster)
        try:
            await self._apply(blueprint, wanted)
        except (ForeignObjectError, InvalidError) as error:
            reason = "NameTaken" if isinstance(error, ForeignObjectError) else "ChildRefused"
            known = cluster.status or CacheClusterStatus()
            await self._publish(obj, known, finding(names.READY, False, reason, str(error)))
            return self._context.settings.poll_seconds
        workers, failure = await self._workers(key.name, cluster, wanted)
        ready = plan.readiness(
            workers=workers,
            fuse=self._fuse(key.name),
            namespace=self._context.settings.namespace,
            failure=failure,
        )
        await self._publish(obj, plan.status_of(cluster=key.name, workers=workers), ready)
        return self._context.settings.poll_seconds

    def _blueprint(self, obj: Object, cluster: CacheCluster) -> Blueprint:
        settings = self._context.settings
        return Blueprint(
            owner=obj,
            spec=cluster.spec,
            namespace=settings.namespace,
            image=settings.image,
            pull_secrets=settings.image_pull_secrets,
        )

    async def _tear_down(self, obj: Object, cluster: CacheCluster) -> float | None:
        """Free the nodes' disks; the garbage collector deletes the other children when that is done."""
        finalizers = obj["metadata"].get("finalizers", [])
        if names.FINALIZER not in finalizers:
            return None
        name, poll = obj["metadata"]["name"], self._context.settings.poll_seconds
        known = cluster.status or CacheClusterStatus()
        users = plan.users_of(cluster=name, datasets=self._context.stores.datasets)
        if users:
            told = ", ".join(users[:5]) + (" and others" if len(users) > 5 else "")
            text = (
                f"it is deleted when no Dataset uses it any more: delete {told}, or wait for their deletion"
            )
            await self._publish(obj, known, finding(names.READY, False, "InUse", text))
            return poll
        left = self._worker_sets(obj)
        blueprint = self._blueprint(obj, cluster)
        for child in left:
            await cleaning.remove_worker(
                context=self._context, plan=blueprint, worker_set=child, views_too=True
            )
        if left:
            text = f"the disks of {counted(len(left), 'node')} are being freed"
            await self._publish(obj, known, finding(names.READY, False, "FreeingDisks", text))
            return min(poll, 1.0)
        await self._without_finalizer(obj)
        return None

    async def _with_finalizer(self, obj: Object) -> Object:
        finalizers = obj["metadata"].get("finalizers", [])
        if names.FINALIZER in finalizers:
            return obj
        return await self._set_finalizers(obj, [*finalizers, names.FINALIZER])

    async def _without_finalizer(self, obj: Object) -> None:
        left = [one for one in obj["metadata"].get("finalizers", []) if one != names.FINALIZER]
        await self._set_finalizers(obj, left)

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"], "finalizers": finalizers}
        name = obj["metadata"]["name"]
        return await self._context.api.merge(CACHE_CLUSTERS, name=name, patch={"metadata": metadata})

    def _wanted_nodes(self, obj: Object, cluster: CacheCluster) -> list[str]:
        nodes = {
            name: node
            for (_, name), node in self._context.stores.nodes.items()
            if not node["metadata"].get("deletionTimestamp")
        }
        present = [_node_of(child) for child in self._worker_sets(obj)]
        used = {
            worker.node: worker.used_bytes for worker in (cluster.status.workers if cluster.status else ())
        }
        return plan.choose_nodes(spec=cluster.spec, nodes=nodes, present=present, used=used)

    def _worker_sets(self, obj: Object) -> list[Object]:
        return [
            child
            for child in self._context.stores.stateful_sets.values()
            if belongs(child, obj)
            and child["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == names.COMPONENT_WORKER
        ]

    async def _apply(self, blueprint: Blueprint, wanted: list[str]) -> None:
        stores = self._context.stores
        await self._put(CONFIG_MAPS, children.config_map(blueprint), blueprint)
        for service in children.services(blueprint):
            await self._put(SERVICES, service, blueprint)
        await self._put(STATEFUL_SETS, children.master(blueprint), blueprint, stores.stateful_sets)
        for node in wanted:
            worker = children.worker(blueprint, node=node)
            await self._put(STATEFUL_SETS, worker, blueprint, stores.stateful_sets)
        await self._put(DAEMON_SETS, children.fuse(blueprint), blueprint, stores.daemon_sets)
        for child in self._worker_sets(blueprint.owner):
            if _node_of(child) not in wanted:
                await cleaning.remove_worker(
                    context=self._context, plan=blueprint, worker_set=child, views_too=False
                )

    async def _put(
        self, resource: Resource, wanted: Object, blueprint: Blueprint, store: Store | None = None
    ) -> None:
        namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        live = store.get((namespace, name)) if store is not None else None
        if live is None:
            # Not in the view yet, or a kind that is not watched.
            live = await self._context.api.get(resource, name=name, namespace=namespace)
        await self._context.applier.apply(resource, wanted=wanted, live=live, owner=blueprint.owner)

    async def _workers(
        self, name: str, cluster: CacheCluster, wanted: list[str]
    ) -> tuple[list[CacheWorker], str]:
        try:
            found = await self._context.engines.get(cluster=name).workers()
        except EngineError as error:
            known = {worker.node: worker for worker in (cluster.status.workers if cluster.status else ())}
            silent = [
                known[node].model_copy(update={"state": "Pending"})
                if node in known
                else CacheWorker(node=node, state="Pending")
                for node in wanted
            ]
            return silent, str(error)
        return plan.worker_states(wanted=wanted, workers=found), ""

    def _fuse(self, cluster: str) -> FuseView:
        namespace = self._context.settings.namespace
        daemon_set = self._context.stores.daemon_sets.get((namespace, names.fuse_name(cluster=cluster)))
        found = (daemon_set or {}).get("status") or {}
        if not found.get("observedGeneration"):
            return FuseView(wanted=1, ready=0)  # the DaemonSet controller has not looked yet
        return FuseView(wanted=found.get("desiredNumberScheduled", 0), ready=found.get("numberReady", 0))

    async def _publish(self, obj: Object, wanted: CacheClusterStatus, ready: Finding) -> None:
        await status.publish(
            context=self._context, resource=CACHE_CLUSTERS, obj=obj, status=wanted, findings=[ready]
        )


def _node_of(child: Object) -> str:
    return str(child["metadata"].get("annotations", {}).get(names.ANNOTATION_NODE, ""))
