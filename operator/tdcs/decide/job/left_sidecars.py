"""Pods whose own containers have ended, and that an injected container keeps running.

If a webhook injects a proxy or an agent as an ordinary container, the pod never ends: the program has exited, the Job
controller waits for the pod, and its GPUs stay idle. After `GRACE`, the pod's own containers decide its result.
"""

from dataclasses import replace

from tdcs.api.durations import seconds_since
from tdcs.decide.job.failure_policy import restarts_all
from tdcs.decide.job.observed_job import Observed
from tdcs.model.job_pods import PodProblem, PodView

GRACE = 30.0
"""Seconds for an injected container to exit after the program has ended."""

SIDECAR_RUNNING = "SidecarRunning"
"""Reason of a pod whose program failed and that is not replaced, as an injected container still runs."""


def without_sidecars(observed: Observed, *, now: str) -> Observed:
    """The job with its pods as they would be without injected containers."""
    pods = [_judged(observed, pod, now=now) if _is_left(observed, pod) else pod for pod in observed.pods]
    return replace(observed, pods=pods)


def next_look(observed: Observed, *, now: str) -> float | None:
    """Seconds until the first grace period ends; None when there is none."""
    graces_left = [_left(pod, now=now) for pod in observed.pods if _is_left(observed, pod)]
    return min((seconds for seconds in graces_left if seconds > 0), default=None)


def _is_left(observed: Observed, pod: PodView) -> bool:
    roles = observed.spec.by_role()
    if pod.phase != "Running" or pod.going or not pod.ended or pod.role not in roles:
        return False
    containers = {
        str(container.get("name")) for container in roles[pod.role].template["spec"].get("containers") or ()
    }
    return containers <= pod.ended.keys()


def _left(pod: PodView, *, now: str) -> float:
    return GRACE - seconds_since(pod.finished, now=now) if pod.finished else 0.0


def _judged(observed: Observed, pod: PodView, *, now: str) -> PodView:
    failure = pod.program_failure
    if _left(pod, now=now) > 0:
        return replace(pod, kept_alive=failure is None)
    if failure is None:
        return replace(pod, phase="Succeeded", ready=False, waiting=None, kept_alive=True)
    if restarts_all(observed.spec, role=pod.role, index=pod.number):
        return replace(pod, phase="Failed", ready=False, waiting=None, failure=failure, kept_alive=True)
    cause = "a container that its template does not name still runs"
    why = f"{failure}, and {cause}: have that one end, or delete the pod"
    return replace(pod, waiting=PodProblem(reason=SIDECAR_RUNNING, message=why), kept_alive=True)
