"""One pass over a Dataset: observe, decide, act, publish. What concerns its mount is done by `mount.mount_pass`."""

import logging

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import IDENTITY_UNANSWERED
from tdcs.api.dataset import Dataset
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset import dataset_deletion as deletion
from tdcs.control.dataset.access import dataset_volume
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.control.dataset.access.identities import Identities
from tdcs.control.dataset.access.key_checks import KeyChecks
from tdcs.control.dataset.access.revoked_keys import RevokedKeys
from tdcs.control.dataset.access.volume_origins import UNCHECKED
from tdcs.control.dataset.dataset_pass import (
    LOCKED_RETRY,
    Blocked,
    DatasetPass,
    Later,
    PassSteps,
    Withdrawn,
)
from tdcs.control.dataset.dataset_publisher import Publisher
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_pass import reconcile
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.control.dataset.mount.mount_snapshot import MountRequest
from tdcs.control.dataset.mount.orphaned_mounts import Orphans, remove_unused
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.decide.cache import mount_identity
from tdcs.decide.may_read import (
    ENDPOINT_NOT_ALLOWED,
)
from tdcs.decide.problem import Problem
from tdcs.decide.relisting import next_check
from tdcs.model.cache_engine import Source
from tdcs.model.humanize import explain_invalid
from tdcs.model.kube_objects import Object, object_key, with_finalizer
from tdcs.model.kube_resources import DATASETS

_log = logging.getLogger(__name__)


class DatasetController:
    """Keeps every Dataset mounted, loaded and claimable, and carries out its Preloads."""

    def __init__(
        self,
        *,
        context: Context,
        world: World,
        networks: ClusterNetworks,
    ) -> None:
        settings, clock = context.settings, world.clock
        self._context = context
        self._clock = clock
        self._world = world
        self._wakes = world.wakes
        self._orphans = Orphans(world=world)
        self._revoked = RevokedKeys(
            seconds=settings.revoked_seconds, grace=settings.keys_check_seconds, clock=clock, now=context.now
        )
        self._publisher = Publisher(world=world, revoked=self._revoked)
        self._key_checks = KeyChecks(
            seconds=settings.keys_check_seconds, clock=clock, on_done=context.queue.add
        )
        self._identities = Identities(context=context, clock=clock)
        self._steps = PassSteps(
            world=world,
            publisher=self._publisher,
            orphans=self._orphans,
            key_checks=self._key_checks,
            revoked=self._revoked,
            networks=networks,
            identities=self._identities,
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
        await self._steps.close()
        await self._identities.close()
        await self._key_checks.close()
        await self._world.close()

    async def _keep(self, key: WorkKey, obj: Object, dataset: Dataset) -> float | None:
        """A pass over a Dataset that stays: the steps before its mount, and then the mount."""
        dataset_pass = DatasetPass(key=key, obj=await self._with_finalizer(obj), dataset=dataset)
        match await self._steps.take(dataset_pass):
            case Blocked(cause, at_most):
                return _sooner(await self._publisher.blocked(dataset_pass.obj, cause), at_most)
            case Withdrawn(cause):
                return await self._withdraw(dataset_pass.obj, dataset, cause)
            case Later(seconds):
                return seconds
        mount = self._steps.mount_of(dataset_pass)
        if mount.lock.locked():
            return min(self._context.settings.progress_seconds, LOCKED_RETRY)
        async with mount.lock:
            wait = await self._work(dataset_pass, mount)
        return (
            wait if wait is None or dataset_pass.doubt is None else min(wait, dataset_pass.doubt.retry_after)
        )

    async def _work(self, dataset_pass: DatasetPass, mount: Mount) -> float | None:
        """The pass over the mount, with its lock, and what it says of the Dataset."""
        origin, doubt, trouble = dataset_pass.origin, dataset_pass.doubt, dataset_pass.trouble
        me = Reader(key=dataset_pass.key, obj=dataset_pass.obj, dataset=dataset_pass.dataset)
        me = mount_readers.with_kept(me, stores=self._context.stores)
        users = mount_readers.readers(
            stores=self._context.stores, cluster=mount.cluster, path=mount.path, me=me
        )
        mount.users = frozenset(user.key for user in users)
        versions = mount.manifests.view()
        check = next_check(
            status=me.dataset.status,
            intervals=[user.dataset.spec.source.check_interval for user in users],
            asked=me.refresh,
            answered=mount.manifests.answered(me.key),
            checked_at=versions.checked_at,
            took=versions.took,
            clock=self._clock(),
            now=self._context.now(),
        )
        keys = self._look_at_keys(me, mount, origin, awaited=dataset_pass.joins, shared=len(users) > 1)
        request = MountRequest(
            me=me,
            source=origin,
            answer=self._key_checks.answer(me.key, origin),
            refused=keys,
            claimed=bool(dataset_pass.claimed),
            check_due=check.due and doubt is None,
            # A store that seems to be inside the cluster is not read meanwhile.
            paused=doubt is not None and doubt.reason == ENDPOINT_NOT_ALLOWED and len(users) == 1,
        )
        before = mount.report
        report = await reconcile(world=self._world, mount=mount, request=request, users=users)
        if report is not before:
            self._wakes.needs_changed(mount.cluster)
        if before is None or before.placements.keys() != report.placements.keys():
            for user in users:
                self._wakes.preloads(user.key)
        until_revoked, written = None, _refused_since(me)
        if report.problem is None:
            silent = trouble is UNCHECKED or (trouble is not None and trouble.reason == IDENTITY_UNANSWERED)
            unknown = doubt is not None or silent
            refused = self._keys_refused(me, mount, report, origin, keys, unknown=unknown)
            until_revoked = self._revoked.note(me.key, refused=refused, written=written)
        else:
            self._revoked.unanswered(me.key)
        wait = await self._publisher.publish(
            me,
            mount,
            report,
            live=dataset_pass.live,
            check=check,
            trouble=trouble or keys,
            shared=len(users) > 1,
        )
        if not mount_readers.serves(me.dataset) and report.problem is None:
            self._wakes.preloads(me.key)  # which wait until it serves
        if report.problem is not None:
            return wait
        renewal = self._identities.seconds_left(me.key)
        return _sooner(wait, until_revoked, self._key_checks.seconds_left(me.key), renewal)

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
        report: MountReport,
        origin: Source | None,
        keys: Problem | None,
        *,
        unknown: bool,
    ) -> bool | None:
        """Whether a Dataset has no keys that its source takes; None while the source has not said so of these.
        `unknown`: it has keys, of which nothing can be said just now."""
        if not report.is_mounted:
            return None
        if origin is None:
            return None if unknown else True
        if any(problem is not None and problem.keys_refused for problem in (report.trouble, keys)):
            return True
        accepted = origin.credentials is None or self._key_checks.are_taken(me.key, origin)
        return False if accepted or _is_listed(mount, origin) else None

    async def _delete(self, key: WorkKey, obj: Object, mount: Mount | None) -> float | None:
        self._steps.drop(key)
        remaining = await deletion.delete(world=self._world, obj=obj, mount=mount)
        if isinstance(remaining, Problem):
            return await self._publisher.blocked(obj, remaining)
        if remaining is None and mount is not None:
            self._wakes.datasets(mount.cluster, {mount.path})
        return remaining

    async def _withdraw(self, obj: Object, dataset: Dataset, cause: Problem) -> float | None:
        """A source that may not be used, or not any more: nothing of it is read or kept for this Dataset."""
        key, mount = WorkKey(DATASETS, *object_key(obj)), self._mount_of(dataset)
        # Without a mount, too: a volume may be there that was not made for it.
        remaining = await deletion.release(world=self._world, obj=obj, mount=mount, patient=False)
        if remaining is None:
            self._steps.drop_answers(key)
        await self._publisher.withdrawn(obj, cause, remaining=remaining)
        if remaining is not None:
            return remaining.retry_after if isinstance(remaining, Problem) else dataset_volume.POLL
        if mount is not None:
            self._wakes.datasets(mount.cluster, {mount.path})
        return cause.retry_after

    async def _gone(self, key: WorkKey) -> float | None:
        """The Dataset is gone. Where no other reads a mount, nothing is loaded any more, and the sweep removes it."""
        self._publisher.drop(key)
        self._steps.drop(key)
        unfinished = False
        for mount in self._world:
            if self._context.stores.cache_cluster(mount.cluster) is None:
                await self._world.drop(mount)
            elif not mount_readers.users_of(
                stores=self._context.stores, cluster=mount.cluster, path=mount.path
            ):
                self._world.assigner(mount.cluster).stop(mount.path)
        # Each cache, for agents may know of mounts that this process has never had.
        for _, cluster in list(self._context.stores.cache_clusters):
            unfinished |= await self._orphans.sweep(cluster)
        return self._context.settings.survey_seconds if unfinished else None

    def _mount_of(self, dataset: Dataset) -> Mount | None:
        path = dataset.status.mount_path if dataset.status else ""
        return self._world.get(cluster=dataset.spec.cache_cluster_ref.name, path=path) if path else None

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
    return min((wait for wait in seconds if wait is not None), default=None)
