"""Pods whose own containers have ended, and that a container which was added to them keeps alive.

A webhook that injects a proxy or an agent as an ordinary container makes pods that never end: the program has ended,
the Job controller waits for the pod, and its GPUs belong to nobody. After `GRACE` such a pod counts as what its own
containers made of it.
"""

from dataclasses import replace

from tdcs.api.durations import seconds_since
from tdcs.decide.job.failure_policy import restarts_all
from tdcs.decide.job.observed_job import Observed
from tdcs.model.job_pods import PodProblem, PodView

GRACE = 30.0
"""Seconds that an added container gets to end by itself, once the program has ended."""

SIDECAR_RUNNING = "SidecarRunning"
"""Why a pod is not replaced whose program has failed: a container that was added to it still runs."""


def without_sidecars(seen: Observed, *, now: str) -> Observed:
    """The job with such pods as they would be without the containers that were added to them."""
    pods = [_judged(seen, pod, now=now) if _is_left(seen, pod) else pod for pod in seen.pods]
    return replace(seen, pods=pods)


def next_look(seen: Observed, *, now: str) -> float | None:
    """Seconds until the grace of the first such pod is over; None when there is none."""
    left = [_left(pod, now=now) for pod in seen.pods if _is_left(seen, pod)]
    return min((each for each in left if each > 0), default=None)


def _is_left(seen: Observed, pod: PodView) -> bool:
    roles = seen.spec.by_role()
    if pod.phase != "Running" or pod.going or not pod.ended or pod.role not in roles:
        return False
    own = {str(each.get("name")) for each in roles[pod.role].template["spec"].get("containers") or ()}
    return own <= pod.ended.keys()


def _left(pod: PodView, *, now: str) -> float:
    return GRACE - seconds_since(pod.finished, now=now) if pod.finished else 0.0


def _judged(seen: Observed, pod: PodView, *, now: str) -> PodView:
    failure = pod.program_failure
    if _left(pod, now=now) > 0:
        return replace(pod, kept_alive=failure is None)
    if failure is None:
        return replace(pod, phase="Succeeded", ready=False, waiting=None, kept_alive=True)
    if restarts_all(seen.spec, role=pod.role, index=pod.number):
        return replace(pod, phase="Failed", ready=False, waiting=None, failure=failure, kept_alive=True)
    left = "a container that its template does not name still runs"
    why = f"{failure}, and {left}: have that one end, or delete the pod"
    return replace(pod, waiting=PodProblem(reason=SIDECAR_RUNNING, message=why), kept_alive=True)
