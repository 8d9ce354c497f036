"""State, reason and message of a TrainingJob: whether its pods run, what holds them up, which one failed."""

from dataclasses import dataclass, replace

from tdcs.api import names
from tdcs.api.conditions import POD_FAILED, POD_LOST, Finding, finding
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import JobState, ReplicaStatus
from tdcs.decide.job.failure_message import has_log, log_command
from tdcs.decide.job.failure_policy import max_restarts, restart_policy, restarts_never_in_place
from tdcs.decide.job.job_phase import Decision, JobOutcome
from tdcs.decide.job.job_restart import is_restarting, is_whole
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.own_failures import failed_by_themselves
from tdcs.decide.job.pod_remedy import remedy
from tdcs.decide.queue.pod_admission import GAVE_BACK, Reason
from tdcs.model.job_pods import PodView, newest, problem_of

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
"""Reasons of a job that waits in the queue, not for its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The conditions summed up as state, reason and message, as `kubectl get` shows them."""

    state: JobState
    reason: str
    message: str


def counts(observed: Observed, role: Role) -> ReplicaStatus:
    """Counts of a role's pods. The pods are newer than the Job controller's counts; only the latter include deleted
    pods."""
    job = observed.job(role)
    pods = [pod for pod in observed.pods if pod.role == role]
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


def replica_statuses(observed: Observed) -> list[ReplicaStatus]:
    return [counts(observed, role) for role in observed.spec.by_role()]


def headline(observed: Observed, *, decision: Decision, outcome: JobOutcome | None) -> Headline:
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
    run_state = running(observed)
    if run_state.status == "True":
        more = f"; {decision.growth.message}" if decision.growth is not None else ""
        return Headline(state="Running", reason="", message=f"{run_state.message}{more}")
    failed = last_failure(observed)
    if failed is not None and failed.is_final:
        return Headline(state=_state_before(observed), reason=POD_FAILED, message=failed.text)
    if failed is not None and run_state.reason == "PodsStarting":
        return Headline(state="Restarting", reason=POD_FAILED, message=failed.text)
    if decision.shortage and run_state.reason == "PodsStarting":
        text = f"{run_state.message}; it is tried again: {decision.shortage} the last time"
        return Headline(state="Starting", reason=Reason.REQUEUED.value, message=text)
    restart = restarting(observed)
    if restart is not None and run_state.reason == "PodsStarting":
        return Headline(state="Restarting", reason=restart.reason, message=restart.message)
    again = failed is not None or restart is not None
    return Headline(
        state="Restarting" if again else "Starting", reason=run_state.reason, message=run_state.message
    )


def restarting(observed: Observed) -> Finding | None:
    """Why all pods were restarted, until all run; None when they were not."""
    if not is_restarting(observed):
        return None
    condition = next(
        condition for condition in observed.status.conditions if condition.type == names.RESTARTING
    )
    return finding(names.RESTARTING, True, condition.reason, condition.message)


def _state_before(observed: Observed) -> JobState:
    """The state of a job that is about to fail: Running while a pod is up, else what it was before."""
    if any(counts(observed, role).ready for role in observed.spec.by_role()):
        return "Running"
    previous_state = observed.status.state
    return previous_state if previous_state in ("Running", "Restarting") else "Starting"


def running(observed: Observed) -> Finding:
    """Condition Running of an admitted job that has not ended: all pods are ready, or which pod is held up and why."""
    specs = observed.spec.by_role()
    counts_by_role = {role: counts(observed, role) for role in specs}
    total = sum(observed.replicas(role) for role in specs)
    ended = sum(min(count.succeeded, observed.replicas(role)) for role, count in counts_by_role.items())
    up = sum(
        min((count.ready or 0) + count.succeeded, observed.replicas(role))
        for role, count in counts_by_role.items()
    )
    text = f"{up - ended} of {total} pods run{f', {ended} succeeded' if ended else ''}"
    if up >= total:
        alone = "its pod has succeeded" if ended else "its pod is ready"
        return finding(names.RUNNING, True, "PodsReady", alone if total == 1 else text)
    text = "its pod does not run yet" if total == 1 else text
    held = problem_of(newest(observed.pods))
    if held is None and observed.unmade is not None:
        return finding(names.RUNNING, False, observed.unmade.problem.reason, f"{text}; {observed.unmade}")
    if held is None:
        return finding(names.RUNNING, False, "PodsStarting", text)
    pod, problem, alike = held
    where = f" on node {pod.node}" if pod.node else ""
    more = f" (and {alike - 1} more with this reason)" if alike > 1 else ""
    text = f"{text}; {pod.name}{where}{more}: {problem}"
    todo = remedy(problem.reason)
    if problem.reason == "CrashLoopBackOff":
        todo = f"see {log_command(pod, problem, namespace=observed.namespace, previous=True)}"
    return finding(names.RUNNING, False, problem.reason, f"{text}; {todo}" if todo else text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailure:
    """The message about a failed pod. `is_final`: no retry is left, so the job fails."""

    text: str
    is_final: bool = False


def last_failure(observed: Observed) -> PodFailure | None:
    """The newest failed pod whose replacement does not run yet; None when there is none."""
    up = {(pod.role, pod.index) for pod in newest(observed.pods) if pod.ready or pod.phase == "Succeeded"}
    without = [pod for pod in observed.pods if pod.failure and (pod.role, pod.index) not in up]
    failed = failed_by_themselves(without)
    if not failed:
        return None
    pod = max(failed, key=lambda pod: (pod.finished, pod.created, pod.name))
    failure = _of_failed(observed, pod)
    if pod.failure is None or not has_log(pod, pod.failure):
        return failure
    see = log_command(pod, pod.failure, namespace=observed.namespace)
    return replace(failure, text=f"{failure.text}; see {see}")


def _of_failed(observed: Observed, pod: PodView) -> PodFailure:
    """What comes of a failed pod."""
    limit, restart = max_restarts(observed.spec), restart_policy(observed.spec)
    text = f"{pod.name} on node {pod.node or 'unknown'} failed: {pod.failure}"
    if restart == "None":
        none = "nothing is restarted (runPolicy.failurePolicy.restart None), so the job fails"
        return PodFailure(text=f"{text}; {none}", is_final=True)
    if is_whole(observed):
        done = observed.status.restarts_count_towards_max or 0
        cause = "no restart is left" if done >= limit else "a restart does not help (onExitCodes)"
        return PodFailure(
            text=f"{text}; {cause} ({done} of at most {limit}), so the job fails", is_final=True
        )
    if pod.disrupted and restarts_never_in_place(observed.spec.by_role()[pod.role].template):
        return PodFailure(text=f"{text}; it is made again, which counts as no retry")
    retries = max(_failures(observed, pod.role), 1)
    if retries > limit and pod in newest(observed.pods):
        return PodFailure(
            text=f"{text}; no retry is left (at most {limit}, see runPolicy.failurePolicy), so the job fails",
            is_final=True,
        )
    return PodFailure(text=f"{text}; retry {min(retries, limit)} of at most {limit} before the job fails")


def _failures(observed: Observed, role: Role) -> int:
    """How many failed pods of a role count towards its Job's backoffLimit."""
    ignores = restarts_never_in_place(observed.spec.by_role()[role].template)
    failed = sum(
        pod.role == role and pod.phase == "Failed" and not (ignores and pod.disrupted)
        for pod in observed.pods
    )
    return max(observed.job(role).failed, failed)
