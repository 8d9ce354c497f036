"""One pass over a Dataset: observe, plan, apply, report."""

import time
from collections.abc import Callable

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.dataset import Dataset, Kept
from tdcs.controllers import status
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset import identity, report, sharing, source, teardown, verdicts, volumes, wants
from tdcs.controllers.dataset.checks import LISTING_SHARE, Check, next_check
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.report import Holdings, Known
from tdcs.controllers.dataset.sharing import Reader
from tdcs.controllers.dataset.source import NotYetError
from tdcs.controllers.invalid import explain
from tdcs.controllers.nodes import node_views
from tdcs.engine.protocol import Engine, EngineError, MountConflictError, Source, SourceError
from tdcs.kube.api import Object
from tdcs.kube.resources import DATASETS


class DatasetController:
    """Keeps every Dataset mounted, loaded and claimable, and carries out its Preloads.

    What it remembers (`MountedData`) saves work only; after a restart all of it is found again.
    """

    def __init__(self, *, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._data: dict[tuple[str, str], MountedData] = {}

    def data_of(self, *, cluster: str, path: str) -> MountedData | None:
        """What is remembered of a mount; for reading only."""
        return self._data.get((cluster, path))

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
            await data.close()

    async def _keep(self, key: WorkKey, obj: Object, dataset: Dataset) -> float:
        obj = await self._with_finalizer(obj)
        cluster = dataset.spec.cache_cluster
        source.require_cluster(context=self._context, spec=dataset.spec)
        live = await volumes.check(context=self._context, obj=obj)
        engine = self._context.engines.get(cluster=cluster)
        trouble: NotYetError | None = None
        origin: Source | None = None
        try:
            keys = await source.read_credentials(
                context=self._context, namespace=key.namespace, spec=dataset.spec
            )
            origin = identity.source_of(spec=dataset.spec, credentials=keys)
        except NotYetError as cause:
            if not _serves(dataset):
                raise
            trouble = cause  # the cache has the keys that it was mounted with
        path = volumes.mounted_path(live) or (dataset.status.mount_path if dataset.status else "")
        if not path and origin is not None:
            mark = identity.mark(origin)
            path = sharing.same_source(datas=self._data, cluster=cluster, mark=mark) or identity.engine_path(
                source=origin
            )
        # The path is in the status before anything is mounted there, so that a deletion always finds it.
        if dataset.status is None or dataset.status.mount_path != path:
            found = verdicts.mounting(dataset.spec.source.uri)
            wanted = report.status_of(held=Holdings(), state="Mounting", known=Known(mount_path=path))
            obj = await status.publish(
                context=self._context, resource=DATASETS, obj=obj, status=wanted, findings=found
            )
            dataset = Dataset.model_validate(obj)
        data = self._data.setdefault((cluster, path), MountedData(cluster=cluster, path=path))
        data.users.add(key)
        async with data.lock:
            try:
                trouble = await self._mounted(engine, data, origin, dataset) or trouble
                return await self._loaded(
                    Reader(key=key, obj=obj, dataset=dataset), data, engine, trouble=trouble
                )
            except EngineError as error:
                known_before = data.survey is not None
                data.forget()  # look again at everything when the engine is back
                raise source.as_not_yet(error, mounted=known_before) from error

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

    async def _mounted(
        self, engine: Engine, data: MountedData, origin: Source | None, dataset: Dataset
    ) -> NotYetError | None:
        """See to the mount; gives what is wrong with the source of a mount that serves all the same."""
        mounts = await engine.mounts()
        there = data.path in mounts
        if origin is None:
            if there:
                return None
            raise NotYetError(
                reason="MountLost",
                message="the cache has lost the mount, and its keys cannot be read to mount it again: see the "
                "condition SourceReachable for the remedy",
                retry_after=source.RETRY_SOON,
            )
        mark = identity.mark(origin)
        if there and data.source == mark:
            return None
        try:
            await engine.mount(path=data.path, source=origin)
        except MountConflictError as error:
            told = sharing.conflict(
                stores=self._context.stores,
                cluster=data.cluster,
                path=data.path,
                source=origin,
                mounts=mounts,
            )
            if told is None:
                raise
            raise NotYetError(reason="MountConflict", message=told, retry_after=source.RETRY_LATER) from error
        except SourceError as error:
            if there and _serves(dataset):
                return source.as_not_yet(error, mounted=True)
            raise
        data.forget()
        data.source = mark
        return None

    async def _loaded(
        self, me: Reader, data: MountedData, engine: Engine, *, trouble: NotYetError | None
    ) -> float:
        """Load what is missing for all who read the mount, and report how it stands with this Dataset."""
        context, now = self._context, self._context.now()
        users = sharing.readers(stores=context.stores, data=data, me=me)
        me = _with_kept(me, context=context)
        users = [me if user.key == me.key else user for user in users]
        preload = any(user.dataset.spec.preload.enabled for user in users)
        await data.set_reading(engine, preload=preload)
        await data.mend(engine)
        check = next_check(me=me, users=users, data=data, clock=self._clock, now=now)
        try:
            await self._survey(engine, data, users, refresh=check.due and trouble is None)
        except SourceError as error:
            if data.survey is None and not _serves(me.dataset):
                raise
            trouble = source.as_not_yet(error, mounted=True)
            await self._survey(engine, data, users, refresh=False)
        held = data.held()
        if held.total_files == 0:
            data.survey = None  # list the source again next time
            uri = me.dataset.spec.source.uri
            raise NotYetError(
                reason="SourceEmpty",
                message=f"there is no file under {uri}: correct spec.source.uri, or put the data there",
                mounted=True,
            )
        await volumes.provide(
            context=context, obj=me.obj, cluster=data.cluster, path=data.path, size=held.total_bytes
        )
        if data.plan.missing and not data.loading and self._clock() >= data.retry_at:
            await data.start(engine=engine, on_done=lambda: self._wake(data), clock=self._clock)
        settled = data.loading or data.plan.missing or await data.settle(engine)
        wait = await self._report(me, data, held=held, check=check, trouble=trouble)
        return wait if settled else min(wait, context.settings.progress_seconds)

    async def _survey(self, engine: Engine, data: MountedData, users: list[Reader], *, refresh: bool) -> None:
        """List the blocks and plan anew, when that is due or something that the plan depends on has changed."""
        context, stores = self._context, self._context.stores
        workers = await engine.workers()
        views = node_views(nodes=stores.nodes, pods=stores.pods)
        found = sharing.all_wants(stores=stores, users=users, now=context.now())
        basis = (
            tuple(found),
            data.preloaded,
            tuple((worker.name, worker.live, worker.capacity_bytes) for worker in workers),
            # Of the nodes that cache only: a label of any other one would end a load that is under way.
            tuple(
                tuple(sorted(views[worker.name].labels.items())) if worker.name in views else None
                for worker in workers
            ),
        )
        now = self._clock()
        # Listing a million files takes a minute or two: it must stay a small part of the master's work.
        period = max(context.settings.survey_seconds, LISTING_SHARE * data.survey_took)
        if data.survey is not None and data.surveyed_for == basis and not refresh:
            retry = data.surveyed_at < data.retry_at <= now
            ended = bool(data.runs)
            if data.loading or not (retry or ended or now - data.surveyed_at >= period):
                return
        await data.stop()
        await data.look(
            engine=engine,
            wants=found,
            workers=workers,
            nodes=views,
            held_before=sharing.held_before(stores=stores, users=users, data=data),
            refresh=refresh,
            seen_for=basis,
            on_done=lambda: self._wake(data),
            clock=self._clock,
        )
        if refresh:
            data.checked = context.now()
        self._wake_preloads(users)

    async def _report(
        self, me: Reader, data: MountedData, *, held: Holdings, check: Check, trouble: NotYetError | None
    ) -> float:
        settings, spec, uri = self._context.settings, me.dataset.spec, me.dataset.spec.source.uri
        key = wants.dataset_key(namespace=me.key.namespace, name=me.key.name)
        plan, progress = data.want(key), data.progress(key)
        wait = min(settings.survey_seconds, check.seconds_left)
        if plan is None:
            found = verdicts.on_demand(held=held, uri=uri)
        elif not plan.copies:
            found = verdicts.blocked(reason="NoCacheNode", message=_no_node(me.dataset), mounted_too=True)
            wait = source.RETRY_SOON
        elif plan.wanted_bytes <= progress.placed_bytes and not (key in data.runs or len(plan.work)):
            found = verdicts.loaded(held=held, uri=uri, plan=plan)
        elif not plan.want.load:
            start = spec.preload.start_time or ""
            found = verdicts.scheduled(progress=progress, uri=uri, plan=plan, start=start)
            wait = min(wait, wants.seconds_until(start, now=self._context.now()) + 1)
        else:
            told = None if data.loading else data.troubles.get(key)
            found = verdicts.loading(progress=progress, uri=uri, plan=plan, trouble=told)
            wait = settings.progress_seconds
        if data.loading:
            wait = settings.progress_seconds
        found.append(verdicts.reachable((trouble.reason, trouble.message) if trouble else None))
        known = Known(
            claim_name=me.key.name,
            mount_path=data.path,
            checked=data.checked or (me.dataset.status.last_source_check_time if me.dataset.status else None),
            refreshed=check.asked if trouble is None else check.answered,
            kept=tuple(me.kept),
        )
        state = verdicts.state_of(found)
        wanted = report.status_of(held=held, state=state, known=known, plan=plan, progress=progress)
        await status.publish(
            context=self._context, resource=DATASETS, obj=me.obj, status=wanted, findings=found
        )
        return min(wait, trouble.retry_after) if trouble is not None else wait

    def _wake(self, data: MountedData) -> None:
        for key in data.users:
            self._context.queue.add(key)
            for preload in sharing.preload_keys(
                stores=self._context.stores, namespace=key.namespace, dataset=key.name
            ):
                self._context.queue.add(preload)

    def _wake_preloads(self, users: list[Reader]) -> None:
        for user in users:
            for key in sharing.preload_keys(
                stores=self._context.stores, namespace=user.key.namespace, dataset=user.key.name
            ):
                self._context.queue.add(key)

    async def _publish_blocked(self, obj: Object, cause: NotYetError) -> None:
        found = verdicts.blocked(reason=cause.reason, message=cause.message, mounted_too=cause.mounted)
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        wanted = report.remembered(obj, state="Deleting" if deleting else verdicts.state_of(found))
        await status.publish(context=self._context, resource=DATASETS, obj=obj, status=wanted, findings=found)

    async def _tear_down(self, key: WorkKey, obj: Object, dataset: Dataset) -> float | None:
        path = dataset.status.mount_path if dataset.status else ""
        place = (dataset.spec.cache_cluster, path)
        data = self._data.setdefault(place, MountedData(cluster=place[0], path=path)) if path else None
        if data is not None:
            data.users.discard(key)
        left = await teardown.tear_down(context=self._context, obj=obj, dataset=dataset, data=data)
        if left is None and data is not None:
            if not data.users:
                self._data.pop(place, None)
            self._wake(data)
        return left


def _serves(dataset: Dataset) -> bool:
    """Whether the Dataset was mounted when it was last reported on."""
    return dataset.status is not None and is_true(dataset.status.conditions, names.MOUNTED)


def _with_kept(me: Reader, *, context: Context) -> Reader:
    """The Dataset with what its Preloads have completed since the status was written."""
    there = sharing.preloads_of(stores=context.stores, namespace=me.key.namespace, dataset=me.key.name)
    kept: list[Kept] = wants.kept_now(
        known=me.kept, preloads=there, generation=int(me.obj["metadata"].get("generation", 0))
    )
    if me.dataset.status is None or kept == list(me.kept):
        return me
    renewed = me.dataset.status.model_copy(update={"kept": kept})
    return Reader(key=me.key, obj=me.obj, dataset=me.dataset.model_copy(update={"status": renewed}))


def _no_node(dataset: Dataset) -> str:
    selector = dataset.spec.placement.node_selector
    told = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
    which = f"the labels of spec.placement.nodeSelector ({told})" if told else "a live cache worker"
    return (
        f"no node with {which} has a live cache worker with free space: see kubectl get cacheclusters -o wide, "
        "free or add cache capacity, or change the selector"
    )
