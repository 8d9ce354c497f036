"""One pass over a Dataset: observe, plan, apply, report."""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset import (
    identity,
    ledger,
    report,
    sharing,
    source,
    teardown,
    verdicts,
    volumes,
    wants,
)
from tdcs.controllers.dataset.checks import Check, broken_off, next_check, untold
from tdcs.controllers.dataset.comparing import mend
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.ledger import MountLedger
from tdcs.controllers.dataset.mounting import Outcome, see_to_mount
from tdcs.controllers.dataset.orphans import Orphans
from tdcs.controllers.dataset.report import Holdings, Known
from tdcs.controllers.dataset.sharing import Reader
from tdcs.controllers.dataset.source import NotYetError
from tdcs.controllers.dataset.watching import watch
from tdcs.controllers.publish import publish_status
from tdcs.controllers.validation import explain_invalid
from tdcs.engine.protocol import Engine, EngineError, Source
from tdcs.kube.api import Object
from tdcs.kube.resources import DATASETS

LOCKED_RETRY = 0.5
"""Seconds after which a Dataset is looked at whose mount another pass is working on."""


class DatasetController:
    """Keeps every Dataset mounted, loaded and claimable, and carries out its Preloads.

    What it remembers (`MountedData`) saves work only; after a restart all of it is found again.
    """

    def __init__(self, *, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._data: dict[tuple[str, str], MountedData] = {}
        self._orphans = Orphans(context=context, datas=self._data, clock=clock)

    def data_of(self, *, cluster: str, path: str) -> MountedData | None:
        """What is remembered of a mount; for reading only."""
        return self._data.get((cluster, path))

    def ledgers(self, *, cluster: str) -> list[MountLedger]:
        """What of every mount of a cache cluster lies on which workers, as far as it is known."""
        return ledger.ledgers(datas=self._data, cluster=cluster)

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.api.get(DATASETS, name=key.name, namespace=key.namespace)
        if obj is None:
            self._context.gone(key)
            return await self._left(key)
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError as error:
            if obj["metadata"].get("deletionTimestamp"):
                return await teardown.unreadable(context=self._context, obj=obj)
            await self._publish_blocked(
                obj, NotYetError(reason="InvalidSpec", message=explain_invalid(error))
            )
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

    async def sweep(self, *, cluster: str) -> None:
        """Unmount what no Dataset of a cache cluster has any more."""
        await self._orphans.sweep(cluster)

    async def _left(self, key: WorkKey) -> float | None:
        """The Dataset is gone: nothing is loaded for it any more, and what it may have left mounted is seen to."""
        alone = set()
        for (cluster, _), data in list(self._data.items()):
            data.users.discard(key)
            if not data.users:
                alone.add(cluster)
                await data.stop()
        for cluster in alone & {name for _, name in self._context.stores.cache_clusters}:
            await self._orphans.sweep(cluster)
        return self._context.settings.survey_seconds if alone else None

    async def close(self) -> None:
        """Stop all loads."""
        await self._orphans.close()
        for data in self._data.values():
            await data.close()

    async def _keep(self, key: WorkKey, obj: Object, dataset: Dataset) -> float:
        obj = await self._with_finalizer(obj)
        cluster = dataset.spec.cache_cluster
        new = dataset.status is None or not dataset.status.mount_path
        source.require_cluster(context=self._context, spec=dataset.spec, new=new)
        await self._orphans.sweep(cluster)
        live = await volumes.check(context=self._context, obj=obj)
        trouble: NotYetError | None = None
        origin: Source | None = None
        try:
            keys = await source.read_credentials(
                context=self._context, namespace=key.namespace, spec=dataset.spec
            )
            origin = identity.source_of(spec=dataset.spec, credentials=keys)
        except NotYetError as cause:
            if not sharing.serves(dataset):
                raise
            trouble = cause  # the cache has the keys that it was mounted with
        path = sharing.path_of(
            dataset=dataset,
            datas=self._data,
            origin=origin,
            claimed=volumes.mounted_path(live),
        )
        # The path is in the status before anything is mounted there, so that a deletion always finds it.
        if dataset.status is None or dataset.status.mount_path != path:
            found = verdicts.mounting(dataset.spec.source.uri)
            wanted = report.status_of(held=Holdings(), state="Mounting", known=Known(mount_path=path))
            obj = await publish_status(
                context=self._context, resource=DATASETS, obj=obj, status=wanted, findings=found
            )
            dataset = Dataset.model_validate(obj)
            for known in self._data.values():
                known.users.discard(key)
        data = self._data.setdefault((cluster, path), MountedData(cluster=cluster, path=path))
        data.users.add(key)
        if data.lock.locked():
            # A twin is at it: its pass may wait for the cache, and this one need not wait beside it.
            return min(self._context.settings.progress_seconds, LOCKED_RETRY)
        async with data.lock:
            try:
                return await self._served(Reader(key=key, obj=obj, dataset=dataset), data, origin, trouble)
            except EngineError as error:
                known_before = data.survey is not None
                data.doubt()  # look again at everything when the engine is back
                raise source.as_not_yet(error, mounted=known_before) from error

    async def _served(
        self, me: Reader, data: MountedData, origin: Source | None, trouble: NotYetError | None
    ) -> float:
        engine = self._context.engines.get(cluster=data.cluster)
        mount = await see_to_mount(
            context=self._context,
            engine=engine,
            data=data,
            origin=origin,
            me=me.key,
            serves=sharing.serves(me.dataset),
            clock=self._clock,
            on_done=lambda: self._wake(data),
        )
        if not mount.there:
            # The status says already that it is being mounted, or why not; the end of the mounting wakes its users.
            return self._context.settings.survey_seconds
        return await self._loaded(me, data, engine, mount=replace(mount, trouble=mount.trouble or trouble))

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

    async def _loaded(self, me: Reader, data: MountedData, engine: Engine, *, mount: Outcome) -> float:
        """Load what is missing for all who read the mount, and report how it stands with this Dataset."""
        context, now = self._context, self._context.now()
        users = sharing.readers(stores=context.stores, data=data, me=me)
        me = sharing.with_kept(me, stores=context.stores)
        users = [me if user.key == me.key else user for user in users]
        owned = any(user.dataset.spec.preload.enabled for user in users)
        wanted = sharing.all_wants(stores=context.stores, users=users, now=now)
        await data.set_reading(
            engine, owned=owned, fills=not (owned or any(want.subset.whole for want in wanted))
        )
        await mend(data, engine)
        # Until the source has been listed, whatever becomes of the states meanwhile.
        data.outdated = data.outdated or broken_off(stores=context.stores, users=users, data=data)
        check = next_check(me=me, users=users, data=data, clock=self._clock, now=now)
        if mount.trouble is not None:
            check = replace(check, due=False)
        known = data.survey
        wanted = await watch(
            context=context,
            engine=engine,
            data=data,
            datas=[one for (cluster, _), one in self._data.items() if cluster == data.cluster],
            users=users,
            check=check,
            clock=self._clock,
            on_done=lambda: self._wake(data),
        )
        if data.survey is None or not data.has_planned(me.own_want, wanted):
            # The end of the listing wakes it, too.
            soon = data.away_since is not None
            return context.settings.progress_seconds if soon else context.settings.survey_seconds
        if data.survey is not known:
            for user in users:
                self._wake_preloads(user.key)
        held = data.held()
        if held.total_files == 0:
            data.survey, data.checked_at = None, -math.inf  # list the source again next time
            data.look_at = self._clock() + context.settings.survey_seconds
            uri = me.dataset.spec.source.uri
            raise NotYetError(
                reason="SourceEmpty",
                message=f"there is no file under {uri}: correct spec.source.uri, or put the data there",
                mounted_uri=uri,
            )
        claimed = await volumes.provide(
            context=context, obj=me.obj, cluster=data.cluster, path=data.path, size=held.total_bytes
        )
        keys = data.due_loads(wants=wanted, now=self._clock())
        if keys:
            await data.start(keys=keys, engine=engine, on_done=lambda: self._wake(data), clock=self._clock)
        settled = data.runs or data.plan.missing or await data.settle(engine)
        wait = await self._report(
            me, data, held=held, claimed=claimed, check=check, mount=mount, shared=len(users) > 1
        )
        return wait if settled else min(wait, context.settings.progress_seconds)

    async def _report(
        self,
        me: Reader,
        data: MountedData,
        *,
        held: Holdings,
        claimed: bool,
        check: Check,
        mount: Outcome,
        shared: bool,
    ) -> float:
        settings, spec, uri = self._context.settings, me.dataset.spec, me.dataset.spec.source.uri
        key = me.own_want
        plan, progress = data.want(key), data.progress(key)
        trouble = mount.trouble or data.source_trouble
        wait = min(settings.survey_seconds, max(check.seconds_left, 1.0))
        if plan is None:
            found = verdicts.on_demand(held=held, uri=uri, shared=shared)
        elif not plan.copies:
            found = verdicts.unplaced(uri=uri, selector=spec.placement.node_selector)
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
        if data.wrong:
            found = verdicts.with_wrong(found, wrong=data.wrong)
        if data.loading or data.short_since is not None or data.away_since is not None:
            wait = settings.progress_seconds
        if trouble is not None:
            found = verdicts.with_trouble(found, reason=trouble.reason, message=trouble.message)
        found.append(
            verdicts.reachable((trouble.reason, trouble.message) if trouble else None, differs=mount.differs)
        )
        known = Known(
            claim_name=me.key.name if claimed else me.dataset.status.claim_name if me.dataset.status else "",
            mount_path=data.path,
            checked=data.checked or (me.dataset.status.last_source_check_time if me.dataset.status else None),
            refreshed=data.answered.get(me.key, check.answered),
            kept=tuple(me.kept),
        )
        state = verdicts.state_of(found)
        brought = sharing.brought_to(me, stores=self._context.stores, data=data, now=self._context.now())
        wanted = report.status_of(
            held=held, state=state, known=known, plan=plan, progress=progress, brought=brought
        )
        last = me.dataset.status.last_source_check_time if me.dataset.status else None
        await publish_status(
            context=self._context,
            resource=DATASETS,
            obj=me.obj,
            status=wanted,
            findings=found,
            beside=untold(last, now=self._context.now()),
        )
        return min(wait, trouble.retry_after) if trouble is not None else wait

    def _wake(self, data: MountedData | None, *, also: WorkKey | None = None) -> None:
        for key in {*(data.users if data is not None else ()), *([also] if also is not None else ())}:
            self._context.queue.add(key)
            self._wake_preloads(key)

    def _wake_preloads(self, dataset: WorkKey) -> None:
        for key in sharing.preload_keys(
            stores=self._context.stores, namespace=dataset.namespace, dataset=dataset.name
        ):
            self._context.queue.add(key)

    async def _publish_blocked(self, obj: Object, cause: NotYetError) -> None:
        found = verdicts.blocked(
            reason=cause.reason, message=cause.message, mounted_too=cause.mounted, uri=cause.mounted_uri
        )
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        wanted = report.remembered(obj, state="Deleting" if deleting else verdicts.state_of(found))
        await publish_status(context=self._context, resource=DATASETS, obj=obj, status=wanted, findings=found)

    async def _tear_down(self, key: WorkKey, obj: Object, dataset: Dataset) -> float | None:
        path = dataset.status.mount_path if dataset.status else ""
        place = (dataset.spec.cache_cluster, path)
        data = self._data.setdefault(place, MountedData(cluster=place[0], path=path)) if path else None
        if data is not None:
            data.users.discard(key)
        left = await teardown.tear_down(
            context=self._context,
            obj=obj,
            dataset=dataset,
            data=data,
            on_done=lambda: self._wake(data, also=key),
        )
        if left is None and data is not None:
            if not data.users:
                self._data.pop(place, None)
            self._wake(data)
        return left
