"""Whether all pods of a job are restarted, because one that the others need failed, was evicted or disappeared.

The status counts the restarts, and every Job and pod carries the count at its creation. Any operator deletes and
recreates Jobs with a lower count, so the operator may be killed at any moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.durations import seconds_since
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.failure_message import ending_of
from tdcs.decide.job.failure_policy import (
    BACKOFF_LIMIT_EXCEEDED,
    action_of,
    max_restarts,
    restart_policy,
    restarts_all,
)
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.own_failures import failed_by_themselves
from tdcs.model.job_pods import PodView, newest

LEADERS: tuple[Role, ...] = ("Chief", "Launcher")
"""Roles of a single pod whose result is the job's result."""

OF_THE_NODE = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"})
"""Disruptions caused by the node (lost, or under pressure), unlike an eviction or a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestart:
    """All pods of a job are restarted.

    Attributes:
        message: the reason, as a sentence.
        counts: whether it counts towards the job's limit of restarts.
        failed_node: the node that caused it; empty when none did.
        failed: whether a pod failed itself, and was not ended by the cluster.
    """

    message: str
    counts: bool
    failed_node: str = ""
    failed: bool = True


def is_whole(observed: Observed) -> bool:
    """Whether a failure of any pod restarts all: the policy says so, and the Jobs were created for it."""
    return restart_policy(observed.spec) == "All" and _is_made_for_restarts(observed)


def restart_of(observed: Observed) -> JobRestart | None:
    """Why all pods must be restarted; None when they need not be, or no restart is left.

    For a stopped job (suspended, or no longer admitted) only a failed Job counts, as it would never run again. Its pods
    are ended by the stop.
    """
    if _has_succeeded(observed):
        return None
    if not _is_made_for_restarts(observed) or any(job.going for job in observed.jobs.values()):
        return None
    verdicts = [job.failure for job in observed.jobs.values() if job.failure]
    whole = restart_policy(observed.spec) == "All"
    if not all(verdict.startswith(BACKOFF_LIMIT_EXCEEDED) for verdict in verdicts) or (
        verdicts and not whole
    ):
        return None  # it exceeded its deadline, or its exit code fails the job
    if is_stopped(observed) and not verdicts:
        return None
    failed = _failed(observed)
    if any(action_of(observed.spec, pod) == "FailJob" for pod in failed if not pod.disrupted):
        return None  # their Job fails by the same rule
    if failed:
        return _after_failure(observed, failed[0])
    if verdicts:
        return _bounded(observed, "a pod failed that is gone", node="")
    lost = _lost(observed)
    return None if lost is None else JobRestart(message=_sentence(observed, lost), counts=False, failed=False)


def is_stopped(observed: Observed) -> bool:
    """Whether no pod of the job may exist now: it is suspended, or waits in the queue."""
    return not observed.was_admitted or observed.spec.run_policy.suspend


def is_exhausted(observed: Observed) -> bool:
    """Whether no restart after a failure is left."""
    return (observed.status.restarts_count_towards_max or 0) >= max_restarts(observed.spec)


def _after_failure(observed: Observed, pod: PodView) -> JobRestart | None:
    where = f" on node {pod.node}" if pod.node else ""
    failed_pod = f"{pod.role.lower()} {pod.index} (pod {pod.name}{where})"
    if pod.disrupted:
        why = f"{failed_pod} was ended by the cluster ({pod.disruption})"
        node = pod.node if pod.disruption in OF_THE_NODE else ""
        return JobRestart(message=_sentence(observed, why), counts=False, failed_node=node, failed=False)
    how = ending_of(pod.failure) if pod.failure is not None else "Failed"
    why = f"{failed_pod} failed with {how}"
    if action_of(observed.spec, pod) == "Ignore":
        return JobRestart(message=_sentence(observed, why), counts=False)
    return _bounded(observed, why, node=pod.node)


def _bounded(observed: Observed, why: str, *, node: str) -> JobRestart | None:
    if is_exhausted(observed):
        return None  # the Job fails by itself
    count, most = (observed.status.restarts_count_towards_max or 0) + 1, max_restarts(observed.spec)
    message = f"{_sentence(observed, why)}, restart {count} of at most {most} before the job fails"
    return JobRestart(message=message, counts=True, failed_node=node)


def _sentence(observed: Observed, why: str) -> str:
    pods = sum(observed.replicas(role) for role in observed.spec.by_role())
    when = "made again when it runs again" if is_stopped(observed) else "restarted"
    return f"{why}; {'its pod is' if pods == 1 else f'all {pods} pods are'} {when}"


def _failed(observed: Observed) -> list[PodView]:
    """The failed pods that the others need, by time of failure: the first failure causes the later ones."""
    needed = [pod for pod in observed.pods if restarts_all(observed.spec, role=pod.role, index=pod.number)]
    return sorted(failed_by_themselves(needed), key=lambda pod: (pod.finished or "~", pod.name))


def _lost(observed: Observed) -> str | None:
    """A sentence about a running pod that disappeared; None when all are there."""
    running = next(
        (condition for condition in observed.status.conditions if condition.type == names.RUNNING), None
    )
    if running is None or running.status != "True":
        return None
    for role, count in _needed(observed):
        pods = {pod.number: pod for pod in newest(observed.pods) if pod.role == role}
        job = observed.job(role)
        if not job.exists or job.suspended or job.finished:
            continue
        # Those that have succeeded may be gone.
        missing = [index for index in range(count) if index not in pods]
        if len(missing) > job.succeeded:
            return f"{role.lower()} {missing[0]} is gone"
        for index in range(count):
            pod = pods.get(index)
            if pod is None or pod.phase in {"Succeeded", "Failed"}:
                continue
            again = observed.spec.elastic is None and pod.created > running.last_transition_time
            if pod.phase == "Pending" or pod.going or again:
                return f"{role.lower()} {index} was deleted"
    return None


def _needed(observed: Observed) -> Sequence[tuple[Role, int]]:
    """The pods that the others need: role, and how many of its first indexes."""
    if restart_policy(observed.spec) == "All":
        return [(role, observed.replicas(role)) for role in observed.spec.by_role()]
    return [("Worker", 1)] if restarts_all(observed.spec, role="Worker", index=0) else []


def _has_succeeded(observed: Observed) -> bool:
    """Whether the deciding pod has succeeded: how the others end does not matter then."""
    roles = observed.spec.by_role()
    leader: Role = next((role for role in LEADERS if role in roles), "Worker")
    if observed.job(leader).complete:
        return True
    if leader == "Worker" and observed.spec.framework == "None":
        return False
    first = [pod for pod in observed.pods if pod.role == leader and pod.number == 0]
    done = any(pod.phase == "Succeeded" or (pod.kept_alive and not any(pod.ended.values())) for pod in first)
    return done or observed.job(leader).first_succeeded


def _is_made_for_restarts(observed: Observed) -> bool:
    return bool(observed.jobs) and all(job.attempt is not None for job in observed.jobs.values())


def is_restarting(observed: Observed) -> bool:
    """Whether all pods were restarted, and do not all run yet."""
    status = observed.status
    return bool(status.restarts) and is_true(status.conditions, names.RESTARTING)


FIRST_PAUSE, LONGEST_PAUSE = 10.0, 360.0
"""Seconds between the starts of a job: at the second restart, doubled with each further one, and the maximum."""


def own_failures(status: TrainingJobStatus) -> int:
    """How many restarts followed a failure of the job itself. A status that an older operator wrote has only the
    restarts that count towards the limit."""
    return max(status.restarts_after_failures or 0, status.restarts_count_towards_max or 0)


def restart_pause(observed: Observed, restart: JobRestart, *, now: str) -> float:
    """Seconds until all pods may be restarted; 0: now. A stopped job has no pause, as its pods wait anyway.

    The first restart is immediate, and so is one after a pod that the cluster ended. Later ones back off like a Job's
    retries, so that a program that fails at its start does not read data and write logs all the time.
    """
    before = own_failures(observed.status)
    starts = [job.start_time for job in observed.jobs.values() if job.start_time]
    if not restart.failed or before < 1 or not starts or is_stopped(observed):
        return 0.0
    apart = min(FIRST_PAUSE * float(1 << min(before - 1, 16)), LONGEST_PAUSE)
    return max(apart - seconds_since(max(starts), now=now), 0.0)
