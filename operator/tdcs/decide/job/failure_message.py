"""The message of a role's Job that failed for good: pod, exit code, retries, and the command that shows its log."""

from collections.abc import Iterable, Sequence

from tdcs.api import names
from tdcs.api.conditions import NO_RETRY_LEFT, Condition
from tdcs.api.trainingjob import Role
from tdcs.decide.job.own_failures import failed_by_themselves
from tdcs.model.job_pods import PodProblem, PodView

DEADLINE = "DeadlineExceeded"
"""Reason of a Job that exceeded activeDeadlineSeconds."""

NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that was created but could not be started: it has no log."""


def tells_of_failure(restarting: Condition) -> bool:
    """Whether a Restarting condition describes a failed pod that has not been replaced since."""
    return restarting.status == "True" or restarting.reason == NO_RETRY_LEFT


def failed(
    *,
    role: Role,
    verdict: str,
    limit: int,
    pods: Sequence[PodView],
    namespace: str,
    restarts: int | None = None,
    conditions: Iterable[Condition],
) -> str:
    """Which pod made a role's Job fail, and how; the Job's own message when that is unknown or not the cause.

    Args:
        limit: how many failed pods of the role are replaced.
        pods: the role's pods that still exist.
        namespace: their namespace.
        restarts: how often all pods of the job were restarted; None where pods are replaced one by one.
        conditions: the conditions of the TrainingJob: they may describe a pod that no longer exists.
    """
    if verdict.startswith(DEADLINE):
        return (
            f"{role}: {verdict}; its pods were ended. Raise spec.runPolicy.activeDeadlineSeconds, or make the job "
            "shorter"
        )
    pod, problem = _last_failure(pods)
    if pod is None or problem is None:
        restarting = next(
            (
                # Without the log: the pod is not there any more.
                condition.message.partition("; see kubectl logs")[0]
                for condition in conditions
                if condition.type == names.RESTARTING and tells_of_failure(condition)
            ),
            "",
        )
        before = f"; before that, {restarting}" if restarting else ""
        return f"{role}: {verdict}{before}; the logs of its pods, which status.placement names, say why"
    retries = _retries(pod, pods, limit) if restarts is None else 0
    after = f" after {retries} {'retry' if retries == 1 else 'retries'}" if retries > 0 else ""
    if restarts:
        after = f" after {restarts} {'restart' if restarts == 1 else 'restarts'} of all pods"
    where = f" on node {pod.node}" if pod.node else ""
    see = f"see {log_command(pod, problem, namespace=namespace)}"
    if problem.reason in NEVER_RAN:
        see = f"container {problem.container} has no log, as it never ran: check its command and image"
    failed_pod = f"{role.lower()} {pod.index} (pod {pod.name}{where})"
    return f"{failed_pod} failed with {ending_of(problem)}{after} ({verdict}); {see}"


def log_command(pod: PodView, problem: PodProblem, *, namespace: str, previous: bool = False) -> str:
    """What shows the log of the container that a problem is about. `previous`: of its run before the present one."""
    container = f" -c {problem.container}" if problem.container else ""
    before = " --previous" if previous else ""
    return f"kubectl logs -n {namespace} {pod.name}{container}{before}"


def has_log(pod: PodView, problem: PodProblem) -> bool:
    """Whether a failed pod is there, and what failed in it has written a log."""
    return bool(problem.container) and problem.reason not in NEVER_RAN and not pod.going


def _last_failure(pods: Iterable[PodView]) -> tuple[PodView | None, PodProblem | None]:
    """The pod that failed last, rather than one that the cluster ended."""
    failed = failed_by_themselves(pod for pod in pods if pod.failure is not None)
    undisrupted = [pod for pod in failed if not pod.disrupted]
    last = max(undisrupted or failed, key=lambda pod: (pod.finished, pod.created, pod.name), default=None)
    return last, None if last is None else last.failure


def _retries(pod: PodView, pods: Iterable[PodView], limit: int) -> int:
    """How many retries of this pod's index are proven. A pod that is being deleted may have been ended by the Job
    controller, so it does not count."""
    failures = sum(
        sibling.index == pod.index and sibling.failure is not None and not sibling.going for sibling in pods
    )
    return max(0, min(limit, failures - 1))


def ending_of(problem: PodProblem) -> str:
    """Such as ``exit code 137 (OOMKilled)``."""
    if problem.code is None:
        return str(problem)
    text = problem.message.partition(f"exit code {problem.code}")[2].lstrip(": ")
    reason = f" ({problem.reason})" if problem.reason != "Error" else ""
    return f"exit code {problem.code}{reason}{f': {text}' if text else ''}"
