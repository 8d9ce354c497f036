"""Reports in a Dataset's status how it stands with it, and makes its claim."""

import math

from tdcs.api.dataset import Dataset
from tdcs.controllers.cachemanager import report as manager_report
from tdcs.controllers.context import Settings, WorkKey
from tdcs.controllers.dataset import report
from tdcs.controllers.dataset.findings import findings_of
from tdcs.controllers.dataset.load_times import LoadTimes
from tdcs.controllers.dataset.report import Known
from tdcs.controllers.mounts import (
    checks,
    conditions,
    readers,
    volumes,
)
from tdcs.controllers.mounts.checks import SourceCheck
from tdcs.controllers.mounts.mount import Mount
from tdcs.controllers.mounts.problem import Problem
from tdcs.controllers.mounts.readers import Reader
from tdcs.controllers.mounts.report import MountDecision, MountReport
from tdcs.controllers.mounts.snapshot import World
from tdcs.controllers.publish import publish_status
from tdcs.kube.api import Object
from tdcs.kube.resources import DATASETS
from tdcs.planning import wants
from tdcs.planning.holdings import Holdings
from tdcs.planning.standing import DatasetUse


class Publisher:
    """Writes the statuses of Datasets.

    Args:
        world: what passes over mounts work with.
    """

    def __init__(self, *, world: World) -> None:
        self._world = world
        self._load_times = LoadTimes()

    def forget(self, key: WorkKey) -> None:
        """A Dataset is gone."""
        self._load_times.forget(key)

    async def publish(
        self,
        me: Reader,
        mount: Mount,
        found: MountReport,
        *,
        live: volumes.Volume,
        check: SourceCheck,
        trouble: Problem | None,
        shared: bool,
    ) -> float | None:
        """Report how it stands with a Dataset."""
        context, settings, uri = self._world.context, self._world.context.settings, me.dataset.spec.source.uri
        if found.problem is not None:
            return await self.blocked(me.obj, found.problem)
        if not found.there:
            return settings.survey_seconds  # the end of the mounting wakes it
        if found.listed is None or not found.decided:
            return settings.progress_seconds  # the status stands; the end of what is under way wakes it
        if found.listed.totals.files == 0:
            mount.manifests.relist()
            text = f"there is no file under {uri}: correct spec.source.uri, or put the data there"
            await self.blocked(me.obj, Problem(reason="SourceEmpty", message=text, uri=uri))
            return settings.survey_seconds
        claimed: bool | Problem = False
        if found.settled or (me.dataset.status is not None and me.dataset.status.claim_name):
            claimed = await volumes.provide(
                context=context,
                obj=me.obj,
                live=live,
                cluster=mount.cluster,
                path=mount.path,
                size=found.holdings.total_bytes,
            )
            if isinstance(claimed, Problem):
                return await self.blocked(me.obj, claimed)
        decision, key = found.decision, me.own_want
        if decision is None:
            return settings.progress_seconds
        cloned = [
            (clone, found.placements[one], found.progress[one])
            for clone in decision.clones.get(key, ())
            for one in (wants.clone_key(namespace=me.key.namespace, name=me.key.name, copy=clone.id),)
            if one in found.placements
        ]
        load_seconds = self._load_seconds(me, found)
        why = manager_report.granted(
            grant=decision.granted.grant,
            mine=found.placements.get(key),
            clones=[wanted for _, wanted, _ in cloned],
            eviction=me.dataset.spec.eviction,
            unknown=decision.standing.unknown
            if decision.standing.unknown == me.dataset.spec.eviction.policy
            else "",
            installed=[*self._world.policies, "Pin", "Timed"],
            load_seconds=load_seconds,
        )
        mine = [*([found.placements[key]] if key in found.placements else ()), *(one for _, one, _ in cloned)]
        if manager_report.is_evicted(decision.granted.grant, found.placements.get(key)):
            findings, wait = manager_report.evicted(uri=uri, why=why), settings.resync_seconds
        else:
            findings, wait = findings_of(
                me, found, shared=shared, settings=settings, clock=self._world.clock(), now=context.now()
            )
        findings.append(why)
        wait = min(wait, max(check.seconds_left, 1.0), _until_changed(decision, settings=settings))
        wrong = readers.wrong_preloads(stores=context.stores, reader=me)
        findings = conditions.with_wrong(findings, preloads=wrong, where=me.key.namespace)
        cause = found.trouble or trouble
        if cause is not None:
            findings = conditions.with_trouble(findings, reason=cause.reason, message=cause.message)
            wait = min(wait, cause.retry_after)
        findings.append(
            conditions.reachable((cause.reason, cause.message) if cause else None, differs=found.differs)
        )
        status = me.dataset.status
        brought = [
            (found.placements[want.key], found.progress[want.key])
            for want in readers.preload_wants(stores=context.stores, reader=me, now=context.now())
            if want.key in found.placements
        ]
        answered = mount.manifests.answered(me.key)
        known = Known(
            claim_name=me.key.name if claimed is True else status.claim_name if status else "",
            mount_path=mount.path,
            checked=found.checked or (status.last_source_check_time if status else None),
            refreshed=answered if answered is not None else check.answered,
            kept=tuple(me.kept),
            use=decision.claims[key].use if key in decision.claims else DatasetUse(),
            grant=manager_report.grant_of(mine=mine, why=why),
            load_seconds=load_seconds,
            source_bandwidth=decision.source_rate,
        )
        await publish_status(
            context=context,
            resource=DATASETS,
            obj=me.obj,
            status=report.status_of(
                held=found.holdings,
                state=conditions.state_of(findings),
                known=known,
                placement=found.placements.get(key),
                progress=found.progress.get(key),
                brought=brought,
                cloned=cloned,
                failures=found.failures,
            ),
            findings=findings,
            beside=checks.unwritten(status.last_source_check_time if status else None, now=context.now()),
        )
        return wait

    def _load_seconds(self, me: Reader, found: MountReport) -> int | None:
        """How long the last load of a Dataset took, as far as that is known."""
        progress, status, took = found.progress.get(me.own_want), me.dataset.status, None
        placed = found.placements.get(me.own_want)
        if progress is None or placed is None or not placed.want.load or not progress.wanted_bytes:
            self._load_times.forget(me.key)
        else:
            took = self._load_times.seen(
                me.key,
                missing=progress.missing_bytes,
                wanted=progress.wanted_bytes,
                clock=self._world.clock(),
            )
        return took if took is not None else status.load_seconds if status is not None else None

    async def mounting(self, obj: Object, path: str) -> tuple[Object, Dataset]:
        """Write the path into the status before anything is mounted there, so that a deletion always finds it."""
        uri = str(obj["spec"]["source"]["uri"])
        wanted = report.status_of(held=Holdings(), state="Mounting", known=Known(mount_path=path))
        obj = await publish_status(
            context=self._world.context,
            resource=DATASETS,
            obj=obj,
            status=wanted,
            findings=conditions.mounting(uri),
        )
        return obj, Dataset.model_validate(obj)

    async def blocked(self, obj: Object, cause: Problem) -> float | None:
        """Report why nothing can be done."""
        findings = conditions.blocked(
            reason=cause.reason, message=cause.message, mounted_too=cause.mounted, uri=cause.uri
        )
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        wanted = report.remembered(obj, state="Deleting" if deleting else conditions.state_of(findings))
        await publish_status(
            context=self._world.context, resource=DATASETS, obj=obj, status=wanted, findings=findings
        )
        return None if cause.reason == "InvalidSpec" else cause.retry_after

    async def withdrawn(self, obj: Object, cause: Problem, *, gone: bool) -> None:
        """Report that a source may not be used; `gone`: nothing of it is left for the Dataset."""
        wanted = report.remembered(obj, state="Failed")
        if gone:
            wanted = report.status_of(held=Holdings(), state="Failed", known=Known())
        findings = conditions.blocked(reason=cause.reason, message=cause.message)
        await publish_status(
            context=self._world.context, resource=DATASETS, obj=obj, status=wanted, findings=findings
        )


def _until_changed(decision: MountDecision, *, settings: Settings) -> float:
    """Seconds until time alone changes what is granted: a timed Dataset is due, a clone was idle for long enough."""
    seconds = decision.standing.seconds
    idle = any(clone.idle_since for clones in decision.clones.values() for clone in clones)
    return min(
        math.inf if seconds is None else max(seconds, 0.0) + 1.0,
        max(settings.clone_idle_seconds / 4, settings.progress_seconds) if idle else math.inf,
        settings.progress_seconds if decision.granted.waits else math.inf,
    )
