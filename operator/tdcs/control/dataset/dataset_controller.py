"""One pass over a Dataset: observe, decide, act, publish. What concerns its mount is done by `mount.mount_pass`."""

import logging
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset.access import credentials, dataset_volume, volume_objects
from tdcs.control.dataset.access.dataset_volume import Volume
from tdcs.control.dataset.access.key_checks import KeyChecks
from tdcs.control.dataset.access.revoked_keys import RevokedKeys
from tdcs.control.dataset.access.store_endpoints import Endpoints, cluster_networks
from tdcs.control.dataset.access.volume_origins import UNCHECKED, MountedSource, VolumeOrigins
from tdcs.control.dataset.dataset_publisher import Publisher
from tdcs.control.dataset.mount import dataset_deletion as deletion
from tdcs.control.dataset.mount import listing_times, mount_identity, mount_readers
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_pass import reconcile
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.control.dataset.mount.mount_snapshot import MountRequest
from tdcs.control.dataset.mount.orphaned_mounts import Orphans, remove_unused
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.decide.may_read import (
    ENDPOINT_NOT_ALLOWED,
    HostAnswer,
    SourceUse,
    may_read,
    missing_cluster,
    pinned_address,
)
from tdcs.decide.problem import Problem, Refusal
from tdcs.model.cache_engine import Source
from tdcs.model.humanize import explain_invalid
from tdcs.model.kube_objects import Object, object_key, with_finalizer
from tdcs.model.kube_resources import DATASETS

_log = logging.getLogger(__name__)

LOCKED_RETRY = 0.5
"""Seconds after which a Dataset is looked at again while another pass works on its mount."""


class DatasetController:
    """Keeps every Dataset mounted, loaded and claimable, and carries out its Preloads."""

    def __init__(
        self,
        *,
        context: Context,
        world: World,
        networks: Callable[[], Sequence[str]] = lambda: (),
        services_known: Callable[[], bool] = lambda: True,
    ) -> None:
        clock = world.clock
        self._context = context
        self._clock = clock
        self._services_known = services_known
        self._world = world
        self._wakes = world.wakes
        self._orphans = Orphans(world=self._world)
        self._revoked = RevokedKeys(
            seconds=context.settings.revoked_seconds,
            grace=context.settings.keys_check_seconds,
            clock=clock,
            now=context.now,
        )
        self._publisher = Publisher(world=self._world, revoked=self._revoked)
        self._key_checks = KeyChecks(
            seconds=context.settings.keys_check_seconds, clock=clock, on_done=context.queue.add
        )
        self._uids: dict[WorkKey, str] = {}
        self._volume_origins = VolumeOrigins(key_checks=self._key_checks)
        self._endpoints = Endpoints(
            resolve=context.resolve,
            networks=lambda: cluster_networks(nodes=context.stores.nodes, more=networks()),
            pods=context.stores.pod_addresses,
            clock=clock,
            on_change=context.queue.add,
        )

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.read(key)
        if obj is None:
            return await self._gone(key)
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError as error:
            cause = Problem(reason="InvalidSpec", message=explain_invalid(error))
            return await (self._delete(key, obj, None) if deleting else self._publisher.blocked(obj, cause))
        if deleting:
            return await self._delete(key, obj, self._mount_of(dataset))
        if self._context.stores.is_going(key.namespace):
            return None  # nothing can be made in it: this Dataset is deleted in a moment, too
        return await self._keep(key, obj, dataset)

    async def sweep(self) -> None:
        """Unmount what no Dataset has any more, and remove the manifests that are not used any more."""
        for _, cluster in list(self._context.stores.cache_clusters):
            await self._orphans.sweep(cluster)
        await remove_unused(self._world)

    async def close(self) -> None:
        await self._world.observer.close()
        await self._endpoints.close()
        await self._key_checks.close()
        await self._world.close()

    async def _keep(self, key: WorkKey, obj: Object, dataset: Dataset) -> float | None:
        """A pass over a Dataset that stays: whether it may read its source, and with what; then its mount."""
        context, spec = self._context, dataset.spec
        cluster, serves = spec.cache_cluster_ref.name, mount_readers.serves(dataset)
        obj = await self._with_finalizer(obj)
        if self._uids.setdefault(key, uid := str(obj["metadata"]["uid"])) != uid:
            self._key_checks.forget(key)  # what the source said to another Dataset of this name lets none in
            self._uids[key] = uid
        new = dataset.status is None or not dataset.status.mount_path
        cause = missing_cluster(context.stores.cache_cluster(cluster), name=cluster, new=new)
        if cause is not None:
            return await self._publisher.blocked(obj, cause)
        if self._revoked.are_revoked(key):
            self._key_checks.forget(key)
            if not new:
                return await self._withdraw(obj, dataset, self._revoked.refusal(spec.source.uri))
        if new:
            self._revoked.begin(key)  # also one that was withdrawn: its keys are tried again
        use = self._source_use(key, dataset, serves=serves)
        if not use.host and use.rules is not None:
            self._endpoints.forget(key)
        answer = self._endpoints.look(use.host, user=key) if use.host else HostAnswer()
        doubt = may_read(use, answer=answer, networks_known=self._services_known())
        if doubt is not None and doubt.permanent:
            return await self._withdraw(obj, dataset, doubt)
        if doubt is not None and not serves:
            return await self._publisher.blocked(obj, doubt)
        if self._orphans.is_due(cluster):
            await self._orphans.sweep(cluster)
        live = await dataset_volume.find(context=context, obj=obj)
        if isinstance(live, Problem):
            return await self._publisher.blocked(obj, live)
        keys = await credentials.read_credentials(context=context, namespace=key.namespace, spec=spec)
        origin = None
        if not isinstance(keys, Refusal) and doubt is None:
            address = pinned_address(use, answer=answer)
            origin = mount_identity.source_of(
                spec=spec, credentials=keys, address=address, ca_bundle=use.verdict.ca_bundle
            )
        # What serves goes on while the source is in doubt: nothing is mounted, listed or assigned to be read meanwhile.
        trouble = doubt or (keys if isinstance(keys, Refusal) else None)
        # Neither a status nor a volume alone is an authority: whoever could write it would read another's data.
        claimed = volume_objects.mounted_path(live.volume)
        doubted = self._volume_doubt(key, obj, dataset, path=claimed, origin=origin) if claimed else None
        if doubted is not None and doubted.permanent:
            return await self._withdraw(obj, dataset, doubted)
        if doubted is not None and origin is not None and (left := self._key_checks.patience_left(key)):
            return left  # the answer wakes it sooner; all stands meanwhile
        if doubted is not None:
            origin, trouble = None, trouble or doubted
        if trouble is not None and not (claimed and serves):
            return await self._publisher.blocked(obj, trouble)
        path = self._path_of(dataset, origin=origin, claimed=claimed)
        mount = self._world.get(cluster=cluster, path=path)
        joins = not claimed and self._joins(obj, mount, origin)
        if joins and origin is not None:
            held = self._key_checks.join_doubt(
                key, origin, check_keys=context.caches.get(cluster=cluster).check_keys
            )
            if held is not None and (left := self._key_checks.patience_left(key)):
                return left  # the answer wakes it sooner
            if held is not None:
                wait = await self._publisher.blocked(obj, held)
                return _sooner(wait, self._key_checks.seconds_left(key))
        if new or (dataset.status is not None and dataset.status.mount_path != path):
            obj, dataset = await self._publisher.mounting(obj, path)
            if not joins and not claimed and self._joins(obj, mount, origin):
                return LOCKED_RETRY  # another one has mounted it meanwhile
        if mount.lock.locked():
            return min(context.settings.progress_seconds, LOCKED_RETRY)
        me = mount_readers.with_kept(Reader(key=key, obj=obj, dataset=dataset), stores=context.stores)
        async with mount.lock:
            wait = await self._work(me, mount, live, origin, doubt=doubt, trouble=trouble, joins=joins)
        return wait if wait is None or doubt is None else min(wait, doubt.retry_after)

    async def _work(
        self,
        me: Reader,
        mount: Mount,
        live: Volume,
        origin: Source | None,
        *,
        doubt: Refusal | None,
        trouble: Problem | None,
        joins: bool,
    ) -> float | None:
        """The pass over the mount, with its lock, and what it says of the Dataset."""
        users = mount_readers.readers(
            stores=self._context.stores, cluster=mount.cluster, path=mount.path, me=me
        )
        mount.users = frozenset(user.key for user in users)
        check = listing_times.next_check(
            me=me,
            users=users,
            versions=mount.manifests.view(),
            answered=mount.manifests.answered(me.key),
            clock=self._clock(),
            now=self._context.now(),
        )
        keys = self._look_at_keys(me, mount, origin, awaited=joins, shared=len(users) > 1)
        asked = MountRequest(
            me=me,
            source=origin,
            answer=self._key_checks.answer(me.key, origin),
            refused=keys,
            claimed=bool(volume_objects.mounted_path(live.volume)),
            check_due=check.due and doubt is None,
            # A store that seems to be inside the cluster is not read meanwhile.
            paused=doubt is not None and doubt.reason == ENDPOINT_NOT_ALLOWED and len(users) == 1,
        )
        before = mount.report
        found = await reconcile(world=self._world, mount=mount, asked=asked, users=users)
        if found is not before:
            self._wakes.needs_changed(mount.cluster)
        if before is None or before.placements.keys() != found.placements.keys():
            for user in users:
                self._wakes.preloads(user.key)
        left, written = None, _refused_since(me)
        if found.problem is None:
            unknown = doubt is not None or trouble is UNCHECKED
            refused = self._keys_refused(me, mount, found, origin, keys, unknown=unknown)
            left = self._revoked.note(me.key, refused=refused, written=written)
        else:
            self._revoked.unanswered(me.key)
        wait = await self._publisher.publish(
            me, mount, found, live=live, check=check, trouble=trouble or keys, shared=len(users) > 1
        )
        if not mount_readers.serves(me.dataset) and found.problem is None:
            self._wakes.preloads(me.key)  # which wait until it serves
        if found.problem is not None:
            return wait
        return _sooner(wait, left, self._key_checks.seconds_left(me.key))

    def _look_at_keys(
        self, me: Reader, mount: Mount, origin: Source | None, *, awaited: bool, shared: bool
    ) -> Problem | None:
        """Whether the source takes a Dataset's keys, asked before its mount may get them; None when it was not seen to
        refuse them. Of a source that is mounted for it alone, and first, the mount itself asks."""
        view = self._world.observer.view(mount.cluster)
        answers = view.answered and view.failure is None
        if mount.path not in view.mounts and not (shared and answers):
            return None
        differ = origin is not None and mount_identity.mark(origin) != mount.mounting.mark
        return self._key_checks.look(
            me.key,
            origin,
            check_keys=self._context.caches.get(cluster=mount.cluster).check_keys,
            awaited=awaited or differ,
            soon=_refused_since(me) is not None,
            doubted=mount.report is not None and bool(mount.report.away),
        )

    def _keys_refused(
        self,
        me: Reader,
        mount: Mount,
        found: MountReport,
        origin: Source | None,
        keys: Problem | None,
        *,
        unknown: bool,
    ) -> bool | None:
        """Whether a Dataset has no keys that its source takes; None while the source has not said so of these.
        `unknown`: it has keys, of which nothing can be said just now."""
        if not found.there:
            return None
        if origin is None:
            return None if unknown else True
        if any(one is not None and one.keys_refused for one in (found.trouble, keys)):
            return True
        taken = origin.credentials is None or self._key_checks.are_taken(me.key, origin)
        return False if taken or _is_listed(mount, origin) else None

    async def _delete(self, key: WorkKey, obj: Object, mount: Mount | None) -> float | None:
        self._endpoints.forget(key)
        self._revoked.forget(key)
        self._key_checks.forget(key)
        self._volume_origins.forget(key)
        left = await deletion.delete(world=self._world, obj=obj, mount=mount)
        if isinstance(left, Problem):
            return await self._publisher.blocked(obj, left)
        if left is None and mount is not None:
            self._wakes.datasets(mount.cluster, {mount.path})
        return left

    async def _withdraw(self, obj: Object, dataset: Dataset, cause: Problem) -> float | None:
        """A source that may not be used, or not any more: nothing of it is read or kept for this Dataset."""
        key, mount = WorkKey(DATASETS, *object_key(obj)), self._mount_of(dataset)
        # Without a mount, too: a volume may be there that was not made for it.
        left = await deletion.release(world=self._world, obj=obj, mount=mount, patient=False)
        if left is None:
            self._key_checks.forget(key)
            self._volume_origins.forget(key)
        await self._publisher.withdrawn(obj, cause, left=left)
        if left is not None:
            return left.retry_after if isinstance(left, Problem) else dataset_volume.POLL
        if mount is not None:
            self._wakes.datasets(mount.cluster, {mount.path})
        return cause.retry_after

    async def _gone(self, key: WorkKey) -> float | None:
        """The Dataset is gone. Where no other reads a mount, nothing is loaded any more, and the sweep removes it."""
        self._publisher.forget(key)
        self._uids.pop(key, None)
        self._endpoints.forget(key)
        self._revoked.forget(key)
        self._key_checks.forget(key)
        self._volume_origins.forget(key)
        left = False
        for mount in self._world:
            if self._context.stores.cache_cluster(mount.cluster) is None:
                await self._world.drop(mount)
            elif not mount_readers.users_of(
                stores=self._context.stores, cluster=mount.cluster, path=mount.path
            ):
                self._world.assigner(mount.cluster).stop(mount.path)
        # Each cache, for agents may know of mounts that this process has never had.
        for _, cluster in list(self._context.stores.cache_clusters):
            left |= await self._orphans.sweep(cluster)
        return self._context.settings.survey_seconds if left else None

    def _source_use(self, key: WorkKey, dataset: Dataset, *, serves: bool) -> SourceUse:
        labelled = self._context.stores.namespaces.get(("", key.namespace))
        return SourceUse(
            namespace=key.namespace,
            labels=None if labelled is None else (labelled.get("metadata") or {}).get("labels") or {},
            spec=dataset.spec,
            rules=self._world.spec_of(dataset.spec.cache_cluster_ref.name),
            serves=serves,
        )

    def _volume_doubt(
        self, key: WorkKey, obj: Object, dataset: Dataset, *, path: str, origin: Source | None
    ) -> Refusal | None:
        """Why the volume of a Dataset may not be its own; None when it is."""
        cluster = dataset.spec.cache_cluster_ref.name
        mount = self._world.find(cluster=cluster, path=path)
        return self._volume_origins.doubt(
            key,
            uid=obj["metadata"]["uid"],
            path=path,
            spec=mount_identity.source_of(spec=dataset.spec, credentials=None),
            source=origin,
            mounted=MountedSource(
                source=mount.mounting.source if mount is not None else None,
                uri=self._world.observer.view(cluster).mounts.get(path, ""),
            ),
            check_keys=self._context.caches.get(cluster=cluster).check_keys,
        )

    def _joins(self, obj: Object, mount: Mount, origin: Source | None) -> bool:
        """Whether a Dataset without a volume comes to a mount that was made for others, with keys of its own."""
        return (
            origin is not None
            and origin.credentials is not None
            and mount.mounting.is_of_others(
                obj["metadata"]["uid"], mounts=self._world.observer.view(mount.cluster).mounts
            )
        )

    def _mount_of(self, dataset: Dataset) -> Mount | None:
        path = dataset.status.mount_path if dataset.status else ""
        return self._world.get(cluster=dataset.spec.cache_cluster_ref.name, path=path) if path else None

    def _path_of(self, dataset: Dataset, *, origin: Source | None, claimed: str) -> str:
        """Where a Dataset is mounted, or shall be: by its volume, its spec and its keys, never by its status.

        One that pods may read stays where it is. Any other joins the mount that this process has made of the same
        source with the same keys: it may have been in conflict with that one, until its keys were corrected.
        """
        if claimed or origin is None:
            return claimed
        cluster, mark = dataset.spec.cache_cluster_ref.name, mount_identity.mark(origin)
        same = (one.path for one in self._world if one.cluster == cluster and one.mounting.mark == mark)
        return next(same, "") or mount_identity.engine_path(source=origin)

    async def _with_finalizer(self, obj: Object) -> Object:
        finalizers = with_finalizer(obj, finalizer=names.FINALIZER)
        if finalizers is None:
            return obj
        metadata = obj["metadata"]
        return await self._context.api.merge(
            DATASETS,
            name=metadata["name"],
            namespace=metadata["namespace"],
            patch={"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}},
        )


def _refused_since(me: Reader) -> str | None:
    """Since when a Dataset's keys are refused, by its status."""
    return me.dataset.status.keys_refused_since if me.dataset.status else None


def _is_listed(mount: Mount, origin: Source) -> bool:
    """Whether this process has listed the source with these keys: that they are those of the mount is no answer."""
    asked_at = mount.manifests.view().asked_at
    return (
        asked_at is not None
        and mount_identity.mark(origin) == mount.mounting.mark
        and asked_at >= mount.mounting.keyed_at
    )


def _sooner(*seconds: float | None) -> float | None:
    """The shortest of these times; None where there is none."""
    return min((one for one in seconds if one is not None), default=None)
