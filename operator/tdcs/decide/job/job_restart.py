"""Whether all pods of a job are restarted: one of them failed, was evicted or vanished, and the others need it.

The status says how often that happened, and every Job and pod carries the number with which it was made: Jobs of an
earlier number are deleted and made anew, whoever finds them, so an operator may be killed at any moment.
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
"""Roles of one pod each that decide how a job ends that has one of them."""

OF_THE_NODE = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"})
"""Disruptions that are the node's: it is away, or under pressure. Others want its room (an eviction, a preemption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestart:
    """All pods of a job are restarted.

    Attributes:
        message: why, as a sentence.
        counts: whether it counts towards the most restarts that the job may have.
        failed_node: the node to blame; empty when it is none.
        failed: whether a pod failed by itself, rather than by the cluster.
    """

    message: str
    counts: bool
    failed_node: str = ""
    failed: bool = True


def is_whole(seen: Observed) -> bool:
    """Whether a failure of any pod restarts all: as the policy says, and for Jobs that were made for it."""
    return restart_policy(seen.spec) == "All" and _is_made_for_restarts(seen)


def restart_of(seen: Observed) -> JobRestart | None:
    """Why all pods are to be restarted; None when they are not, or not any more.

    Of a job that is stopped (suspended, or out of its place again) only a Job that has failed is of interest: it would
    never run again, and pods that end now are ended by the stop.
    """
    if _has_succeeded(seen):
        return None
    if not _is_made_for_restarts(seen) or any(job.going for job in seen.jobs.values()):
        return None
    verdicts = [job.failure for job in seen.jobs.values() if job.failure]
    whole = restart_policy(seen.spec) == "All"
    if not all(each.startswith(BACKOFF_LIMIT_EXCEEDED) for each in verdicts) or (verdicts and not whole):
        return None  # it took too long, or its exit code says that no restart helps
    if is_stopped(seen) and not verdicts:
        return None
    failed = _failed(seen)
    if any(action_of(seen.spec, pod) == "FailJob" for pod in failed if not pod.disrupted):
        return None  # their Job fails by the same rule
    if failed:
        return _after_failure(seen, failed[0])
    if verdicts:
        return _bounded(seen, "a pod failed that is gone", node="")
    lost = _lost(seen)
    return None if lost is None else JobRestart(message=_sentence(seen, lost), counts=False, failed=False)


def is_stopped(seen: Observed) -> bool:
    """Whether no pod of the job may exist now: it is suspended, or waits for its turn, be it once more."""
    return not seen.was_admitted or seen.spec.run_policy.suspend


def is_exhausted(seen: Observed) -> bool:
    """Whether no restart after a failure is left."""
    return (seen.known.restarts_count_towards_max or 0) >= max_restarts(seen.spec)


def _after_failure(seen: Observed, pod: PodView) -> JobRestart | None:
    where = f" on node {pod.node}" if pod.node else ""
    who = f"{pod.role.lower()} {pod.index} (pod {pod.name}{where})"
    if pod.disrupted:
        why = f"{who} was ended by the cluster ({pod.disruption})"
        node = pod.node if pod.disruption in OF_THE_NODE else ""
        return JobRestart(message=_sentence(seen, why), counts=False, failed_node=node, failed=False)
    how = ending_of(pod.failure) if pod.failure is not None else "Failed"
    why = f"{who} failed with {how}"
    if action_of(seen.spec, pod) == "Ignore":
        return JobRestart(message=_sentence(seen, why), counts=False)
    return _bounded(seen, why, node=pod.node)


def _bounded(seen: Observed, why: str, *, node: str) -> JobRestart | None:
    if is_exhausted(seen):
        return None  # the Job fails by itself
    count, most = (seen.known.restarts_count_towards_max or 0) + 1, max_restarts(seen.spec)
    message = f"{_sentence(seen, why)}, restart {count} of at most {most} before the job fails"
    return JobRestart(message=message, counts=True, failed_node=node)


def _sentence(seen: Observed, why: str) -> str:
    pods = sum(seen.replicas(role) for role in seen.spec.by_role())
    when = "made anew when it runs again" if is_stopped(seen) else "restarted"
    return f"{why}; {'its pod is' if pods == 1 else f'all {pods} pods are'} {when}"


def _failed(seen: Observed) -> list[PodView]:
    """The failed pods without which the others cannot go on, the one that failed first at the head: what fails after it
    fails by it."""
    needed = [pod for pod in seen.pods if restarts_all(seen.spec, role=pod.role, index=pod.number)]
    return sorted(failed_by_themselves(needed), key=lambda pod: (pod.finished or "~", pod.name))


def _lost(seen: Observed) -> str | None:
    """Which pod of a job vanished that had been running, as a sentence; None when none has."""
    running = next((each for each in seen.known.conditions if each.type == names.RUNNING), None)
    if running is None or running.status != "True":
        return None
    for role, count in _needed(seen):
        pods = {pod.number: pod for pod in newest(seen.pods) if pod.role == role}
        job = seen.job(role)
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
            anew = seen.spec.elastic is None and pod.created > running.last_transition_time
            if pod.phase == "Pending" or pod.going or anew:
                return f"{role.lower()} {index} was deleted"
    return None


def _needed(seen: Observed) -> Sequence[tuple[Role, int]]:
    """The pods that the others cannot do without, as the first ones of each role."""
    if restart_policy(seen.spec) == "All":
        return [(role, seen.replicas(role)) for role in seen.spec.by_role()]
    return [("Worker", 1)] if restarts_all(seen.spec, role="Worker", index=0) else []


def _has_succeeded(seen: Observed) -> bool:
    """Whether the pod that decides how the job ends has succeeded: the others may end as they like."""
    roles = seen.spec.by_role()
    leader: Role = next((each for each in LEADERS if each in roles), "Worker")
    if seen.job(leader).complete:
        return True
    if leader == "Worker" and seen.spec.framework == "None":
        return False
    first = [pod for pod in seen.pods if pod.role == leader and pod.number == 0]
    done = any(pod.phase == "Succeeded" or (pod.kept_alive and not any(pod.ended.values())) for pod in first)
    return done or seen.job(leader).first_succeeded


def _is_made_for_restarts(seen: Observed) -> bool:
    return bool(seen.jobs) and all(job.attempt is not None for job in seen.jobs.values())


def is_restarting(seen: Observed) -> bool:
    """Whether all pods were restarted, and do not all run yet."""
    known = seen.known
    return bool(known.restarts) and is_true(known.conditions, names.RESTARTING)


FIRST_PAUSE, LONGEST_PAUSE = 10.0, 360.0
"""Seconds between the starts of a job that is restarted the second time, and at most; in between they double."""


def own_failures(known: TrainingJobStatus) -> int:
    """How many restarts followed a failure of the job's own; of a job that an earlier operator restarted, those that
    count."""
    return max(known.restarts_after_failures or 0, known.restarts_count_towards_max or 0)


def restart_pause(seen: Observed, restart: JobRestart, *, now: str) -> float:
    """Seconds until all pods may be restarted; 0: now, as of a job that is stopped, whose pods wait anyway.

    The first restart is made at once, and so is one after a pod that the cluster took. Later ones are at least so far
    apart as a Job's retries are: a program that fails when it starts would else read its data and write its logs all
    the time.
    """
    before = own_failures(seen.known)
    starts = [job.start_time for job in seen.jobs.values() if job.start_time]
    if not restart.failed or before < 1 or not starts or is_stopped(seen):
        return 0.0
    apart = min(FIRST_PAUSE * float(1 << min(before - 1, 16)), LONGEST_PAUSE)
    return max(apart - seconds_since(max(starts), now=now), 0.0)
