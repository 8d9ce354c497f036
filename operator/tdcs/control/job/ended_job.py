"""A TrainingJob that has ended, by the views alone: most are never worked on again."""

from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.api.trainingjob import ROLES
from tdcs.control.context import Stores
from tdcs.control.job_index import has_ended
from tdcs.decide.job.job_phase import seconds_to_live
from tdcs.kube.apply import belongs
from tdcs.model.kube_objects import Object


def is_settled(job: Object, *, stores: Stores) -> bool:
    """Whether nothing is left to do for a job but to delete it in time: its status is about its spec as it is, none of
    its pods is to be ended, and no queue holds anything for it."""
    metadata, status = job["metadata"], job.get("status") or {}
    if not has_ended(job) or metadata.get("deletionTimestamp") or status.get("queueName"):
        return False
    if status.get("observedGeneration") != metadata.get("generation"):
        return False
    policy = _run_policy(job).get("cleanPodPolicy") or "Running"
    if policy == "None":
        return True
    for role in ROLES:
        name = names.role_job_name(job=metadata["name"], role=role)
        child = stores.jobs.get((metadata.get("namespace", ""), name))
        if child is not None and belongs(child, job) and (policy == "All" or not _is_still(child)):
            return False
    return True


def left(job: Object, *, now: str) -> float | None:
    """How long a job that has ended stays; None: until somebody deletes it."""
    ttl = _run_policy(job).get("ttlSecondsAfterFinished")
    ended = (job.get("status") or {}).get("completionTime")
    return seconds_to_live(None if ttl is None else float(ttl), ended=ended, now=now)


def _run_policy(job: Object) -> Mapping[str, Any]:
    policy = (job.get("spec") or {}).get("runPolicy")
    return policy if isinstance(policy, Mapping) else {}


def _is_still(child: Object) -> bool:
    """Whether a Job has ended, or is suspended."""
    conditions = (child.get("status") or {}).get("conditions") or ()
    over = any(
        condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True"
        for condition in conditions
    )
    return over or bool((child.get("spec") or {}).get("suspend"))
