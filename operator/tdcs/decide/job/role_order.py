"""In which order the roles of a gang get their pods: those with the largest first.

Whether a gang fits is worked out for its largest pods first. kube-scheduler places pods as they come: small ones that
came first could fill the only node that a large one fits on, each time anew.
"""

from tdcs.api import names
from tdcs.api.durations import seconds_since
from tdcs.api.trainingjob import Role
from tdcs.decide.job.observed_job import Observed
from tdcs.model.pod_resources import CPU, pod_requests

LONGEST_WAIT = 20.0
"""Seconds that the smaller pods of a gang wait at most until the larger ones have a node."""


def may_start(seen: Observed, *, now: str) -> frozenset[Role]:
    """The roles of an admitted job whose pods may exist now."""
    return frozenset(role for role in seen.spec.by_role() if _left(seen, role, now=now) <= 0)


def next_start(seen: Observed, *, now: str) -> float | None:
    """Seconds until time alone lets another role begin; None when none waits."""
    left = [_left(seen, role, now=now) for role in seen.spec.by_role()]
    return min((each for each in left if each > 0), default=None)


def _left(seen: Observed, role: Role, *, now: str) -> float:
    """Seconds that a role still waits for larger ones."""
    job, specs = seen.job(role), seen.spec.by_role()
    if not seen.spec.scheduling.gang or (job.exists and not job.suspended):
        return 0.0
    sizes = {each: _size(spec.template["spec"]) for each, spec in specs.items()}
    return max((_unplaced(seen, each, now=now) for each in specs if sizes[each] > sizes[role]), default=0.0)


def _unplaced(seen: Observed, role: Role, *, now: str) -> float:
    """Seconds that others wait for the pods of this role to get their nodes."""
    job, wanted = seen.job(role), seen.replicas(role)
    placed = {pod.index for pod in seen.pods if pod.role == role and pod.node and not pod.going}
    if job.finished or len(placed) + job.succeeded >= wanted:
        return 0.0
    if job.suspended or not job.start_time:
        return LONGEST_WAIT
    return LONGEST_WAIT - seconds_since(job.start_time, now=now)


def _size(pod: dict[str, object]) -> tuple[int, int]:
    asked = pod_requests(pod)
    return asked.get(names.GPU_RESOURCE, 0), asked.get(CPU, 0)
