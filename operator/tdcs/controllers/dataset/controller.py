"""One pass over a Dataset: observe, decide, act, publish. What concerns its mount is done by `mounts.reconcile`."""

import time
from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.controllers.cache_observer import CacheObserver
from tdcs.controllers.cache_view import WantedBytes
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset.ledger import ledger_of
from tdcs.controllers.dataset.publisher import Publisher
from tdcs.controllers.humanize import explain_invalid
from tdcs.controllers.mounts import (
    checks,
    credentials,
    identity,
    readers,
    volumes,
)
from tdcs.controllers.mounts.access.endpoints import Endpoints, cluster_networks
from tdcs.controllers.mounts.access.permission import source_permission
from tdcs.controllers.mounts.deletion import dataset as deletion
from tdcs.controllers.mounts.deletion import withdrawal
from tdcs.controllers.mounts.deletion.orphans import Orphans
from tdcs.controllers.mounts.deletion.unused_manifests import remove_unused
from tdcs.controllers.mounts.mount import Mounts
from tdcs.controllers.mounts.placement import expected_paths
from tdcs.controllers.mounts.problem import Problem
from tdcs.controllers.mounts.readers import Reader
from tdcs.controllers.mounts.reconcile import reconcile
from tdcs.controllers.mounts.report import MountReport
from tdcs.controllers.mounts.snapshot import MountRequest, World
from tdcs.engine.protocol import Source
from tdcs.kube.api import Object
from tdcs.kube.objects import Key
from tdcs.kube.resources import DATASETS
from tdcs.planning.ledger import MountLedger

ROOM_SECONDS = 2.0
"""Room that comes or goes on the nodes has Datasets looked at so often at most."""

LOCKED_RETRY = 0.5
"""Seconds after which a Dataset is looked at again while another pass works on its mount."""


class DatasetController:
    """Keeps every Dataset mounted, loaded and claimable, and carries out its Preloads."""

    def __init__(
        self,
        *,
        context: Context,
        clock: Callable[[], float] = time.monotonic,
        networks: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        self._context = context
        self._clock = clock
        settings = context.settings
        self.observer = CacheObserver(
            caches=context.caches,
            poll_seconds=settings.poll_seconds,
            on_cache=self._cache_changed,
            on_agents=self._agents_changed,
            on_room=self._room_changed,
            clock=clock,
        )
        self._mounts = Mounts(
            caches=context.caches,
            pause=settings.survey_seconds,
            stuck_seconds=settings.listing_seconds,
            looked=self.observer.look,
            on_change=lambda cluster, path: self._wake(cluster, {path}),
            now=context.now,
            clock=clock,
        )
        self._world = World(
            context=context,
            caches=context.caches,
            observer=self.observer,
            mounts=self._mounts,
            clock=clock,
            queue_order=lambda: self.queue_order(),
        )
        self._orphans = Orphans(world=self._world)
        self._publisher = Publisher(world=self._world)
        context.caches.on_lost = self._manifest_lost
        self._needs_told: dict[str, object] = {}
        self._endpoints = Endpoints(
            resolve=context.resolve,
            networks=lambda: cluster_networks(nodes=context.stores.nodes, more=networks()),
            clock=clock,
            on_change=context.queue.add,
        )
        self.on_cache: Callable[[str], None] = lambda cluster: None
        self.queue_order: Callable[[], Sequence[Key]] = lambda: ()

    def source_rates(self) -> Mapping[str, float]:
        """The measured rates of stores, in bytes a second."""
        return self._mounts.bandwidth.measured()

    def report_of(self, *, cluster: str, path: str) -> MountReport | None:
        """What the last pass over a mount found."""
        mount = self._mounts.find(cluster=cluster, path=path)
        return mount.report if mount is not None else None

    def ledgers(self, *, cluster: str) -> list[MountLedger[WorkKey]]:
        """What of every mount of a cache cluster lies on which workers, as far as it is known."""
        found = []
        for mount in sorted(self._mounts, key=lambda one: one.path):
            known, decision = mount.report, mount.decision
            if mount.cluster != cluster or known is None or known.listed is None or decision is None:
                continue
            users = readers.users_of(stores=self._context.stores, cluster=cluster, path=mount.path)
            if users:
                moving = self._mounts.assigner(cluster).moving(mount.path, seen=known.states)
                found.append(ledger_of(decision, known, known.listed, users, moving=moving))
        return found

    def needs(self, cluster: str) -> WantedBytes:
        """What the jobs of a cache cluster, and the owners of its data, need in it."""
        expected = expected_paths(datasets=self._context.stores.datasets, cluster=cluster)
        grants = self._mounts.manager.grants(cluster)
        return WantedBytes(
            bytes=sum(grants.needed.values()),
            complete=expected <= grants.mounts.keys(),
            beyond={name: -left for name, left in grants.quotas.items() if left < 0},
        )

    def _tell_needs(self, cluster: str) -> None:
        """Have the CacheCluster looked at when its jobs need more or less: its status says so, and may scale it."""
        grants = self._mounts.manager.grants(cluster)
        found = (
            sum(grants.needed.values()),
            len(grants.mounts),
            tuple(sorted(name for name, left in grants.quotas.items() if left < 0)),
        )
        if self._needs_told.get(cluster) != found:
            self._needs_told[cluster] = found
            self.on_cache(cluster)

    def readers_on(self, cluster: str) -> frozenset[str]:
        """The nodes on which pods mount data of a cache cluster."""
        stores = self._context.stores
        return frozenset[str]().union(
            *(
                stores.usage.nodes_of(key)
                for key, obj in stores.datasets.items()
                if names.cache_cluster_of(obj) == cluster
            )
        )

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.api.get(DATASETS, name=key.name, namespace=key.namespace)
        if obj is None:
            self._context.gone(key)
            return await self._gone(key)
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError as error:
            if deleting:
                return await self._deleted(
                    obj, await deletion.delete_unreadable(context=self._context, obj=obj)
                )
            return await self._publisher.blocked(
                obj, Problem(reason="InvalidSpec", message=explain_invalid(error))
            )
        if deleting:
            self._endpoints.forget(key)
            path = dataset.status.mount_path if dataset.status else ""
            mount = self._mounts.get(cluster=dataset.spec.cache_cluster_ref.name, path=path) if path else None
            left = await deletion.delete(world=self._world, key=key, obj=obj, mount=mount)
            if left is None and path:
                self._wake(dataset.spec.cache_cluster_ref.name, {path})
            return await self._deleted(obj, left)
        return await self._keep(key, obj, dataset)

    async def sweep(self) -> None:
        """Unmount what no Dataset has any more, and remove the manifests that are not used any more."""
        for _, cluster in list(self._context.stores.cache_clusters):
            await self._orphans.sweep(cluster)
        await remove_unused(self._world)

    async def close(self) -> None:
        """Stop what goes on in the background."""
        await self.observer.close()
        await self._endpoints.close()
        await self._mounts.close()

    async def _keep(self, key: WorkKey, obj: Object, dataset: Dataset) -> float | None:
        context, settings = self._context, self._context.settings
        obj = await self._with_finalizer(obj)
        cluster = dataset.spec.cache_cluster_ref.name
        new = dataset.status is None or not dataset.status.mount_path
        problem = credentials.cluster_problem(stores=context.stores, spec=dataset.spec, new=new)
        if problem is not None:
            return await self._publisher.blocked(obj, problem)
        allowed = source_permission(
            stores=context.stores, endpoints=self._endpoints, key=key, spec=dataset.spec
        )
        serves = readers.serves(dataset)
        if allowed.refused is not None and (allowed.settled or not serves):
            return await self._withdrawn(key, obj, dataset, allowed.refused)
        doubt = allowed.refused or allowed.unknown
        if doubt is not None and not serves:
            return await self._publisher.blocked(obj, doubt)
        if self._orphans.is_due(cluster):
            await self._orphans.sweep(cluster)
        live = await volumes.find(context=context, obj=obj)
        if isinstance(live, Problem):
            return await self._publisher.blocked(obj, live)
        keys = await credentials.read_credentials(context=context, namespace=key.namespace, spec=dataset.spec)
        # What serves goes on while the source is in doubt: nothing is mounted, listed or assigned to be read meanwhile.
        trouble = doubt or (keys if isinstance(keys, Problem) else None)
        # A status alone is no authority: whoever could write it would read with the keys of another one.
        claimed = volumes.mounted_path(live.volume)
        if trouble is not None and not (claimed and readers.serves(dataset)):
            return await self._publisher.blocked(obj, trouble)
        origin = (
            None
            if isinstance(keys, Problem) or doubt is not None
            else identity.source_of(spec=dataset.spec, credentials=keys, address=allowed.address)
        )
        path = self._path_of(dataset, origin=origin, claimed=claimed)
        if new or (dataset.status is not None and dataset.status.mount_path != path):
            obj, dataset = await self._publisher.mounting(obj, path)
        mount = self._mounts.get(cluster=cluster, path=path)
        if mount.lock.locked():
            return min(settings.progress_seconds, LOCKED_RETRY)
        async with mount.lock:
            me = Reader(key=key, obj=obj, dataset=dataset)
            users = readers.readers(stores=context.stores, cluster=cluster, path=path, me=me)
            me = readers.with_kept(me, stores=context.stores)
            users = [me if user.key == me.key else user for user in users]
            mount.users = frozenset(user.key for user in users)
            check = checks.next_check(
                me=me,
                users=users,
                versions=mount.manifests.view(),
                answered=mount.manifests.answered(me.key),
                clock=self._clock(),
                now=context.now(),
            )
            asked = MountRequest(
                me=me,
                source=origin,
                claimed=bool(claimed),
                check_due=check.due and doubt is None,
                paused=allowed.refused is not None and len(users) == 1,
                answers={user.key: checks.asked_of(user) for user in users},
            )
            before = mount.report
            found = await reconcile(world=self._world, mount=mount, asked=asked, users=users)
            if found is not before:
                self._tell_needs(cluster)
            if before is None or before.placements.keys() != found.placements.keys():
                for user in users:
                    self._wake_preloads(user.key)
            wait = await self._publisher.publish(
                me, mount, found, live=live, check=check, trouble=trouble, shared=len(users) > 1
            )
            if not serves and found.problem is None:
                self._wake_preloads(key)  # which wait until it serves
            return wait if wait is None or doubt is None else min(wait, doubt.retry_after)

    async def _withdrawn(self, key: WorkKey, obj: Object, dataset: Dataset, cause: Problem) -> float | None:
        """A source that may not be used, or not any more: nothing of it is read or kept for this Dataset."""
        path, cluster = (
            dataset.status.mount_path if dataset.status else "",
            dataset.spec.cache_cluster_ref.name,
        )
        mount = self._mounts.get(cluster=cluster, path=path) if path else None
        left = await withdrawal.withdraw(world=self._world, key=key, obj=obj, mount=mount)
        await self._publisher.withdrawn(obj, cause, gone=left is None)
        if path and left is None:
            self._wake(cluster, {path})
        return cause.retry_after if left is None else left

    def _path_of(self, dataset: Dataset, *, origin: Source | None, claimed: str) -> str:
        """Where a Dataset is mounted, or shall be: by its volume, its spec and its keys, never by its status.

        One that pods may read stays where it is. Any other joins the mount that this process has made of the same
        source with the same keys: it may have been in conflict with that one, until its keys were corrected.
        """
        if claimed or origin is None:
            return claimed
        cluster, mark = dataset.spec.cache_cluster_ref.name, identity.mark(origin)
        same = (one.path for one in self._mounts if one.cluster == cluster and one.mounting.mark == mark)
        return next(same, "") or identity.engine_path(source=origin)

    async def _with_finalizer(self, obj: Object) -> Object:
        finalizers = obj["metadata"].get("finalizers", [])
        if names.FINALIZER in finalizers:
            return obj
        metadata = {
            "resourceVersion": obj["metadata"]["resourceVersion"],
            "finalizers": [*finalizers, names.FINALIZER],
        }
        return await self._context.api.merge(
            DATASETS,
            name=obj["metadata"]["name"],
            namespace=obj["metadata"]["namespace"],
            patch={"metadata": metadata},
        )

    async def _deleted(self, obj: Object, left: float | Problem | None) -> float | None:
        return await self._publisher.blocked(obj, left) if isinstance(left, Problem) else left

    async def _gone(self, key: WorkKey) -> float | None:
        """The Dataset is gone. Where no other reads a mount, nothing is loaded any more, and the sweep removes it."""
        self._publisher.forget(key)
        self._endpoints.forget(key)
        left = False
        for mount in self._mounts:
            if self._context.stores.cache_cluster(mount.cluster) is None:
                await self._mounts.drop(mount)
            elif not readers.users_of(stores=self._context.stores, cluster=mount.cluster, path=mount.path):
                self._mounts.assigner(mount.cluster).stop(mount.path)
                left |= await self._orphans.sweep(mount.cluster)
        return self._context.settings.survey_seconds if left else None

    def _manifest_lost(self, digest: str) -> None:
        """Somebody needs a manifest that is nowhere: what it is of is listed."""
        for mount in self._mounts:
            if mount.manifests.lost(digest):
                self._wake(mount.cluster, {mount.path}, after=self._context.settings.survey_seconds)

    def _cache_changed(self, cluster: str, paths: set[str] | None) -> None:
        self._wake(cluster, paths)
        self.on_cache(cluster)

    def _agents_changed(self, cluster: str, paths: set[str] | None) -> None:
        self._wake(cluster, paths, after=self._context.settings.progress_seconds / 4)

    def _room_changed(self, cluster: str, paths: set[str]) -> None:
        """Room that frees itself is for those that have less than they ask for; where there is less, some must go."""
        self._wake(cluster, paths | self._mounts.manager.lacking(cluster), after=ROOM_SECONDS)

    def _wake(self, cluster: str, paths: set[str] | None, *, after: float = 0.0) -> None:
        """Look soon at the Datasets of some mounts of a cluster, or of all, and at their Preloads."""
        stores = self._context.stores
        if paths is None:
            keys = [
                WorkKey(DATASETS, *key)
                for key, obj in stores.datasets.items()
                if names.cache_cluster_of(obj) == cluster
            ]
        else:
            keys = []
            for path in paths:
                mount = self._mounts.find(cluster=cluster, path=path)
                seen = readers.users_of(stores=stores, cluster=cluster, path=path)
                keys += seen if mount is None else mount.users.union(seen)
        for key in keys:
            if after:
                self._context.queue.add_after(key, after)
            else:
                self._context.queue.add(key)
            self._wake_preloads(key)

    def _wake_preloads(self, dataset: WorkKey) -> None:
        for key in readers.preload_keys(
            stores=self._context.stores, namespace=dataset.namespace, dataset=dataset.name
        ):
            self._context.queue.add(key)
