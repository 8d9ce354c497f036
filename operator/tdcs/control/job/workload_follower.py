"""Follows Kueue for TrainingJobs that name a queue: makes their Workloads, and writes to them what Kueue waits for.

Kueue decides; nothing here suspends or admits by itself. A job's Jobs carry no label of a queue, so Kueue never touches
their `suspend`.
"""

import logging
from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.api.trainingjob import Role
from tdcs.control.context import Context
from tdcs.control.job import own_workload
from tdcs.control.job.queue.pod_demand import PodDemands
from tdcs.decide.job import workload_standing
from tdcs.decide.job.kueue_nodes import Placement
from tdcs.decide.job.workload_standing import QueueStanding
from tdcs.kube.apply import belongs, foreign
from tdcs.kube.errors import ConflictError, KubeError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS, RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from tdcs.model.observed_job import Observed

_log = logging.getLogger(__name__)

KIND_GOING = 405
"""The API server's answer to a create of a kind while its definition is being deleted."""


class KueueQuota:
    """The Workloads of TrainingJobs."""

    def __init__(self, *, context: Context) -> None:
        self._context = context
        self._api = context.api
        self._demands = PodDemands(stores=context.stores)

    def queue(self, obj: Object) -> str:
        """The LocalQueue whose Kueue decides about a job; empty: TDCS decides."""
        return own_workload.queue_of(obj) if self._context.settings.kueue else ""

    async def workload(
        self, obj: Object, seen: Observed, *, data_ready: bool, preferred: list[Object] | None
    ) -> Object | None:
        """The job's Workload, made or brought up to date; None where there is no Kueue.

        Args:
            obj: the job.
            seen: the same.
            data_ready: whether its data lets it start.
            preferred: terms of preferred node affinity of its pods; None: not in mode Affinity.

        Raises:
            ForeignObjectError: an object of another owner has its name.
        """
        name, namespace = own_workload.workload_name(seen.name), seen.namespace
        live = await self._api.get(WORKLOADS, name=name, namespace=namespace)
        # A job that runs keeps what it has, whatever becomes of its data.
        gated = not data_ready and not seen.was_admitted
        made = own_workload.workload_of(
            obj,
            seen.spec,
            scheduler_name=self._context.settings.scheduler_name,
            priority=await self._priority(obj, seen) if live is None else 0,
            gated=gated,
            preferred=preferred,
        )
        if live is None:
            try:
                return await self._api.create(WORKLOADS, obj=made)
            except KubeError as error:
                if isinstance(error, NotFoundError) or error.code == KIND_GOING:
                    return None
                raise
        if not belongs(live, obj):
            raise foreign(resource=WORKLOADS, live=live, owner=obj)
        changed = own_workload.changes(
            live,
            owner=obj,
            suspended=seen.spec.run_policy.suspend,
            gated=gated,
            wanted=made if preferred else None,
        )
        if changed:
            live = await self._api.merge(WORKLOADS, name=name, namespace=namespace, patch=changed)
        return live

    async def follow(self, workload: Object, seen: Observed, *, runs: bool) -> None:
        """Say that all pods are ready; or give quota back that was taken, once no pod of the job runs any more."""
        found = workload_standing.standing_of(workload)
        now = self._context.now()
        if found.evicted:
            stopped = all(
                job.finished or (job.suspended and not job.active) for job in seen.jobs.values() if job.exists
            )
            if not stopped or any(pod.phase in {"Pending", "Running"} for pod in seen.pods):
                return  # their end wakes the job
            await self._renew(seen)
            await self._write(workload, workload_standing.quota_returned(workload, now=now))
        elif found.admitted and runs and not found.ready:
            ready = {workload_standing.PODS_READY: (True, "Started", "all pods of the TrainingJob are ready")}
            await self._write(
                workload, {"conditions": workload_standing.with_conditions(workload, ready, now=now)}
            )

    async def finish(self, obj: Object, seen: Observed) -> None:
        """The job has ended: its quota is free."""
        name, namespace = own_workload.workload_name(seen.name), seen.namespace
        live = await self._api.get(WORKLOADS, name=name, namespace=namespace)
        if live is None or not belongs(live, obj) or workload_standing.standing_of(live).finished:
            return
        how = (True, seen.known.state or "Succeeded", seen.known.message)
        done = workload_standing.with_conditions(
            live, {workload_standing.FINISHED: how}, now=self._context.now()
        )
        await self._write(live, {"conditions": done})

    async def places(self, found: QueueStanding, *, workload: str) -> dict[str, Placement]:
        """By pod set, where the admission of this Workload has its pods run."""
        made: dict[str, Placement] = {}
        for pods, flavors in found.flavors.items():
            labels: dict[str, str] = {}
            tolerations: list[Mapping[str, Any]] = []
            for flavor in flavors:
                spec = (await self._api.get(RESOURCE_FLAVORS, name=flavor) or {}).get("spec") or {}
                labels |= spec.get("nodeLabels") or {}
                tolerations += spec.get("tolerations") or ()
            made[pods] = Placement(
                node_labels=labels,
                tolerations=tuple(tolerations),
                workload=workload if pods in found.topologies else "",
                pod_set=pods,
            )
        return made

    async def _priority(self, obj: Object, seen: Observed) -> int:
        """Of the WorkloadPriorityClass that the job's label names, else of its PriorityClass."""
        named = (obj["metadata"].get("labels") or {}).get(own_workload.PRIORITY)
        if not named:
            return self._demands.priority(seen.spec)
        found = await self._api.get(WORKLOAD_PRIORITY_CLASSES, name=named)
        return int((found or {}).get("value") or 0)

    async def _renew(self, seen: Observed) -> None:
        """Make the templates of suspended Jobs changeable again: the next admission may have other flavors, and the
        job may choose another copy."""
        for role, job in seen.jobs.items():
            if job.suspended and job.start_time and not job.finished:
                await self._forget_start(seen, role)

    async def _forget_start(self, seen: Observed, role: Role) -> None:
        name = names.role_job_name(job=seen.name, role=role)
        await self._api.merge_status(
            JOBS, name=name, namespace=seen.namespace, patch={"status": {"startTime": None}}
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
