"""The Jobs of a TrainingJob's roles, and its Service: made, let run or not, and ended."""

import time
from collections.abc import Callable, Mapping

from tdcs.api import names
from tdcs.api.trainingjob import Role, TrainingJob
from tdcs.control.context import Context
from tdcs.control.job import job_children
from tdcs.control.job.queue.admitter import PodNodes
from tdcs.decide.job import role_order
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.data_location import wanted_near
from tdcs.decide.place.near_nodes import places_of
from tdcs.decide.place.preferred_affinity import HOSTNAME, preferred_terms
from tdcs.kube.apply import belongs, foreign
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import JOBS, SERVICES

SERVICE_CHECK = 60.0
"""Seconds that a Service is taken to be as it was: nobody but people changes one, and jobs have many passes."""


class RoleJobs:
    """Applies what was decided about TrainingJobs to their children.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, *, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._services: dict[Key, tuple[str, float]] = {}
        """Which TrainingJob's Service was looked at last, and when."""

    def drop(self, job: Key) -> None:
        """The TrainingJob is gone."""
        self._services.pop(job, None)

    async def live(self, obj: Object, job: TrainingJob) -> dict[Role, Object | None]:
        """The Jobs of the roles as they are, a stranger's of that name included."""
        metadata, live_jobs = obj["metadata"], {}
        for role in job.spec.by_role():
            name = names.role_job_name(job=metadata["name"], role=role)
            live = self._context.stores.jobs.get((metadata["namespace"], name))
            if live is None or not belongs(live, obj):
                # The view may lag behind what an earlier pass made, or behind a stranger's Job of that name.
                live = await self._context.api.get(JOBS, name=name, namespace=metadata["namespace"])
            live_jobs[role] = live
        return live_jobs

    async def ensure(
        self, obj: Object, observed: Observed, live: Mapping[Role, Object | None]
    ) -> dict[Role, Object]:
        """Make the children that are missing, the Jobs suspended; gives the Jobs.

        So whatever the server has against them is known before the job is admitted. A Job that is made again of a job
        that runs gets its order and its places (`steer`) before a pod of it can exist, as one that is admitted.
        """
        context, metadata = self._context, obj["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        key, (uid, at) = (namespace, name), self._services.get((namespace, name), ("", 0.0))
        if uid != metadata["uid"] or self._clock() - at > SERVICE_CHECK:
            service = await context.api.get(SERVICES, name=name, namespace=namespace)
            service_spec = job_children.service(owner=obj, spec=observed.spec)
            await context.applier.apply(SERVICES, wanted=service_spec, live=service, owner=obj)
            self._services[key] = (metadata["uid"], self._clock())
        copies = {use.dataset: use.copy_id for use in observed.status.copies}
        jobs = {}
        for role, live_job in live.items():
            if live_job is not None and not belongs(live_job, obj):
                raise foreign(resource=JOBS, live=live_job, owner=obj)
            if live_job is None:
                new_job = job_children.job(
                    owner=obj,
                    spec=observed.spec,
                    role=role,
                    suspended=True,
                    replicas=observed.replicas(role),
                    scheduler_name=context.settings.scheduler_name,
                    copies=copies,
                    attempt=observed.status.restarts or 0,
                )
                live_job = await context.applier.apply(JOBS, wanted=new_job, live=None, owner=obj)
            jobs[role] = live_job
        return jobs

    async def steer(
        self,
        observed: Observed,
        live: Mapping[Role, Object],
        decision: Decision,
        *,
        workers: int | None,
        now: str,
        nodes: Mapping[Role, PodNodes],
    ) -> None:
        """Let the Jobs run or not, and follow what may change in them. `workers`: how many there may be for now;
        `nodes`: where the admission has pods run that are not made yet.
        """
        begins = role_order.may_start(observed, now=now) if decision.admitted else frozenset()
        preferred = self.preferred(observed, decision.copies) if decision.admitted else None
        for role, live_job in live.items():
            if not observed.job(role).finished:  # in a Job that is over nothing matters any more
                where = nodes.get(role, PodNodes())
                change = job_children.changes(
                    live=live_job,
                    spec=observed.spec,
                    role=role,
                    suspended=role not in begins,
                    replicas=observed.replicas(role) if role != "Worker" or workers is None else workers,
                    preferred=preferred,
                    copies=decision.copies,
                    place=where.placement,
                    leave=where.leave,
                    marks=where.marks,
                    now=now,
                )
                await self._change(live_job, change)

    async def clean(self, obj: Object, observed: Observed, live: Mapping[Role, Object | None]) -> None:
        """End what still runs of a job that ended, as runPolicy.cleanPodPolicy says."""
        policy = observed.spec.run_policy.clean_pod_policy
        for role, live_job in live.items():
            if live_job is None or not belongs(live_job, obj) or policy == "None":
                continue
            metadata = live_job["metadata"]
            if policy == "All":
                await self._context.api.delete(
                    JOBS, name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
                )
            elif not observed.job(role).finished and not observed.job(role).suspended:
                # A suspended Job has no running pods, and keeps those that ended, with their logs.
                await self._change(live_job, {"spec": {"suspend": True}})

    async def _change(self, live: Object, change: Object) -> None:
        if change:
            metadata = live["metadata"]
            await self._context.api.merge(
                JOBS, name=metadata["name"], namespace=metadata["namespace"], patch=change
            )

    def preferred(self, observed: Observed, copies: Mapping[str, str]) -> list[Object] | None:
        if observed.spec.scheduling.mode != "Affinity":
            return None
        hostnames = {
            name: (node["metadata"].get("labels") or {}).get(HOSTNAME, name)
            for (_, name), node in self._context.stores.nodes.items()
        }
        nodes, keys = self._context.stores.nodes.values(), self._context.settings.topology_labels
        return preferred_terms(
            copies=wanted_near(observed.datasets, chosen=copies),
            hostnames=hostnames,
            places=places_of(nodes, keys=keys),
        )
