"""One pass over a Dataset: observe, plan, apply, report."""

import time
from collections.abc import Callable

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import Finding
from tdcs.api.dataset import Dataset, DatasetState
from tdcs.controllers import status
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset import identity, report, source, teardown, volumes
from tdcs.controllers.dataset.data import READ_TYPE, MountedData
from tdcs.controllers.dataset.report import Holdings
from tdcs.controllers.dataset.source import NotYetError
from tdcs.controllers.invalid import explain
from tdcs.controllers.nodes import node_views
from tdcs.engine.protocol import Engine, EngineError, Source
from tdcs.kube.api import Object
from tdcs.kube.apply import ForeignObjectError
from tdcs.kube.errors import InvalidError
from tdcs.kube.resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

LISTING_SHARE = 20.0
"""A dataset that rests is listed for at most one part in so many of the time."""


class DatasetController:
    """Keeps every Dataset mounted, loaded and claimable.

    What it remembers (`MountedData`) saves work only; after a restart all of it is found again.
    """

    def __init__(self, *, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._data: dict[tuple[str, str], MountedData] = {}

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.api.get(DATASETS, name=key.name, namespace=key.namespace)
        if obj is None:
            for data in self._data.values():
                data.users.discard(key)
            return None
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError as error:
            if obj["metadata"].get("deletionTimestamp"):
                return await teardown.unreadable(context=self._context, obj=obj)
            await self._publish_blocked(obj, NotYetError(reason="InvalidSpec", message=explain(error)))
            return None
        try:
            if obj["metadata"].get("deletionTimestamp"):
                return await self._tear_down(key, obj, dataset)
            return await self._keep(key, obj, dataset)
        except NotYetError as cause:
            # The pass may have written the status since it read the object, and that must stand.
            latest = await self._context.api.get(DATASETS, name=key.name, namespace=key.namespace)
            if latest is not None:
                await self._publish_blocked(latest, cause)
            return cause.retry_after

    async def close(self) -> None:
        """Stop all loads."""
        for data in self._data.values():
            if data.run is not None:
                await data.run.cancel()

    async def _keep(self, key: WorkKey, obj: Object, dataset: Dataset) -> float:
        obj = await self._with_finalizer(obj)
        self._require_cluster(dataset)
        credentials = await source.read_credentials(
            context=self._context, namespace=key.namespace, spec=dataset.spec
        )
        origin = identity.source_of(spec=dataset.spec, credentials=credentials)
        path = await self._claimable(obj, dataset, origin)
        # The path is in the status before anything is mounted there, so that a deletion always finds it.
        if dataset.status is None or dataset.status.mount_path != path:
            obj = await self._publish(obj, report.mounting(dataset.spec.source.uri), Holdings(), path)
        data = self._remembered(cluster=dataset.spec.cache_cluster, path=path)
        data.users.add(key)
        engine = self._context.engines.get(cluster=dataset.spec.cache_cluster)
        async with data.lock:
            try:
                await self._mounted(engine, data, origin)
                return await self._loaded(key, obj, dataset, data, engine)
            except EngineError as error:
                data.mounted_with = None  # look again at everything when the engine is back
                raise source.as_not_yet(error, mounted=data.survey is not None) from error

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

    def _require_cluster(self, dataset: Dataset) -> None:
        cluster = dataset.spec.cache_cluster
        if ("", cluster) not in self._context.stores.cache_clusters:
            raise NotYetError(
                reason="CacheClusterNotFound",
                message=f"there is no CacheCluster {cluster} (spec.cacheCluster): create it, or create the "
                "Dataset anew with the name of one that exists (kubectl get cacheclusters)",
                retry_after=source.RETRY_SOON,
            )

    async def _claimable(self, obj: Object, dataset: Dataset, origin: Source) -> str:
        """See to the volume and the claim; gives the engine path, which never changes once a volume has it."""
        context, metadata = self._context, obj["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        volume_name = names.volume_name(namespace=namespace, dataset=name)
        live = await context.api.get(PERSISTENT_VOLUMES, name=volume_name)
        known = dataset.status.mount_path if dataset.status else ""
        path = volumes.mounted_path(live) or known or identity.engine_path(source=origin)
        try:
            if live is not None and volumes.is_spent(live):
                await context.api.delete(PERSISTENT_VOLUMES, name=volume_name, uid=live["metadata"]["uid"])
                context.applier.forget(PERSISTENT_VOLUMES, namespace="", name=volume_name)
                live = None
            wanted = volumes.volume(dataset=obj, cluster=dataset.spec.cache_cluster, path=path)
            live = await context.applier.apply(PERSISTENT_VOLUMES, wanted=wanted, live=live, owner=obj)
            if volumes.is_unseen(live, now=context.now()):
                context.queue.add_after(WorkKey(DATASETS, namespace, name), volumes.UNSEEN_RETRY)
                return path
            claim = await context.api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace)
            await context.applier.apply(
                PERSISTENT_VOLUME_CLAIMS, wanted=volumes.claim(dataset=obj), live=claim, owner=obj
            )
        except ForeignObjectError as error:
            raise NotYetError(reason="NameTaken", message=str(error)) from error
        except InvalidError as error:
            raise NotYetError(reason="ChildRefused", message=str(error)) from error
        return path

    def _remembered(self, *, cluster: str, path: str) -> MountedData:
        return self._data.setdefault((cluster, path), MountedData(cluster=cluster, path=path))

    async def _mounted(self, engine: Engine, data: MountedData, origin: Source) -> None:
        wanted = identity.digest(origin)
        if data.mounted_with == wanted and data.path in await engine.mounts():
            return
        await engine.mount(path=data.path, source=origin)
        data.mounted_with = wanted
        data.preloaded = data.pinned = None
        data.survey = None

    async def _loaded(
        self, key: WorkKey, obj: Object, dataset: Dataset, data: MountedData, engine: Engine
    ) -> float:
        """Load what is missing, and report. The oldest Dataset of a mount decides where its blocks lie."""
        leader = self._leader(key, dataset, data)
        preload = leader.spec.preload.enabled
        uri = dataset.spec.source.uri
        await self._set_reading(engine, data, preload=preload)
        if data.loading:
            return await self._publish_loading(obj, data, uri)
        await self._survey(engine, data, leader)
        held = data.held()
        if held.total_files == 0:
            data.survey = None  # list the source again next time
            raise NotYetError(
                reason="SourceEmpty",
                message=f"there is no file under {uri}: correct spec.source.uri, or put the data there",
                mounted=True,
            )
        if not preload or data.plan is None:
            await self._publish(obj, report.on_demand(held=held, uri=uri), held, data.path)
            return self._context.settings.survey_seconds
        return await self._follow_plan(obj, data, engine, uri)

    async def _follow_plan(self, obj: Object, data: MountedData, engine: Engine, uri: str) -> float:
        plan = data.plan
        if plan is None:
            raise NotYetError(reason="Planning", message="the placement is being planned", mounted=True)
        if not plan.copy.nodes:
            data.survey = None
            raise NotYetError(
                reason="NoCacheNode",
                message="no live cache worker with free space is on a node that matches "
                "spec.placement.nodeSelector: see kubectl get cacheclusters, or change the selector",
                retry_after=source.RETRY_SOON,
                mounted=True,
            )
        if any(plan.missing.values()):
            if self._clock() >= data.retry_at:
                users = frozenset(data.users)
                data.start(engine=engine, on_done=lambda: self._wake(users, data), clock=self._clock)
            return await self._publish_loading(obj, data, uri)
        settled = await self._settle(engine, data)
        held = data.held()
        await self._publish(obj, report.loaded(held=held, uri=uri, plan=plan), held, data.path)
        settings = self._context.settings
        return settings.survey_seconds if settled else settings.progress_seconds

    async def _survey(self, engine: Engine, data: MountedData, leader: Dataset) -> None:
        workers = await engine.workers()
        stores = self._context.stores
        views = node_views(nodes=stores.nodes, pods=stores.pods)
        # What the plan depends on, apart from the blocks: when it changes, look again at once.
        basis = (
            leader.spec.placement,
            leader.spec.preload,
            tuple((worker.name, worker.live, worker.capacity_bytes) for worker in workers),
            tuple(sorted((name, tuple(sorted(view.labels.items()))) for name, view in views.items())),
        )
        now = self._clock()
        age = now - data.surveyed_at
        # Listing a million files takes a minute or two: it must stay a small part of the master's work.
        period = max(self._context.settings.survey_seconds, LISTING_SHARE * data.survey_took)
        fresh = age < period and data.run is None
        due = data.surveyed_at < data.retry_at <= now
        if data.survey is not None and fresh and not due and data.surveyed_for == basis:
            return
        await data.look(
            engine=engine,
            placement=leader.spec.placement,
            workers=workers,
            nodes=views,
            preload=leader.spec.preload.enabled,
            refresh=data.survey is None,
            seen_for=basis,
            clock=self._clock,
        )

    async def _set_reading(self, engine: Engine, data: MountedData, *, preload: bool) -> None:
        """With preload what is placed stays as it is; without it, reads fill the cache."""
        if data.preloaded == preload:
            return
        read_type = "NO_CACHE" if preload else "CACHE"
        await engine.set_path_properties(path=data.path, properties={READ_TYPE: read_type})
        if not preload:
            await engine.pin(path=data.path, pinned=False)
            data.pinned = False
        data.preloaded = preload

    async def _settle(self, engine: Engine, data: MountedData) -> bool:
        """Protect what was placed, and drop copies that the placement no longer wants.

        Gives whether there was nothing to drop.
        """
        if not data.pinned:
            await engine.pin(path=data.path, pinned=True)
            data.pinned = True
        surplus = data.plan.surplus if data.plan is not None else {}
        if not surplus:
            return True
        for worker, blocks in surplus.items():
            await engine.drop(worker=worker, block_ids=blocks)
        data.surveyed_for = None  # look at once whether they are gone
        return False

    def _leader(self, key: WorkKey, dataset: Dataset, data: MountedData) -> Dataset:
        best = (_age_rank(self._context.stores.datasets.get((key.namespace, key.name)), key), dataset)
        for (namespace, name), other in self._context.stores.datasets.items():
            if (namespace, name) == (key.namespace, key.name) or other["metadata"].get("deletionTimestamp"):
                continue
            if (other.get("status") or {}).get("mountPath") != data.path:
                continue
            try:
                found = Dataset.model_validate(other)
            except ValidationError:
                continue
            if found.spec.cache_cluster == data.cluster:
                best = min(best, (_age_rank(other, WorkKey(DATASETS, namespace, name)), found), key=_first)
        return best[1]

    def _wake(self, users: frozenset[WorkKey], data: MountedData) -> None:
        for key in users | data.users:
            self._context.queue.add(key)

    async def _publish_loading(self, obj: Object, data: MountedData, uri: str) -> float:
        held = data.held()
        trouble = None if data.loading else data.trouble
        findings = report.loading(progress=data.progress(), uri=uri, trouble=trouble)
        await self._publish(obj, findings, held, data.path)
        return self._context.settings.progress_seconds

    async def _publish_blocked(self, obj: Object, cause: NotYetError) -> None:
        known = obj.get("status") or {}
        findings = report.blocked(reason=cause.reason, message=cause.message, mounted_too=cause.mounted)
        held = Holdings(
            total_bytes=known.get("totalBytes", 0),
            total_files=known.get("totalFiles", 0),
            cached_bytes=known.get("cachedBytes", 0),
            node_bytes={
                node["name"]: node["bytes"]
                for copy in known.get("copies", ())
                for node in copy.get("nodes", ())
            },
        )
        await self._publish(obj, findings, held, known.get("mountPath", ""))

    async def _publish(self, obj: Object, findings: list[Finding], held: Holdings, path: str) -> Object:
        state: DatasetState = (
            "Deleting" if obj["metadata"].get("deletionTimestamp") else report.state_of(findings)
        )
        claim_name = obj["metadata"]["name"] if path else ""
        wanted = report.status_of(held=held, claim_name=claim_name, mount_path=path, state=state)
        return await status.publish(
            context=self._context, resource=DATASETS, obj=obj, status=wanted, findings=findings
        )

    async def _tear_down(self, key: WorkKey, obj: Object, dataset: Dataset) -> float | None:
        path = dataset.status.mount_path if dataset.status else ""
        data = self._remembered(cluster=dataset.spec.cache_cluster, path=path) if path else None
        if data is not None:
            data.users.discard(key)
        left = await teardown.tear_down(context=self._context, obj=obj, dataset=dataset, data=data)
        if left is None and data is not None:
            if not data.users:
                self._data.pop((data.cluster, data.path), None)
            self._wake(frozenset(), data)
        return left


def _age_rank(obj: Object | None, key: WorkKey) -> tuple[str, str, str]:
    created = obj["metadata"].get("creationTimestamp", "") if obj is not None else "9999"
    return created, key.namespace, key.name


def _first(pair: tuple[tuple[str, str, str], Dataset]) -> tuple[str, str, str]:
    return pair[0]
