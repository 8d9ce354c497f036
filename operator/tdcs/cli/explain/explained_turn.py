"""What the admitter of a job that waits says to it now.

The operator writes a status again at its next resync where only the job's place in the queue has changed.
"""

from dataclasses import replace

from tdcs.api import names
from tdcs.api.trainingjob import TrainingJob
from tdcs.cli.explain.planned_world import PlanWorld, stores_of
from tdcs.control.job.observation import observe
from tdcs.control.kueue.own_workload import workload_name
from tdcs.control.operator.queue_preview import preview
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.kueue.workload_standing import standing_of
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import WORKLOADS

_WAITS = frozenset({None, "Waiting", "Queued"})
_NOT_OF_THE_QUEUE = frozenset({Reason.REFUSED, Reason.INVALID})
"""Reasons that the queue does not know: the job asks for nothing before they are over."""


def is_asked(obj: Object) -> bool:
    """Whether a job waits for what an admitter says."""
    status = obj.get("status") or {}
    going = obj["metadata"].get("deletionTimestamp")
    return status.get("state") in _WAITS and status.get("reason") not in _NOT_OF_THE_QUEUE and not going


def asked_now(world: PlanWorld) -> Decision | None:
    """What is decided about the job of this world now; None where too little of the cluster may be read to know.

    Raises:
        ValidationError: the job cannot be understood.
    """
    obj, stores = world.job, stores_of(world, conditions=None)
    if world.hidden_from_queue or not world.sees_all(WORKLOADS):
        return None
    job = TrainingJob.model_validate(obj)
    children = {
        role: stores.jobs.get((world.namespace, names.role_job_name(job=world.name, role=role)))
        for role in job.spec.by_role()
    }
    observed = observe(obj, job, children, stores=stores)
    if observed.status.reason == Reason.NO_CLAIM:
        observed = replace(observed, missing_claim=observed.status.message or "")
    mine = workload_name(world.name)
    workload = next(
        (
            workload
            for workload in world.of(WORKLOADS)
            if (workload["metadata"].get("namespace"), workload["metadata"]["name"])
            == (world.namespace, mine)
        ),
        None,
    )
    return preview(
        stores=stores,
        settings=world.settings,
        obj=obj,
        observed=observed,
        standing=standing_of(workload),
        now=world.now,
    ).decision
