"""Restarts all pods of a TrainingJob: says so in its status, deletes the Jobs that are replaced, and finds the nodes
that the new pods avoid.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tdcs.api import names
from tdcs.api.conditions import POD_FAILED, Finding, finding
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import NodeFailures
from tdcs.control.context import Context
from tdcs.control.job import job_status
from tdcs.control.job.job_children import spec_digest
from tdcs.control.job.job_reporter import JobReporter
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job import job_restart, node_failures
from tdcs.decide.job.job_restart import JobRestart
from tdcs.decide.job.node_failures import AVOIDED_NODES_NEEDED, avoided_nodes
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.gang_fit import PodGroup, place
from tdcs.decide.place.node_eligibility import may_run
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS
from tdcs.model.pod_resources import amounts, pod_requests

EARLIER_JOBS_CHECK = 5.0
"""Seconds until it is looked whether the Jobs before a restart are gone; their end wakes the job as well."""


class JobRestarts:
    """The restarts of all jobs; what is known of each stands in its status."""

    def __init__(self, *, context: Context, reporter: JobReporter) -> None:
        self._context = context
        self._reporter = reporter

    async def end_earlier(self, observed: Observed, live: Mapping[Role, Object | None]) -> set[Role]:
        """Delete the Jobs that were made before the last restart, and those of a job that waits and asks for something
        else now; gives the roles of which one of them, or one that somebody else deleted, is still there.

        A Job goes when its pods have: the new ones have their names, and are found by their peers by these.
        """
        attempt, waits = observed.status.restarts or 0, set[Role]()
        for role, job in observed.jobs.items():
            live_job = live.get(role)
            if not job.exists or live_job is None or job.attempt is None:
                continue
            if (
                job.attempt >= attempt
                and not _is_outdated(observed, role)
                and (job.complete or not job.going)
            ):
                continue
            waits.add(role)
            metadata = live_job["metadata"]
            if not job.going:
                await self._context.api.delete(
                    JOBS,
                    name=metadata["name"],
                    namespace=metadata["namespace"],
                    uid=metadata["uid"],
                    foreground=True,
                )
        return waits

    async def pause(self, obj: Object, observed: Observed, restart: JobRestart) -> None:
        """Say that all pods are restarted after a pause: the job has failed soon after its last restart."""
        message = f"{restart.message}; after a pause, as it failed soon after it was restarted last"
        findings = [
            finding(names.RESTARTING, True, POD_FAILED, message),
            finding(names.RUNNING, False, "PodsStarting", message),
        ]
        changed = {"state": "Restarting", "reason": POD_FAILED, "message": message}
        await self._reporter.publish(obj, observed.status.model_copy(update=changed), findings)

    async def begin(self, obj: Object, observed: Observed, restart: JobRestart) -> None:
        """Say that all pods are restarted. The next pass, of whichever operator, finds Jobs of an earlier number, and
        deletes them. Of a job that is stopped nothing else changes: it waits as before."""
        status, findings, now = observed.status, list[Finding](), self._context.now()
        stopped = job_restart.is_stopped(observed)
        if not stopped:
            decision = replace(
                decisions.decision_of(observed=observed, data=decisions.data(observed, now=now)),
                copies={use.dataset: use.copy_id for use in observed.status.copies},
                queue=observed.status.queue_name or "",
                record=observed.status.queue,
                restart=restart,
            )
            stall = self._reporter.stall(obj)
            status = job_status.status_of(observed, decision=decision, outcome=None, now=now, stall=stall)
            findings = job_status.findings_of(observed, decision=decision, outcome=None)
        status = job_status.counting(status, restart)
        avoided = self._avoided_nodes(observed, status.node_failures)
        await self._reporter.publish(obj, status.model_copy(update={"avoided_nodes": avoided}), findings)
        if stopped or job_restart.is_restarting(
            observed
        ):  # so no condition changes, which would make an event
            await self._context.recorder.record(
                about=obj, reason=POD_FAILED, message=restart.message, type_="Warning"
            )

    async def give_up_avoiding(self, obj: Object, observed: Observed) -> None:
        """Let a job that queues run on the nodes that it avoids, as it has room nowhere else: the next passes make its
        Jobs again."""
        message = node_failures.needed(observed.status.avoided_nodes)
        await self._context.recorder.record(
            about=obj, reason=AVOIDED_NODES_NEEDED, message=message, type_="Warning"
        )
        await self._reporter.publish(obj, observed.status.model_copy(update={"avoided_nodes": []}), [])

    def _avoided_nodes(self, observed: Observed, failures: Sequence[NodeFailures]) -> list[str]:
        """The nodes that the new pods of a job avoid."""
        used = {pod.node for pod in observed.pods if pod.node}
        return avoided_nodes(
            failures, used=len(used), fits_without=lambda nodes: self._fits_without(observed, nodes)
        )

    def needs_avoided(self, observed: Observed) -> bool:
        """Whether a job that queues has no room any more but on nodes that it avoids: the others are gone, say."""
        avoided = observed.status.avoided_nodes
        queues = not observed.was_admitted and not observed.spec.run_policy.suspend
        return queues and bool(avoided) and not self._fits_without(observed, avoided)

    def _fits_without(self, observed: Observed, nodes: Collection[str]) -> bool:
        """Whether all pods of a job would fit on other nodes than these, next to pods of nobody's job."""
        stores = self._context.stores
        other_nodes = {name: node for (_, name), node in stores.nodes.items() if name not in nodes}
        free = {
            name: {
                resource: value - stores.usage.foreign(name).get(resource, 0)
                for resource, value in amounts((node.get("status") or {}).get("allocatable")).items()
            }
            for name, node in other_nodes.items()
        }
        groups = [
            PodGroup(
                count=observed.replicas(role),
                request=pod_requests(role_spec.template["spec"]),
                nodes=frozenset(
                    name for name, node in other_nodes.items() if may_run(role_spec.template["spec"], node)
                ),
            )
            for role, role_spec in observed.spec.by_role().items()
        ]
        return place(groups=groups, free=free, scarce=names.GPU_RESOURCE) is not None


def _is_outdated(observed: Observed, role: Role) -> bool:
    """Whether a Job was made for another spec, and may be created again: no pod of it may exist now."""
    waits = not observed.was_admitted or observed.spec.run_policy.suspend
    made_for = observed.job(role).spec_digest
    return waits and bool(made_for) and made_for != spec_digest(observed.spec, role)
