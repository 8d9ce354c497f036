"""One pass over a CacheCluster: observe, plan, apply, report."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster, CacheClusterSpec, CacheClusterStatus, CacheWorker
from tdcs.api.conditions import Finding, finding, shorten
from tdcs.control.cache_observer import CacheObserver
from tdcs.control.cachecluster import cache_certificates, cache_children, cache_pods, cleaning, stock_client
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.control.cachecluster.draining import Drain, HeldSince, asked_for_at, cut_off, is_dead, node_of
from tdcs.control.cachecluster.eviction_guard import EvictionGuard
from tdcs.control.cachecluster.isolation_probe import NetworkProbe
from tdcs.control.cachecluster.membership import Membership
from tdcs.control.context import Context, Store, WorkKey
from tdcs.control.dataset.cached_data import CachedData
from tdcs.control.status_publisher import publish_status
from tdcs.decide import worker_nodes
from tdcs.decide.export_standing import exported
from tdcs.decide.worker_nodes import AlluxioWorkers, FuseView
from tdcs.kube.apply import ForeignObjectError, belongs
from tdcs.kube.errors import InvalidError
from tdcs.model.cache_engine import WorkerInfo
from tdcs.model.cache_view import is_restarting, is_starting
from tdcs.model.humanize import counted, explain_invalid
from tdcs.model.kube_objects import Object, with_finalizer, without_finalizer
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    CONFIG_MAPS,
    DAEMON_SETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)

REST_POLLS = 5
"""A cache cluster at rest is looked at so much less often: what changes wakes it."""


class CacheClusterController:
    """Keeps the pods of every cache cluster, and reports what is known of its workers.

    Args:
        data: what of its mounts is where, and what is needed of it.
        observer: what every cache cluster says of itself.
    """

    def __init__(
        self,
        *,
        context: Context,
        data: CachedData,
        observer: CacheObserver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._observer = observer
        self._guard = EvictionGuard(context=context, data=data)
        self._membership = Membership(context=context, data=data, clock=clock)
        self._probe = NetworkProbe(context=context)
        self._dead = HeldSince(clock)
        self._drained = HeldSince(clock)
        self._set_versions: dict[str, tuple[str, int, str]] = {}
        """Workers' StatefulSets that were as wanted: of which version of the spec, and which version they had."""

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.read(key)
        if obj is None:
            if key.namespace == self._context.settings.namespace:
                self._observer.drop(key.name)
            return None
        if key.namespace != self._context.settings.namespace:
            await self._refuse(obj)
            return None
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        try:
            cluster = CacheCluster.model_validate(obj)
        except ValidationError as error:
            if deleting:
                await self._without_finalizer(obj)  # nothing was made of what cannot be understood
                return None
            await self._publish(
                obj, CacheClusterStatus(), finding(names.READY, False, "InvalidSpec", explain_invalid(error))
            )
            return None
        if deleting:
            return await self._tear_down(obj, cluster)
        obj = await self._with_finalizer(obj)
        blueprint = self._blueprint(obj, cluster)
        sets = self._worker_sets(obj)
        view = self._observer.view(key.name)
        chosen = self._membership.members(cluster, sets, key.name, view)
        members, holdings = chosen.nodes, chosen.holdings
        trusted = await self._certify(blueprint, {*members, *(node_of(child) for child in sets)})
        try:
            missing = await self._write_templates(blueprint, members, keep_place=chosen.unmatched)
            restored = await self._restore(blueprint, cluster, sets, members)
            await self._guard.reconcile(
                blueprint,
                workers={node_of(child) for child in sets},
                staying=members,
                answering={worker.name for worker in view.workers if worker.live},
            )
        except (ForeignObjectError, InvalidError) as error:
            reason = "NameTaken" if isinstance(error, ForeignObjectError) else "ChildRefused"
            previous = cluster.status or CacheClusterStatus()
            await self._publish(obj, previous, finding(names.READY, False, reason, str(error)))
            return self._context.settings.poll_seconds
        if not view.answered:
            if missing is not None:
                await self._publish(obj, cluster.status or CacheClusterStatus(), missing)
            return min(self._context.settings.poll_seconds, 0.5)  # nothing is known yet: the status stands
        worker_infos = None if view.failure is not None else view.workers
        failure = "" if view.failure is None else str(view.failure)
        was_ready = worker_nodes.is_ready(cluster.status)
        restarting = was_ready and is_restarting(
            view, clock=self._observer.clock(), patience=self._context.settings.outage_seconds
        )
        drain = Drain(
            context=self._context,
            plan=blueprint,
            staying=members,
            holdings=holdings,
            workers=worker_infos,
            dead=self._dead_for(key.name, sets, worker_infos),
            drained=self._drained,
        )
        for child in sets:
            if node_of(child) in members:
                await drain.stay(child)
        draining = await drain.proceed([child for child in sets if node_of(child) not in members])
        draining += restored
        workers = (
            worker_nodes.worker_states(
                wanted=members, workers=worker_infos, starting=self._starting(cluster, members, sets)
            )
            if worker_infos is not None
            else worker_nodes.silent_workers(wanted=members, known=cluster.status, restarting=restarting)
        )
        alluxio = None
        if not blueprint.native:
            starting = worker_nodes.unready_pods(child for child in sets if node_of(child) in members)
            alluxio = AlluxioWorkers(starting=starting, needed=stock_client.is_wanted(cluster.spec))
        fuse, namespace = self._fuse(key.name, cluster.spec), self._context.settings.namespace
        ready = worker_nodes.readiness(
            workers=workers,
            fuse=fuse,
            namespace=namespace,
            failure=failure,
            starting=is_starting(view, obj, now=self._context.now()),
            draining=draining,
            restarting=restarting,
            was_ready=was_ready,
            alluxio=alluxio,
        )
        progress = worker_nodes.progress(
            workers=workers, fuse=fuse, namespace=namespace, draining=draining, alluxio=alluxio
        )
        if restarting:
            progress = replace(ready, type=names.PROGRESSING)
        if chosen.unmatched and not failure:
            ready, progress = worker_nodes.without_match(ready), worker_nodes.without_match(progress)
        ready = missing or ready
        complete = ready.reason == worker_nodes.ALL_READY
        status = worker_nodes.status_of(
            cluster=key.name,
            pods=worker_nodes.worker_pods(sets),
            workers=worker_nodes.with_idle(workers, chosen.idle_since),
            draining=draining,
            wanted_bytes=self._membership.wanted_bytes(cluster, key.name),
            datasets=len(worker_nodes.users_of(cluster=key.name, datasets=self._context.stores.datasets)),
        )
        isolated = await self._probe.reconcile(blueprint) if complete else None
        more = [
            progress,
            chosen.finding,
            self._membership.within_quotas(cluster, key.name),
            trusted,
            isolated,
            self._exported(cluster, key.name),
        ]
        written = await self._publish(
            obj,
            status,
            ready,
            *(condition for condition in more if condition is not None),
            dropped=self._inapplicable(cluster.spec),
        )
        poll = self._context.settings.poll_seconds
        if draining:
            return min(poll, 1.0)
        # What changes at the agents, the nodes or the children wakes it; the rest of them is looked at less often.
        rests = not written and complete and not cluster.spec.scaling.follow_jobs
        return poll * REST_POLLS if rests else poll

    async def _refuse(self, obj: Object) -> None:
        """One in another namespace: nothing is made of it, and it says why."""
        home, name = self._context.settings.namespace, obj["metadata"]["name"]
        text = (
            f"CacheClusters live in the namespace of TDCS's operator, {home}, and nothing is made of this one: create "
            f"it there (metadata.namespace: {home}); Datasets of all namespaces name it, as {name}, in spec."
            "cacheClusterRef"
        )
        await self._publish(obj, CacheClusterStatus(), finding(names.READY, False, "WrongNamespace", text))

    async def _write_templates(
        self, blueprint: Blueprint, members: list[str], *, keep_place: bool
    ) -> Finding | None:
        """Write what pods are made from, which makes and replaces pods; where their PriorityClass does not exist
        nothing is written, and what runs is looked after all the same. Gives what is missing.

        Args:
            keep_place: workers and clients stay on their nodes, whatever the spec says of nodes.
        """
        missing = self._missing_class(blueprint.spec)
        if missing is None:
            await self._apply(blueprint, members, keep_place=keep_place)
        return missing

    def _missing_class(self, spec: CacheClusterSpec) -> Finding | None:
        """The PriorityClass of the cache's pods does not exist: they could not be made, and running ones would be
        replaced by none."""
        name = spec.priority_class_name
        if name is None or ("", name) in self._context.stores.priority_classes:
            return None
        text = f"there is no PriorityClass {name}, which spec.priorityClassName names: create it, or name another one"
        return finding(names.READY, False, "NoPriorityClass", text)

    def _starting(
        self, cluster: CacheCluster, members: Iterable[str], sets: Iterable[Object]
    ) -> frozenset[str]:
        """The nodes with a worker that has just been asked for."""
        now = self._context.now()
        asked_at = {node_of(child): asked_for_at(child) for child in sets}
        return worker_nodes.starting_nodes(wanted=members, made=asked_at, known=cluster.status, now=now)

    def _blueprint(self, obj: Object, cluster: CacheCluster) -> Blueprint:
        settings = self._context.settings
        return Blueprint(
            owner=obj,
            spec=cluster.spec,
            namespace=settings.namespace,
            image=settings.image,
            agent_image=settings.agent_image,
            pull_secrets=settings.image_pull_secrets,
            trust=self._context.certificates.settings if self._context.certificates is not None else None,
        )

    async def _certify(self, blueprint: Blueprint, nodes: Iterable[str]) -> Finding | None:
        """Have the certificates that the pods mount, those of draining workers too, before there are pods."""
        certificates = self._context.certificates
        if certificates is None:
            return None
        place = (blueprint.namespace, names.fuse_name(cluster=blueprint.cluster))
        # Until they are gone their pods need theirs.
        fuse = stock_client.is_wanted(blueprint.spec) or place in self._context.stores.daemon_sets
        subjects = cache_certificates.subjects(blueprint, nodes=sorted(nodes), fuse=fuse)
        return await certificates.provide(owner=blueprint.owner, subjects=subjects)

    async def _tear_down(self, obj: Object, cluster: CacheCluster) -> float | None:
        """Free the nodes' disks; the garbage collector deletes the other children when that is done."""
        if without_finalizer(obj, finalizer=names.FINALIZER) is None:
            return None
        name, poll = obj["metadata"]["name"], self._context.settings.poll_seconds
        users = worker_nodes.users_of(cluster=name, datasets=self._context.stores.datasets)
        status = (cluster.status or CacheClusterStatus()).model_copy(update={"datasets": len(users)})
        if users:
            named = ", ".join(users[:5]) + (" and others" if len(users) > 5 else "")
            text = (
                f"it is deleted when no Dataset uses it any more: delete {named}, or wait for their deletion"
            )
            await self._publish(obj, status, finding(names.READY, False, "InUse", text))
            return poll
        sets = self._worker_sets(obj)
        blueprint = self._blueprint(obj, cluster)
        for child in sets:
            await cleaning.remove_worker(
                context=self._context, plan=blueprint, worker_set=child, views_too=True
            )
        if sets:
            text = f"the disks of {counted(len(sets), 'node')} are being freed"
            await self._publish(obj, status, finding(names.READY, False, "FreeingDisks", text))
            return min(poll, 1.0)
        await self._without_finalizer(obj)
        return None

    async def _with_finalizer(self, obj: Object) -> Object:
        finalizers = with_finalizer(obj, finalizer=names.FINALIZER)
        return obj if finalizers is None else await self._set_finalizers(obj, finalizers)

    async def _without_finalizer(self, obj: Object) -> None:
        finalizers = without_finalizer(obj, finalizer=names.FINALIZER)
        if finalizers is not None:
            await self._set_finalizers(obj, finalizers)

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"], "finalizers": finalizers}
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        return await self._context.api.merge(
            CACHE_CLUSTERS, name=name, namespace=namespace, patch={"metadata": metadata}
        )

    async def _restore(
        self, blueprint: Blueprint, cluster: CacheCluster, sets: list[Object], members: Sequence[str]
    ) -> list[CacheWorker]:
        """Bring back the StatefulSet of a draining worker that somebody has deleted: what only it holds is still to be
        moved, and its disk to be freed. Gives these workers."""
        workers = cluster.status.workers if cluster.status is not None else ()
        present = {node_of(child) for child in sets}
        restored = cut_off(workers, present=present | {*members}, nodes=self._context.stores.nodes)
        for node in (lost_worker.node for lost_worker in restored):
            worker = cache_children.worker(blueprint, node=node)
            await self._put(STATEFUL_SETS, worker, blueprint, self._context.stores.stateful_sets)
            await self._context.recorder.record(
                about=blueprint.owner,
                reason="DrainResumed",
                message=f"the StatefulSet of the draining worker of node {node} was deleted, and is made again: what "
                "only that worker holds is moved first. To let a worker go at once, set "
                "spec.scaling.drainTimeout to 0s",
                type_="Warning",
            )
        return restored

    def _worker_sets(self, obj: Object) -> list[Object]:
        return [
            child
            for child in self._context.stores.stateful_sets.values()
            if belongs(child, obj)
            and child["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == names.COMPONENT_WORKER
        ]

    async def _apply(self, blueprint: Blueprint, members: list[str], *, keep_place: bool) -> None:
        stores = self._context.stores
        if not blueprint.native:
            await self._put(CONFIG_MAPS, cache_pods.config_map(blueprint), blueprint)
        for service in cache_children.services(blueprint):
            await self._put(SERVICES, service, blueprint)
        if not blueprint.native:
            await self._put(STATEFUL_SETS, cache_children.master(blueprint), blueprint, stores.stateful_sets)
        version = (blueprint.owner["metadata"]["uid"], blueprint.owner["metadata"]["generation"])
        for node in members:
            name = names.worker_set_name(cluster=blueprint.cluster, node=node)
            live = stores.stateful_sets.get((blueprint.namespace, name))
            versions = (*version, live["metadata"]["resourceVersion"]) if live is not None else None
            if versions is not None and self._set_versions.get(name) == versions:
                continue
            worker = cache_children.worker(blueprint, node=node)
            if keep_place:
                worker = cache_pods.in_place_of(live, worker)
            await self._put(STATEFUL_SETS, worker, blueprint, stores.stateful_sets)
            if versions is not None and not keep_place:
                self._set_versions[name] = versions
            await asyncio.sleep(0)  # hundreds of workers are no pause for the lease and health
        if stock_client.is_wanted(blueprint.spec):
            clients = stock_client.daemon_set(blueprint)
            if keep_place:
                live = stores.daemon_sets.get((blueprint.namespace, clients["metadata"]["name"]))
                clients = cache_pods.in_place_of(live, clients)
            await self._put(DAEMON_SETS, clients, blueprint, stores.daemon_sets)
        else:
            await self._remove_fuse(blueprint)

    async def _remove_fuse(self, blueprint: Blueprint) -> None:
        """Delete the FUSE clients of a profile that the cluster has no more."""
        name = names.fuse_name(cluster=blueprint.cluster)
        live = self._context.stores.daemon_sets.get((blueprint.namespace, name))
        if live is None or not belongs(live, blueprint.owner):
            return
        uid = live["metadata"]["uid"]
        await self._context.api.delete(DAEMON_SETS, name=name, namespace=blueprint.namespace, uid=uid)

    async def _put(
        self, resource: Resource, child: Object, blueprint: Blueprint, store: Store | None = None
    ) -> None:
        namespace, name = child["metadata"]["namespace"], child["metadata"]["name"]
        live = store.get((namespace, name)) if store is not None else None
        if live is None:
            # Not in the view yet, or a kind that is not watched.
            live = await self._context.api.get(resource, name=name, namespace=namespace)
        await self._context.applier.apply(resource, wanted=child, live=live, owner=blueprint.owner)

    def _dead_for(
        self, cluster: str, sets: Sequence[Object], workers: Sequence[WorkerInfo] | None
    ) -> dict[str, float]:
        """Seconds for which no worker has answered on the nodes that shall have, or had, one."""
        if workers is None:
            return {}
        worker_by_node = {worker.name: worker for worker in workers}
        dead = {node_of(child) for child in sets if is_dead(child, worker_by_node.get(node_of(child)))}
        self._dead.drop_nodes(cluster, but=dead)
        return {node: self._dead.seconds((cluster, node), holds=True) for node in dead}

    def _exported(self, cluster: CacheCluster, name: str) -> Finding | None:
        """Whether Alluxio knows of what is cached; None where it is not an export."""
        if not stock_client.has_export(cluster.spec):
            return None
        conditions = cluster.status.conditions if cluster.status else ()
        return exported(
            self._observer.exports(name),
            known=next(
                (condition.reason for condition in conditions if condition.type == names.EXPORTED), ""
            ),
            patience=self._context.settings.outage_seconds,
            files=worker_nodes.files_of(cluster=name, datasets=self._context.stores.datasets),
            master=f"{names.master_name(cluster=name)}-0",
        )

    def _inapplicable(self, spec: CacheClusterSpec) -> frozenset[str]:
        """Conditions that say nothing of such a cache, and would stay as they were when it became one."""
        applies = {
            names.EXPORTED: stock_client.has_export(spec),
            names.TRUSTED: self._context.certificates is not None,
            names.NETWORK_ISOLATED: self._context.settings.network_probe,
        }
        return frozenset(type_ for type_, does in applies.items() if not does)

    def _fuse(self, cluster: str, spec: CacheClusterSpec) -> FuseView:
        if not stock_client.is_wanted(spec):
            return FuseView()
        place = (self._context.settings.namespace, names.fuse_name(cluster=cluster))
        return stock_client.view_of(self._context.stores.daemon_sets.get(place))

    async def _publish(
        self,
        obj: Object,
        status: CacheClusterStatus,
        ready: Finding,
        *more: Finding,
        dropped: Collection[str] = (),
    ) -> bool:
        after = await publish_status(
            context=self._context,
            resource=CACHE_CLUSTERS,
            obj=obj,
            status=status.model_copy(update={"message": shorten(ready.message)}),
            findings=[ready, *more],
            dropped=dropped,
        )
        return after is not obj
