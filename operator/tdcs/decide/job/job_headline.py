"""How a TrainingJob stands, in a word and a sentence: do its pods run, what holds them up, did one fail."""

from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import POD_FAILED, POD_LOST, Finding, finding
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import JobState, ReplicaStatus
from tdcs.decide.job.failure_policy import max_restarts, restart_policy, restarts_never_in_place
from tdcs.decide.job.job_phase import Decision, JobOutcome
from tdcs.decide.job.job_restart import is_restarting, is_whole
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.own_failures import failed_by_themselves
from tdcs.decide.job.pod_remedy import remedy
from tdcs.decide.queue.pod_admission import GAVE_BACK, Reason
from tdcs.model.job_pods import newest, problem_of

IN_THE_QUEUE = frozenset(
    {
        Reason.NO_ROOM,
        Reason.BEHIND,
        Reason.NEVER,
        Reason.NO_MATCH,
        Reason.AWAITS_DATA,
        Reason.NO_PRIORITY,
        *GAVE_BACK,
        Reason.QUOTA,
        Reason.AT_LIMIT,
        Reason.IN_KUEUE,
    }
)
"""Reasons of a job that waits for its turn and for room, rather than for its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The conditions in a word, with the reason and a sentence: what `kubectl get` shows."""

    state: JobState
    reason: str
    message: str


def counts(seen: Observed, role: Role) -> ReplicaStatus:
    """The pods of a role. What the pods themselves say is newer than the Job controller's count of them, which
    alone remembers those that are gone."""
    job = seen.job(role)
    pods = [pod for pod in seen.pods if pod.role == role]
    if not pods:
        return ReplicaStatus(
            name=role, active=job.active, ready=job.ready, succeeded=job.succeeded, failed=job.failed
        )
    current = [pod for pod in newest(pods) if not pod.going]
    return ReplicaStatus(
        name=role,
        active=sum(pod.phase in {"Pending", "Running"} for pod in current),
        ready=sum(pod.ready and pod.phase == "Running" for pod in current),
        succeeded=max(job.succeeded, sum(pod.phase == "Succeeded" for pod in current)),
        failed=max(job.failed, sum(pod.phase == "Failed" for pod in pods)),
    )


def replica_statuses(seen: Observed) -> list[ReplicaStatus]:
    return [counts(seen, role) for role in seen.spec.by_role()]


def headline(seen: Observed, *, decision: Decision, outcome: JobOutcome | None) -> Headline:
    if outcome is not None:
        state: JobState = "Succeeded" if outcome.succeeded else "Failed"
        return Headline(state=state, reason=outcome.reason, message=outcome.message)
    if not decision.admitted:
        states: dict[Reason, JobState] = {
            Reason.SUSPENDED: "Suspended",
            **dict.fromkeys(IN_THE_QUEUE, "Queued"),
        }
        state = states.get(decision.reason, "Waiting")
        return Headline(state=state, reason=decision.reason.value, message=decision.message)
    if decision.restart is not None:
        reason = POD_FAILED if decision.restart.failed else POD_LOST
        return Headline(state="Restarting", reason=reason, message=decision.restart.message)
    found = running(seen)
    if found.status == "True":
        more = f"; {decision.growth.message}" if decision.growth is not None else ""
        return Headline(state="Running", reason="", message=f"{found.message}{more}")
    failed = last_failure(seen)
    if failed is not None and failed.is_final:
        return Headline(state=_state_before(seen), reason=POD_FAILED, message=failed.text)
    if failed is not None and found.reason == "PodsStarting":
        return Headline(state="Restarting", reason=POD_FAILED, message=failed.text)
    if decision.shortage and found.reason == "PodsStarting":
        text = f"{found.message}; it is tried again: {decision.shortage} the last time"
        return Headline(state="Starting", reason=Reason.REQUEUED.value, message=text)
    told = restarting(seen)
    if told is not None and found.reason == "PodsStarting":
        return Headline(state="Restarting", reason=told.reason, message=told.message)
    again = failed is not None or told is not None
    return Headline(state="Restarting" if again else "Starting", reason=found.reason, message=found.message)


def restarting(seen: Observed) -> Finding | None:
    """Why all pods were restarted, until all run; None when they were not."""
    if not is_restarting(seen):
        return None
    known = next(each for each in seen.known.conditions if each.type == names.RESTARTING)
    return finding(names.RESTARTING, True, known.reason, known.message)


def _state_before(seen: Observed) -> JobState:
    """The state of a job that is about to fail: Running while a pod is up, else what it was before."""
    if any(counts(seen, role).ready for role in seen.spec.by_role()):
        return "Running"
    known = seen.known.state
    return known if known in ("Running", "Restarting") else "Starting"


def running(seen: Observed) -> Finding:
    """Condition Running of a job that was admitted and has not ended: all pods are ready, or which are held up
    and why, in the words of whoever holds them up."""
    specs = seen.spec.by_role()
    found = {role: counts(seen, role) for role in specs}
    wanted = sum(seen.replicas(role) for role in specs)
    ended = sum(min(count.succeeded, seen.replicas(role)) for role, count in found.items())
    up = sum(min((count.ready or 0) + count.succeeded, seen.replicas(role)) for role, count in found.items())
    text = f"{up - ended} of {wanted} pods run{f', {ended} succeeded' if ended else ''}"
    if up >= wanted:
        alone = "its pod has succeeded" if ended else "its pod is ready"
        return finding(names.RUNNING, True, "PodsReady", alone if wanted == 1 else text)
    text = "its pod does not run yet" if wanted == 1 else text
    held = problem_of(newest(seen.pods))
    if held is None and seen.unmade is not None:
        return finding(names.RUNNING, False, seen.unmade.problem.reason, f"{text}; {seen.unmade}")
    if held is None:
        return finding(names.RUNNING, False, "PodsStarting", text)
    pod, problem, alike = held
    where = f" on node {pod.node}" if pod.node else ""
    more = f" (and {alike - 1} more with this reason)" if alike > 1 else ""
    text = f"{text}; {pod.name}{where}{more}: {problem}"
    todo = remedy(problem.reason)
    return finding(names.RUNNING, False, problem.reason, f"{text}; {todo}" if todo else text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailure:
    """A pod that failed, as a sentence. `is_final`: no retry is left, so that the job fails by it."""

    text: str
    is_final: bool = False


def last_failure(seen: Observed) -> PodFailure | None:
    """The newest failed pod whose replacement does not run yet; None when there is none."""
    up = {(pod.role, pod.index) for pod in newest(seen.pods) if pod.ready or pod.phase == "Succeeded"}
    without = [pod for pod in seen.pods if pod.failure and (pod.role, pod.index) not in up]
    failed = failed_by_themselves(without)
    if not failed:
        return None
    pod = max(failed, key=lambda pod: (pod.finished, pod.created, pod.name))
    limit, restart = max_restarts(seen.spec), restart_policy(seen.spec)
    text = f"{pod.name} on node {pod.node or 'unknown'} failed: {pod.failure}"
    if restart == "None":
        none = "nothing is restarted (runPolicy.failurePolicy.restart None), so the job fails"
        return PodFailure(text=f"{text}; {none}", is_final=True)
    if is_whole(seen):
        done = seen.known.restarts_count_towards_max or 0
        left = "no restart is left" if done >= limit else "a restart does not help (onExitCodes)"
        return PodFailure(text=f"{text}; {left} ({done} of at most {limit}), so the job fails", is_final=True)
    if pod.disrupted and restarts_never_in_place(seen.spec.by_role()[pod.role].template):
        return PodFailure(text=f"{text}; it is made anew, which counts as no retry")
    retries = max(_failures(seen, pod.role), 1)
    if retries > limit and pod in newest(seen.pods):
        return PodFailure(
            text=f"{text}; no retry is left (at most {limit}, see runPolicy.failurePolicy), so the job fails",
            is_final=True,
        )
    return PodFailure(text=f"{text}; retry {min(retries, limit)} of at most {limit} before the job fails")


def _failures(seen: Observed, role: Role) -> int:
    """How many pods of a role have failed in a way that counts to its Job's backoffLimit."""
    ignores = restarts_never_in_place(seen.spec.by_role()[role].template)
    there = sum(
        pod.role == role and pod.phase == "Failed" and not (ignores and pod.disrupted) for pod in seen.pods
    )
    return max(seen.job(role).failed, there)
