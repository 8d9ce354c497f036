"""Reports in a Dataset's status how it stands with it, and makes its claim."""

import math
from collections.abc import Collection, Sequence
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import LISTING_WAITS, Finding, shorten
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.control.context import Settings, WorkKey
from tdcs.control.dataset.access import dataset_volume
from tdcs.control.dataset.access.dataset_volume import ClaimTimes, VolumeAndClaim
from tdcs.control.dataset.access.revoked_keys import RevokedKeys
from tdcs.control.dataset.copy_moves import LEFT_WITH_WORKERS, NODES_CHANGED, CopyMoves
from tdcs.control.dataset.mount import mount_readers, used_sources
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import MountDecision, MountReport
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.control.status_publisher import conditions_of, publish_status
from tdcs.decide import dataset_conditions, dataset_status
from tdcs.decide.cache import grant_message, wants
from tdcs.decide.cache.dataset_demand import jobs_of, use_of
from tdcs.decide.cache.mount_standing import UsersOfDataset, is_kept_by_twin
from tdcs.decide.place.holdings import Holdings, WantProgress
from tdcs.decide.place.other_tenants import OtherTenants, other_tenants
from tdcs.decide.place.worker_loss import standing_message
from tdcs.decide.problem import RETRY_SOON, Problem
from tdcs.decide.relisting import SourceCheck, unwritten_check
from tdcs.model.kube_objects import Object, object_key
from tdcs.model.kube_resources import DATASETS


def findings_of(
    me: Reader, report: MountReport, *, shared: bool, settings: Settings, clock: float, now: str
) -> tuple[list[Finding], float]:
    """The conditions of a Dataset, and the seconds until another look at it is due."""
    spec, uri = me.dataset.spec, me.dataset.spec.source.uri
    mine = report.placements.get(me.own_want)
    progress = report.progress.get(me.own_want, WantProgress())
    pause = settings.progress_seconds if report.busy or not report.settled else settings.resync_seconds
    if report.look_at is not None:
        pause = min(pause, max(report.look_at - clock, 0.0) + settings.progress_seconds / 4)
    if mine is None:
        return dataset_conditions.on_demand(held=report.holdings, uri=uri, shared=shared), pause
    if not mine.copies:
        selector = spec.placement.node_selector
        return dataset_conditions.unplaced(uri=uri, selector=selector), RETRY_SOON
    absent = sorted(report.absent.intersection(mine.nodes))
    reached = progress.placed_bytes or not mine.wanted_bytes
    if progress.missing_bytes == 0 and reached and not (progress.failed_bytes and report.away):
        done = dataset_conditions.loaded(
            held=report.holdings,
            uri=uri,
            placement=mine,
            progress=progress,
            failures=report.failures,
            absent=absent,
        )
        return done, pause
    if not mine.want.load:
        start = spec.preload.start_time or ""
        wait = min(pause, wants.seconds_until(start, now=now) + 1)
        return dataset_conditions.scheduled(progress=progress, uri=uri, placement=mine, start=start), wait
    cause = report.away
    if progress.failed_bytes and not progress.missing_bytes and not cause and report.failures.files:
        cause = report.failures.files[0].reason
    loading = dataset_conditions.loading(
        progress=progress,
        uri=uri,
        placement=mine,
        cause=cause,
        absent=absent,
        was_loaded=_was_true(me, names.LOADED),
        was_ready=_was_true(me, names.READY),
    )
    return loading, settings.progress_seconds


def _was_true(me: Reader, type_: str) -> bool:
    """Whether a condition of a Dataset's status is True for the spec that it has now."""
    generation = int(me.obj["metadata"].get("generation", 0))
    conditions = me.dataset.status.conditions if me.dataset.status is not None else ()
    return any(
        condition.type == type_ and condition.status == "True" and condition.observed_generation == generation
        for condition in conditions
    )


VOLUME_IN_USE: Final = "VolumeInUse"
"""Reason of the event: the source may not be used any more, and pods have the volume still."""


class LoadTimes:
    """Stopwatches of the loads that go on. A load that had begun before the operator is not measured, nor is one that
    brings less than half of the data."""

    def __init__(self) -> None:
        self._begun: dict[WorkKey, float | None] = {}
        """When each load began; None for one that is not measured."""

    def seen(self, key: WorkKey, *, missing: int, total: int, clock: float) -> int | None:
        """Take in how far a load is; gives its whole seconds, one at least, when it has just ended.

        Args:
            key: the Dataset.
            missing: bytes that it lacks.
            total: bytes that it is to have.
        """
        if missing > 0:
            self._begun.setdefault(key, clock if 2 * missing >= total else None)
            return None
        begun = self._begun.pop(key, None)
        return None if begun is None else max(math.ceil(clock - begun), 1)

    def drop(self, key: WorkKey) -> None:
        self._begun.pop(key, None)


class Publisher:
    """Writes the statuses of Datasets.

    Args:
        world: what passes over mounts work with.
        revoked: since when keys are refused, which every status remembers.
    """

    def __init__(self, *, world: World, revoked: RevokedKeys) -> None:
        self._world = world
        self._revoked = revoked
        self._load_times = LoadTimes()
        self._claim_times = ClaimTimes(clock=world.clock)
        self._copy_moves = CopyMoves()

    def drop(self, key: WorkKey) -> None:
        self._load_times.drop(key)
        self._claim_times.drop(key)
        self._copy_moves.drop(key)

    async def publish(
        self,
        me: Reader,
        mount: Mount,
        report: MountReport,
        *,
        live: VolumeAndClaim,
        check: SourceCheck,
        trouble: Problem | None,
        shared: bool,
    ) -> float | None:
        """Report how it stands with a Dataset; gives the seconds until the next look is due.

        Args:
            report: what the pass over that found.
            live: its volume and claim.
            check: whether the source was to be listed, and when it is next.
            trouble: why the source cannot be used; None when it can.
            shared: whether other Datasets read the mount, too.
        """
        settings, status = self._world.context.settings, me.dataset.status or DatasetStatus()
        if report.problem is not None:
            return await self.blocked(me.obj, report.problem)
        if not report.is_mounted:
            await self._note_use(me.obj)
            return settings.survey_seconds  # the end of the mounting wakes it
        if report.listed is None and (report.held_up_by is not None or _waited(status)):
            uri, namespace = me.dataset.spec.source.uri, me.key.namespace
            cause = dataset_conditions.not_listed(uri, held_up_by=report.held_up_by, namespace=namespace)
            await self.blocked(me.obj, cause)
            return settings.progress_seconds
        if report.listed is None or not report.decided or report.decision is None:
            await self._note_use(me.obj)
            return settings.progress_seconds  # all else stands; the end of what is under way wakes it
        if report.listed.totals.files == 0:
            mount.manifests.relist()
            source = me.dataset.spec.source
            uri = source.uri
            text = f"there is no file under {uri}: correct spec.source.uri, or put the data there"
            if source.include or source.exclude:
                text = (
                    f"there is no file under {uri} that the patterns of spec.source.include and spec.source.exclude "
                    "take: correct them or spec.source.uri, or put the data there"
                )
            await self.blocked(
                me.obj, Problem(reason="SourceEmpty", message=text, uri=uri, nothing_cached=True)
            )
            return settings.survey_seconds
        claimed: bool | Problem = False
        if report.settled or status.claim_name or live.lost:
            claimed = await dataset_volume.provide(
                context=self._world.context,
                obj=me.obj,
                live=live,
                times=self._claim_times,
                cluster=mount.cluster,
                path=mount.path,
                size=report.holdings.total_bytes,
                claim_size=me.dataset.spec.claim_size,
            )
        unusable = claimed if isinstance(claimed, Problem) else None
        claim_name = me.key.name if claimed else status.claim_name
        return await self._report(
            me,
            mount,
            report,
            report.decision,
            check=check,
            trouble=report.trouble or trouble,
            shared=shared,
            unusable=unusable,
            claim_name="" if unusable is not None else claim_name,
        )

    async def _report(
        self,
        me: Reader,
        mount: Mount,
        report: MountReport,
        decision: MountDecision,
        *,
        check: SourceCheck,
        trouble: Problem | None,
        shared: bool,
        unusable: Problem | None,
        claim_name: str,
    ) -> float:
        """The status of a Dataset of which all is known. `unusable`: why no new pod can mount its
        claim."""
        context, settings = self._world.context, self._world.context.settings
        before, key = me.dataset.status or DatasetStatus(), me.own_want
        placement = report.placements.get(key)
        use = decision.uses[key].use if key in decision.uses else UsersOfDataset()
        cloned = [
            (clone, report.placements[clone_key], report.readable[clone_key])
            for clone in decision.clones.get(key, ())
            for clone_key in (wants.clone_key(namespace=me.key.namespace, name=me.key.name, copy=clone.id),)
            if clone_key in report.placements
        ]
        brought = [
            (report.placements[want.key], report.readable[want.key])
            for want in mount_readers.preload_wants(stores=context.stores, reader=me, now=context.now())
            if want.key in report.placements
        ]
        load_seconds = self._load_seconds(me, report)
        eviction, unknown = me.dataset.spec.eviction, decision.standing.unknown
        clones = [placed for _, placed, _ in cloned]
        why = grant_message.granted(
            grant=decision.granted.grant,
            mine=placement,
            clones=clones,
            access=me.dataset.spec.access,
            eviction=eviction,
            unknown=unknown if unknown == eviction.policy else "",
            installed=list(self._world.policies),
            load_seconds=load_seconds,
            kept_by_twin=is_kept_by_twin(
                decision.uses, key=key, policies=self._world.policies, now=context.now()
            ),
        )
        if grant_message.is_evicted(decision.granted.grant, placement):
            findings = grant_message.evicted(uri=me.dataset.spec.source.uri, why=why)
            wait = settings.resync_seconds
        else:
            findings, wait = findings_of(
                me, report, shared=shared, settings=settings, clock=self._world.clock(), now=context.now()
            )
        findings.append(why)
        read_on = report.read_on.get(key)
        moves = self._copy_moves.seen(
            me.key,
            placement,
            read_on=read_on.last.keys() if read_on is not None else (),
            leaving=decision.draining,
            cluster=mount.cluster,
            reported=before.left_with_workers,
        )
        room = placement.wanted_bytes if placement is not None else 0
        standing = standing_message(moves.loss, cluster=mount.cluster, room=room)
        findings = dataset_conditions.with_loss(findings, standing)
        wait = min(wait, max(check.seconds_left, 1.0), _until_changed(decision, settings=settings))
        wrong = mount_readers.wrong_preloads(stores=context.stores, reader=me)
        findings = dataset_conditions.with_wrong(findings, preloads=wrong, where=me.key.namespace)
        if trouble is not None:
            findings = dataset_conditions.with_trouble(
                findings, reason=trouble.reason, message=trouble.message
            )
            wait = min(wait, trouble.retry_after)
        if unusable is not None:
            findings = dataset_conditions.without_claim(
                findings, reason=unusable.reason, message=unusable.message
            )
            wait = min(wait, unusable.retry_after)
        cause = (trouble.reason, trouble.message) if trouble is not None else None
        findings.append(dataset_conditions.reachable(cause, differs=report.differs))
        answered, checked = mount.manifests.answered(me.key), before.last_source_check_time
        status = DatasetStatus(
            state=dataset_conditions.state_of(findings),
            last_source_check_time=report.checked or checked,
            refreshed=answered if answered is not None else check.answered,
            kept=list(me.kept),
            grant=grant_message.grant_of(mine=[*([placement] if placement else ()), *clones], why=why),
            load_seconds=load_seconds,
            source_bandwidth=decision.source_rate,
            left_with_workers=moves.loss,
            claim_name=claim_name,
            mount_path=mount.path,
        )
        counted = dataset_status.with_data(
            dataset_status.with_use(status, use),
            held=report.holdings,
            placement=placement,
            progress=report.progress.get(key),
            readable=report.readable.get(key),
            brought=brought,
            cloned=cloned,
            failures=report.failures,
            others=_others(me, report, decision),
        )
        await self._write(me.obj, counted, findings, alongside=unwritten_check(checked, now=context.now()))
        if moves.nodes:
            await context.recorder.record(
                about=me.obj, reason=NODES_CHANGED, message=moves.nodes, type_="Normal"
            )
        if moves.lost:
            await context.recorder.record(
                about=me.obj, reason=LEFT_WITH_WORKERS, message=moves.lost, type_="Warning"
            )
        return wait

    def _load_seconds(self, me: Reader, report: MountReport) -> int | None:
        """How long the last load of a Dataset took, as far as that is known."""
        progress, status, took = report.progress.get(me.own_want), me.dataset.status, None
        placed = report.placements.get(me.own_want)
        if progress is None or placed is None or not placed.want.load or not progress.wanted_bytes:
            self._load_times.drop(me.key)
        else:
            took = self._load_times.seen(
                me.key,
                missing=progress.missing_bytes,
                total=progress.wanted_bytes,
                clock=self._world.clock(),
            )
        return took if took is not None else status.load_seconds if status is not None else None

    async def mounting(self, obj: Object, path: str, *, uri: str) -> tuple[Object, Dataset]:
        """Write the path into the status before anything is mounted there, so that a deletion always finds it."""
        status = dataset_status.with_data(DatasetStatus(state="Mounting", mount_path=path), held=Holdings())
        status = dataset_status.with_use(status, self._use_of(obj))
        obj = await self._write(obj, status, dataset_conditions.mounting(uri))
        return obj, Dataset.model_validate(obj)

    async def blocked(self, obj: Object, cause: Problem) -> float | None:
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        if deleting and cause.mounted:
            findings = dataset_conditions.kept_for_readers(reason=cause.reason, message=cause.message)
        elif cause.nothing_cached and not cause.uri:
            findings = _given_nothing(obj, cause)
        else:
            findings = dataset_conditions.blocked(
                reason=cause.reason, message=cause.message, mounted_too=cause.mounted, uri=cause.uri
            )
        state = "Deleting" if deleting else dataset_conditions.state_of(findings)
        status = dataset_status.remembered(obj, state=state)
        if cause.nothing_cached:
            status = dataset_status.without_data(status)
        status = dataset_status.with_use(status, self._use_of(obj))
        await self._write(obj, status, findings)
        return None if cause.reason == "InvalidSpec" else cause.retry_after

    async def withdrawn(self, obj: Object, cause: Problem, *, remaining: Problem | float | None) -> None:
        """Report that a source may not be used, and what `remaining` says of the Dataset's mount and volume: None when
        they are gone, seconds until the next look at what goes, or why they stay. An event names the pods that keep its
        volume, each time that others do."""
        is_gone = remaining is None
        users = remaining.message if isinstance(remaining, Problem) else ""
        previous = dataset_status.known_of(obj)
        # Until its volume is gone, its mount is known by its path.
        path = "" if is_gone else previous.mount_path
        status = dataset_status.without_data(
            DatasetStatus(state="Failed", mount_path=path, kept=previous.kept)
        )
        status = dataset_status.with_use(status, self._use_of(obj))
        messages = {condition.message for condition in previous.conditions}
        await self._write(obj, status, _given_nothing(obj, cause, still_used_by=users))
        full_message = shorten(f"{cause.message}; {users}")
        if isinstance(remaining, Problem) and remaining.used and full_message not in messages:
            text = f"{cause.reason}, and {remaining.message}"
            await self._world.context.recorder.record(
                about=obj, reason=VOLUME_IN_USE, message=text, type_="Warning"
            )

    async def _note_use(self, obj: Object) -> None:
        """Report who uses a Dataset of which nothing else can be said now."""
        status = dataset_status.known_of(obj)
        # A spec that was not looked at yet must not seem to have been.
        if status.observed_generation == int(obj["metadata"].get("generation", 0)):
            await self._write(obj, dataset_status.with_use(status, self._use_of(obj)), [])

    def _use_of(self, obj: Object) -> UsersOfDataset:
        context, (namespace, name) = self._world.context, object_key(obj)
        return use_of(
            status=dataset_status.known_of(obj),
            jobs=jobs_of(
                namespace=namespace, dataset=name, jobs=context.stores.jobs_reading((namespace, name))
            ),
            mounted=context.stores.usage.is_mounted((namespace, name)),
            users=context.stores.usage.users_of((namespace, name)),
            now=context.now(),
        )

    async def _write(
        self,
        obj: Object,
        status: DatasetStatus,
        findings: Sequence[Finding],
        *,
        alongside: Collection[str] = (),
    ) -> Object:
        reason, message = status.reason, status.message  # without findings they stand, as the state does
        if findings:
            reason = dataset_conditions.reason_of(findings, state=status.state or "Pending")
            message = dataset_conditions.message_of(findings, state=status.state or "Pending")
        filled = {
            "selector": dataset_status.selector_of(obj["metadata"]["name"]),
            "reason": reason,
            "message": message,
            "used_elsewhere": used_sources.readers_elsewhere(obj, stores=self._world.context.stores),
            "keys_refused_since": self._revoked.since(
                WorkKey(DATASETS, *object_key(obj)), written=dataset_status.known_of(obj).keys_refused_since
            ),
        }
        return await publish_status(
            context=self._world.context,
            resource=DATASETS,
            obj=obj,
            status=status.model_copy(update=filled),
            findings=findings,
            alongside=alongside,
        )


def _given_nothing(obj: Object, cause: Problem, *, still_used_by: str = "") -> list[Finding]:
    types = {condition.type for condition in conditions_of(obj)}
    return dataset_conditions.given_nothing(
        reason=cause.reason, message=cause.message, known=types, still_used_by=still_used_by
    )


def _others(me: Reader, report: MountReport, decision: MountDecision) -> OtherTenants | None:
    """What other namespaces have of the mount of a Dataset."""
    if report.listed is None:
        return None
    return other_tenants(
        namespace=me.key.namespace,
        datasets=decision.uses,
        placements=decision.placements,
        states={
            node: state for node, state in report.states.items() if state.manifest == report.listed.digest
        },
        sizes=report.listed.totals.sizes,
    )


def _waited(status: DatasetStatus) -> bool:
    """Whether it says of a Dataset that its source waits to be listed."""
    return any(condition.reason == LISTING_WAITS for condition in status.conditions)


def _until_changed(decision: MountDecision, *, settings: Settings) -> float:
    """Seconds until time alone changes what is granted: a timed Dataset is due, a clone was idle for long enough."""
    seconds = decision.standing.seconds
    idle = any(clone.idle_since for clones in decision.clones.values() for clone in clones)
    return min(
        math.inf if seconds is None else max(seconds, 0.0) + 1.0,
        max(settings.clone_idle_seconds / 4, settings.progress_seconds) if idle else math.inf,
        settings.progress_seconds if decision.granted.waits else math.inf,
    )
