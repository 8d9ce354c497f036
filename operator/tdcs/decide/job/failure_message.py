"""How a role's Job failed for good: the pod, its exit code, the retries, and where to read more."""

from collections.abc import Iterable, Sequence

from tdcs.api import names
from tdcs.api.conditions import NO_RETRY_LEFT, Condition
from tdcs.api.trainingjob import Role
from tdcs.decide.job.own_failures import failed_by_themselves
from tdcs.model.job_pods import PodProblem, PodView

DEADLINE = "DeadlineExceeded"
"""Why a Job failed that took longer than it may."""

NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that was made and could not be started: it has no log."""


def is_told(restarting: Condition) -> bool:
    """Whether a condition Restarting tells of a pod that failed and was not replaced since."""
    return restarting.status == "True" or restarting.reason == NO_RETRY_LEFT


def failed(
    *,
    role: Role,
    verdict: str,
    limit: int,
    pods: Sequence[PodView],
    namespace: str,
    restarts: int | None = None,
    known: Iterable[Condition],
) -> str:
    """Which pod a role's Job failed by, and how; the Job's own words where that is not known, or not the cause.

    Args:
        limit: how many failed pods of the role are replaced.
        pods: those of the role that are still there.
        namespace: theirs.
        restarts: how often all pods of the job were restarted; None where pods are replaced one by one.
        known: the conditions of the TrainingJob: a pod that is gone may be described there.
    """
    if verdict.startswith(DEADLINE):
        return (
            f"{role}: {verdict}; its pods were ended. Raise spec.runPolicy.activeDeadlineSeconds, or make the job "
            "shorter"
        )
    pod, problem = _last_failure(pods)
    if pod is None or problem is None:
        restarting = next((one.message for one in known if one.type == names.RESTARTING and is_told(one)), "")
        before = f"; before that, {restarting}" if restarting else ""
        return f"{role}: {verdict}{before}; the logs of its pods, which status.placement names, say why"
    retries = _retries(pod, pods, limit) if restarts is None else 0
    after = f" after {retries} {'retry' if retries == 1 else 'retries'}" if retries > 0 else ""
    if restarts:
        after = f" after {restarts} {'restart' if restarts == 1 else 'restarts'} of all pods"
    where = f" on node {pod.node}" if pod.node else ""
    container = f" -c {problem.container}" if problem.container else ""
    see = f"see kubectl logs -n {namespace} {pod.name}{container}"
    if problem.reason in NEVER_RAN:
        see = f"container {problem.container} has no log, as it never ran: check its command and image"
    who = f"{role.lower()} {pod.index} (pod {pod.name}{where})"
    return f"{who} failed with {ending_of(problem)}{after} ({verdict}); {see}"


def _last_failure(pods: Iterable[PodView]) -> tuple[PodView | None, PodProblem | None]:
    """The pod that failed last, rather than one that the cluster ended."""
    failed = failed_by_themselves(pod for pod in pods if pod.failure is not None)
    own = [pod for pod in failed if not pod.disrupted]
    last = max(own or failed, key=lambda pod: (pod.finished, pod.created, pod.name), default=None)
    return last, None if last is None else last.failure


def _retries(pod: PodView, pods: Iterable[PodView], limit: int) -> int:
    """How often this pod's index is known to have been tried again: pods that are being deleted may have been ended by
    the Job controller, and prove no retry."""
    failures = sum(one.index == pod.index and one.failure is not None and not one.going for one in pods)
    return max(0, min(limit, failures - 1))


def ending_of(problem: PodProblem) -> str:
    """Such as ``exit code 137 (OOMKilled)``."""
    if problem.code is None:
        return str(problem)
    text = problem.message.partition(f"exit code {problem.code}")[2].lstrip(": ")
    reason = f" ({problem.reason})" if problem.reason != "Error" else ""
    return f"exit code {problem.code}{reason}{f': {text}' if text else ''}"
