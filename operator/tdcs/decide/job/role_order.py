"""The order in which the roles of a gang get their pods: the largest first.

The queue checks whether a gang fits with its largest pods first. kube-scheduler places pods in order of arrival: small
pods that arrive first could take the only node that fits a large one, at every attempt.
"""

from tdcs.api import names
from tdcs.api.durations import seconds_since
from tdcs.api.trainingjob import Role
from tdcs.decide.job.observed_job import Observed
from tdcs.model.pod_resources import CPU, pod_requests

LONGEST_WAIT = 20.0
"""Seconds that the smaller pods of a gang wait at most until the larger ones have a node."""


def may_start(observed: Observed, *, now: str) -> frozenset[Role]:
    """The roles of an admitted job whose pods may exist now."""
    return frozenset(role for role in observed.spec.by_role() if _left(observed, role, now=now) <= 0)


def next_start(observed: Observed, *, now: str) -> float | None:
    """Seconds until the next role may start at the latest; None when none waits."""
    waits = [_left(observed, role, now=now) for role in observed.spec.by_role()]
    return min((seconds for seconds in waits if seconds > 0), default=None)


def _left(observed: Observed, role: Role, *, now: str) -> float:
    """Seconds that a role still waits for larger ones."""
    job, specs = observed.job(role), observed.spec.by_role()
    if not observed.spec.scheduling.gang or (job.exists and not job.suspended):
        return 0.0
    sizes = {other_role: _size(spec.template["spec"]) for other_role, spec in specs.items()}
    return max(
        (_unplaced(observed, other_role, now=now) for other_role in specs if sizes[other_role] > sizes[role]),
        default=0.0,
    )


def _unplaced(observed: Observed, role: Role, *, now: str) -> float:
    """Seconds that others wait for the pods of this role to get their nodes."""
    job, replicas = observed.job(role), observed.replicas(role)
    placed = {pod.index for pod in observed.pods if pod.role == role and pod.node and not pod.going}
    if job.finished or len(placed) + job.succeeded >= replicas:
        return 0.0
    if job.suspended or not job.start_time:
        return LONGEST_WAIT
    return LONGEST_WAIT - seconds_since(job.start_time, now=now)


def _size(pod: dict[str, object]) -> tuple[int, int]:
    requests = pod_requests(pod)
    return requests.get(names.GPU_RESOURCE, 0), requests.get(CPU, 0)
