"""Kueue as the admitter of TrainingJobs: makes their Workloads, and writes to them what Kueue waits for.

Kueue decides; nothing here suspends or admits by itself. A job's Jobs carry no label of a queue, so Kueue never touches
their `suspend`.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tdcs.api import names
from tdcs.api.trainingjob import Role
from tdcs.control.context import Context
from tdcs.control.job.queue.admitter import PodNodes
from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.pod_demand import PodDemands, class_of
from tdcs.control.kueue import own_workload
from tdcs.control.kueue.kueue_answer import KueueAnswer
from tdcs.control.status_publisher import publish_status
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_headline import running
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.start_timeout import HeldUp, held_up
from tdcs.decide.kueue import workload_standing
from tdcs.decide.kueue.kueue_nodes import PodSetPlacement, pod_set_name, template_changes
from tdcs.decide.kueue.pod_set_updates import PodSetConflictError, updates_of, with_update
from tdcs.decide.kueue.workload_hold import (
    change_free_status,
    change_hold_status,
    place_free_status,
    place_hold_status,
    waits_for_change,
    waits_for_place,
)
from tdcs.decide.kueue.workload_standing import QueueStanding, local_queue, standing_of
from tdcs.kube.apply import belongs, foreign
from tdcs.kube.errors import ConflictError, ForbiddenError, KubeError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    JOBS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    TRAINING_JOBS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)

_log = logging.getLogger(__name__)

KIND_GOING = 405
"""The API server's answer to a create of a kind while its definition is being deleted."""


class KueueAdmitter:
    """Admits jobs by Kueue; see `Admitter`."""

    def __init__(self, *, context: Context, gangs: GangQueue, copies: CopyChoices) -> None:
        self._context: Final = context
        self._api: Final = context.api
        self.gangs: Final = gangs
        self.copies: Final = copies
        self._demands: Final = PodDemands(stores=context.stores)

    async def turn(
        self, obj: Object, observed: Observed, *, now: str, preferred: list[Object] | None
    ) -> "KueueTurn":
        """See `Admitter`."""
        name, namespace = own_workload.workload_name(observed.name), observed.namespace
        live = await self._api.get(WORKLOADS, name=name, namespace=namespace)
        queue = _deciding_queue(obj, live)
        if observed.status.queue_name != queue:
            # The word is kept first: should the job lose its label, its Workload is known and goes.
            status = observed.status.model_copy(update={"queue_name": queue})
            await publish_status(
                context=self._context, resource=TRAINING_JOBS, obj=obj, status=status, findings=[]
            )
            observed = replace(observed, status=status)
        ready = decisions.data(observed, now=now).admitted
        short = self.gangs.missing_place(obj) if ready and not observed.was_admitted else ""
        workload, outdated = await self._workload(
            obj, observed, live, is_ready=ready and not short, preferred=preferred
        )
        standing = standing_of(workload)
        if outdated and standing.holds and not standing.evicted:
            standing = replace(standing, admitted=False, message=workload_standing.CHANGED)
        if workload is not None and standing.admitted and not observed.was_admitted:
            try:
                await self.placements(standing, workload=workload)
            except PodSetConflictError as error:
                standing = replace(standing, admitted=False, message=str(error))
        answer = KueueAnswer(
            obj, observed, standing=standing, short=short, queue=queue, gangs=self.gangs, copies=self.copies
        )
        return KueueTurn(answer, workload=workload, standing=standing, kueue=self, outdated=outdated)

    def withdraw(self, uid: str) -> None:
        """See `Admitter`."""
        self.gangs.withdraw(uid)

    async def let_go(self, obj: Object, observed: Observed) -> "LeavingTurn | None":
        """The job is in no queue of Kueue any more: its Workload goes, with the quota that it holds. One that runs by
        this quota is stopped before: it would run on GPUs that Kueue gives to others.

        Returns:
            The turn that stops it; None: Kueue has nothing of it any more.
        """
        live = await self._own(obj, observed)
        if live is None:
            return None
        standing = standing_of(live)
        by_kueue = standing.holds and (standing.admitted or standing.evicted or not observed.was_admitted)
        if not observed.was_admitted:
            self.gangs.withdraw(obj["metadata"]["uid"])  # it has taken places at its data as one of Kueue's
        if by_kueue and (observed.was_admitted or not has_stopped(observed)):
            return LeavingTurn(observed, queue=str(live["spec"].get("queueName") or ""))
        if by_kueue:
            await self._renew(observed)
            await self._clear_placement(observed)
        await self._delete(live)
        return None

    async def drop(self, obj: Object, observed: Observed) -> None:
        """The operator does not follow Kueue any more: the Workload of the job goes, where the operator may still
        delete it."""
        try:
            if (live := await self._own(obj, observed)) is not None:
                await self._delete(live)
        except (ForbiddenError, NotFoundError) as error:
            _log.warning("%s; docs/how-to/kueue.md says how to delete what is left of Kueue", error)

    async def _own(self, obj: Object, observed: Observed) -> Object | None:
        """The Workload of the job as it is; None: there is none."""
        name = own_workload.workload_name(observed.name)
        live = await self._api.get(WORKLOADS, name=name, namespace=observed.namespace)
        return live if live is not None and belongs(live, obj) else None

    async def _delete(self, live: Object) -> None:
        metadata = live["metadata"]
        await self._api.delete(
            WORKLOADS, name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
        )

    async def _clear_placement(self, observed: Observed) -> None:
        """Take from the templates of suspended Jobs what Kueue has given them: its flavors and gates are for it."""
        for role in observed.jobs:
            name = names.role_job_name(job=observed.name, role=role)
            job = await self._api.get(JOBS, name=name, namespace=observed.namespace)
            if job is None:
                continue
            template = observed.spec.by_role()[role].template
            change = template_changes(
                job["spec"]["template"], template=template, place=PodSetPlacement(node_labels={})
            )
            if change:
                await self._api.merge(
                    JOBS, name=name, namespace=observed.namespace, patch={"spec": {"template": change}}
                )

    async def _workload(
        self,
        obj: Object,
        observed: Observed,
        live: Object | None,
        *,
        is_ready: bool,
        preferred: list[Object] | None,
    ) -> tuple[Object | None, bool]:
        """The job's Workload, made or brought up to date, and whether it holds quota for other pods than the job asks
        for, which must not start with it; None where there is no Kueue.

        Args:
            obj: the job.
            observed: the same.
            live: the Workload as it is.
            is_ready: whether its data lets it start, and has a place for it.
            preferred: terms of preferred node affinity of its pods; None: not in mode Affinity.

        Raises:
            ForeignObjectError: an object of another owner has its name.
        """
        name, namespace = own_workload.workload_name(observed.name), observed.namespace
        # A job that runs keeps what it has, whatever becomes of its data.
        gated = not is_ready and not observed.was_admitted
        wanted_workload = own_workload.workload_of(
            obj,
            observed.spec,
            scheduler_name=self._context.settings.scheduler_name,
            priority=await self._priority(obj, observed),
            gated=gated,
            preferred=preferred,
        )
        if live is None:
            try:
                return await self._api.create(WORKLOADS, obj=wanted_workload), False
            except KubeError as error:
                if isinstance(error, NotFoundError) or error.code == KIND_GOING:
                    return None, False
                raise
        if not belongs(live, obj):
            raise foreign(resource=WORKLOADS, live=live, owner=obj)
        changed = own_workload.changes(
            live,
            owner=obj,
            suspended=observed.spec.run_policy.suspend,
            gated=gated,
            wanted_workload=wanted_workload,
            preferred=bool(preferred),
        )
        if changed:
            live = await self._api.merge(WORKLOADS, name=name, namespace=namespace, patch=changed)
        # What a job that runs asks for cannot change, but for the workers of an elastic one: it keeps those it has.
        outdated = own_workload.is_outdated(
            live, wanted_workload=wanted_workload
        ) or workload_standing.counts_differ(live)
        return live, outdated and not observed.was_admitted

    async def follow(
        self,
        workload: Object,
        observed: Observed,
        *,
        runs: bool,
        short: str,
        held: HeldUp | None,
        outdated: bool = False,
    ) -> None:
        """Say that all pods are ready; or give quota back that was taken, once no pod of the job runs any more.

        Args:
            workload: of the job.
            observed: the job.
            runs: whether all pods are ready.
            short: why there is no place for it at its data; empty: there is, or it has one.
            held: what holds its pods up; None: nothing does.
            outdated: whether its quota is for other pods than the job asks for.
        """
        standing = workload_standing.standing_of(workload)
        now = self._context.now()
        if short and standing.holds and not standing.evicted and not observed.was_admitted:
            # Quota that waits for a place would be held for nothing.
            await self._write(workload, place_hold_status(workload, message=short, now=now))
            return
        if not short and waits_for_place(workload):
            await self._write(workload, place_free_status(workload, now=now))
            return
        if not outdated and waits_for_change(workload):
            await self._write(workload, change_free_status(workload, now=now))
            return
        if standing.evicted or (outdated and standing.holds):
            if not has_stopped(observed):
                return  # the end of its pods wakes the job
            await self._renew(observed)
            free = workload_standing.quota_returned if standing.evicted else change_hold_status
            await self._write(workload, free(workload, now=now))
        elif standing.admitted and held is not None and held.seconds_left <= 0:
            # Its Jobs are suspended once that is written, as where Kueue evicts it.
            message = held.sentence(patience=0.0)
            await self._write(workload, workload_standing.evicted_for(workload, message=message, now=now))
        elif standing.admitted and runs and not standing.ready:
            await self._write(workload, workload_standing.ready_status(workload, now=now))
        elif (
            seconds_left := workload_standing.requeue_left(workload, now=now)
        ) is not None and seconds_left <= 0:
            await self._write(workload, workload_standing.requeued(workload, now=now))

    def requeue_left(self, workload: Object) -> float | None:
        """Seconds until a job queues again that did not run in time."""
        return workload_standing.requeue_left(workload, now=self._context.now())

    def held_up(self, observed: Observed) -> HeldUp | None:
        """What holds up the pods of a gang, and how long it still may."""
        return held_up(observed, running=running(observed), now=self._context.now())

    async def end(self, obj: Object, observed: Observed) -> None:
        """See `Admitter`: its quota is free."""
        live = await self._own(obj, observed)
        if live is None or workload_standing.standing_of(live).finished:
            return
        how = (True, observed.status.state or "Succeeded", observed.status.message)
        done = workload_standing.with_conditions(
            live, {workload_standing.FINISHED: how}, now=self._context.now()
        )
        await self._write(live, {"conditions": done})

    async def placements(self, standing: QueueStanding, *, workload: Object) -> dict[str, PodSetPlacement]:
        """By pod set, where the admission of this Workload has its pods run, and what they carry.

        Raises:
            PodSetConflictError: its checks want what contradicts its flavors, its template or each other.
        """
        updates = updates_of(workload)
        placements: dict[str, PodSetPlacement] = {}
        for pods, flavors in standing.flavors.items():
            labels: dict[str, str] = {}
            tolerations: list[Mapping[str, Any]] = []
            for flavor in flavors:
                spec = (await self._api.get(RESOURCE_FLAVORS, name=flavor) or {}).get("spec") or {}
                labels |= spec.get("nodeLabels") or {}
                tolerations += spec.get("tolerations") or ()
            place = PodSetPlacement(
                node_labels=labels,
                tolerations=tuple(tolerations),
                workload=workload["metadata"]["name"] if pods in standing.topologies else "",
                pod_set=pods,
            )
            placements[pods] = with_update(place, updates.get(pods))
        return placements

    async def _priority(self, obj: Object, observed: Observed) -> own_workload.WorkloadPriority:
        """Of the WorkloadPriorityClass that the job's label names, else of its PriorityClass. A class that does not
        exist counts as none, until it does."""
        named = (obj["metadata"].get("labels") or {}).get(own_workload.PRIORITY)
        if named:
            priority_class = await self._api.get(WORKLOAD_PRIORITY_CLASSES, name=named)
            kind = WORKLOAD_PRIORITY_CLASSES
        else:
            named, kind = class_of(observed.spec), PRIORITY_CLASSES
            priority_class = self._context.stores.priority_classes.get(("", named))
        if priority_class is None:
            return own_workload.WorkloadPriority(value=0 if named else self._demands.priority(""))
        group = kind.api_version.partition("/")[0]
        return own_workload.WorkloadPriority(
            value=int(priority_class.get("value") or 0), group=group, name=named
        )

    async def _renew(self, observed: Observed) -> None:
        """Make the templates of suspended Jobs changeable again: the next admission may have other flavors, and the
        job may choose another copy."""
        for role, job in observed.jobs.items():
            if job.suspended and job.start_time and not job.finished:
                await self._clear_start_time(observed, role)

    async def _clear_start_time(self, observed: Observed, role: Role) -> None:
        name = names.role_job_name(job=observed.name, role=role)
        await self._api.merge_status(
            JOBS, name=name, namespace=observed.namespace, patch={"status": {"startTime": None}}
        )

    async def _write(self, workload: Object, status: Mapping[str, Any]) -> None:
        metadata = workload["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        try:
            await self._api.merge_status(
                WORKLOADS, name=metadata["name"], namespace=metadata["namespace"], patch=patch
            )
        except ConflictError as error:
            _log.info("%s: Kueue has written to it meanwhile; its change wakes the job", error)


def has_stopped(observed: Observed) -> bool:
    """Whether no pod of a job runs, or is about to."""
    return not any(pod.phase in {"Pending", "Running"} for pod in observed.pods) and all(
        job.finished or (job.suspended and not job.active) for job in observed.jobs.values() if job.exists
    )


def _deciding_queue(obj: Object, live: Object | None) -> str:
    """The LocalQueue that decides about a job: as long as its Workload holds quota, the one that it has this from."""
    queue = local_queue(obj, kueue=True)
    if live is not None and belongs(live, obj) and standing_of(live).holds:
        return str(live["spec"].get("queueName") or queue)
    return queue


class LeavingTurn:
    """A pass over a job that has lost its queue's label while it holds quota: it stops; see `Turn`."""

    def __init__(self, observed: Observed, *, queue: str) -> None:
        self.observed: Final = observed
        self._queue: Final = queue

    def decide(self, *, now: str, over: bool) -> Decision | None:
        """See `Turn`."""
        data = decisions.data(self.observed, now=now)
        decision = decisions.decision_of(observed=self.observed, data=data)
        if not self.observed.spec.run_policy.suspend and not over:
            decision = decisions.taken_back(admission=workload_standing.leaves(self._queue), data=data)
        return replace(decision, queue=self._queue)

    async def pod_nodes(self, own_jobs: Mapping[Role, Object]) -> Mapping[Role, PodNodes]:
        """See `Turn`."""
        return {}

    async def applied(self, *, runs: bool) -> None:
        """See `Turn`: the end of its pods wakes the job."""

    def due(self, *, now: str) -> float | None:
        """See `Turn`."""
        return None


class KueueTurn:
    """One pass over a job in a queue of Kueue; see `Turn`."""

    def __init__(
        self,
        answer: KueueAnswer,
        *,
        workload: Object | None,
        standing: QueueStanding,
        kueue: KueueAdmitter,
        outdated: bool,
    ) -> None:
        self.observed: Final = answer.observed
        self._answer: Final = answer
        self._workload: Final = workload
        self._standing: Final = standing
        self._kueue: Final = kueue
        self._outdated: Final = outdated

    def decide(self, *, now: str, over: bool) -> Decision | None:
        """See `Turn`."""
        return self._answer.decide(now=now, over=over)

    async def pod_nodes(self, own_jobs: Mapping[Role, Object]) -> Mapping[Role, PodNodes]:
        """See `Turn`: the nodes of the flavors, and the domains of a topology, of Jobs that are suspended."""
        suspended = any((job.get("spec") or {}).get("suspend") for job in own_jobs.values())
        if self._workload is None or not self._standing.admitted or not suspended:
            return {}
        placements = await self._kueue.placements(self._standing, workload=self._workload)
        return {role: PodNodes(placement=placements.get(pod_set_name(role))) for role in own_jobs}

    async def applied(self, *, runs: bool) -> None:
        """See `Turn`."""
        if self._workload is not None:
            held = self._kueue.held_up(self.observed)
            await self._kueue.follow(
                self._workload,
                self.observed,
                runs=runs,
                short=self._answer.short,
                held=held,
                outdated=self._outdated,
            )

    def due(self, *, now: str) -> float | None:
        """See `Turn`: its time to start, or to run again, is over, or its pause is. What Kueue decides
        changes its Workload, which wakes the job."""
        held = self._kueue.held_up(self.observed) if self._standing.admitted else None
        seconds_left = None if held is None else held.seconds_left
        if seconds_left is None and self._workload is not None:
            seconds_left = self._kueue.requeue_left(self._workload)
        return None if seconds_left is None else max(seconds_left, 0.0)
