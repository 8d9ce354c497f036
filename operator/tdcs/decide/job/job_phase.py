"""Whether a TrainingJob may have pods, what it waits for, and its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.api.conditions import (
    CLAIM_LOST,
    CLAIM_REFUSED,
    FILES_FAILED,
    LOAD_FAILED,
    Condition,
    Finding,
    is_loaded,
    is_true,
    shorten,
)
from tdcs.api.dataset import Dataset
from tdcs.api.durations import seconds_between, seconds_since, time_after, to_seconds
from tdcs.api.trainingjob import DatasetUse, Role, TrainingJobSpec
from tdcs.api.trainingjob_status import Consideration, DataMeeting, QueueRecord
from tdcs.decide.cache.wants import seconds_until
from tdcs.decide.job.failure_message import failed
from tdcs.decide.job.failure_policy import cause_of_end, max_restarts
from tdcs.decide.job.job_restart import LEADERS, JobRestart, is_whole
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.pod_admission import GAVE_BACK, Admission, DatasetReadiness, Reason, decide
from tdcs.model.job_pods import newest

ENDING_GRACE = 30.0
"""Seconds for the other workers to exit after worker 0 has succeeded."""

REFUSED_SECONDS = 600.0
"""How long the API server must refuse a job's template in the same words before the job fails."""

NOT_UNDERSTOOD = "it cannot be understood; its own status says which fields are wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether the pods may exist, and why.

    Attributes:
        data: the decision by the datasets alone.
        copies: the copy of each dataset that the job reads, by the dataset's name; empty before it is admitted.
        meetings: where the job and each dataset meet, by the dataset's name.
        considered: the state of the nodes when the pods were placed; None: unchanged from the status.
        passed: how many later jobs were admitted first while this one waited for room.
        growth: what a running elastic job waits for before it gets more workers.
        shortage: how many pods of a gang found no place at the last attempt, and why; empty once they have one.
        queue: Kueue's LocalQueue that decides; empty: the operator's own queue does.
        record: the queue state from which a restarted operator continues.
        restart: why all pods are being restarted; None when they are not.
        nodes: the result of the request for nodes; None: nothing to report.
    """

    admitted: bool
    reason: Reason
    message: str
    data: Admission
    copies: Mapping[str, str] = field(default_factory=dict)
    meetings: Mapping[str, DataMeeting] = field(default_factory=dict)
    considered: Sequence[Consideration] | None = None
    passed: int = 0
    growth: Admission | None = None
    shortage: str = ""
    queue: str = ""
    record: QueueRecord | None = None
    restart: JobRestart | None = None
    nodes: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The result of a job, with the time if known."""

    succeeded: bool
    reason: str
    message: str
    time: str | None = None


def data(observed: Observed, *, now: str, runs: bool | None = None) -> Admission:
    """Whether the datasets and the templates' claims let the pods exist; for a running job, problems of its datasets.

    Args:
        now: the present time.
        runs: whether the job runs; None: as observed.
    """
    if runs is None:
        runs = observed.was_admitted and not observed.spec.run_policy.suspend
    uses = [
        readiness(
            use,
            observed.datasets.get(use.name),
            present=use.name in observed.present,
            deleting=use.name in observed.deleting,
            patience_left=patience_left(use, observed=observed, now=now),
            generation=observed.generations.get(use.name, 0),
            now=now,
        )
        for use in observed.spec.datasets
    ]
    suspended = observed.spec.run_policy.suspend  # its readiness timeout does not advance
    uses = [replace(use, namespace=observed.namespace, until="" if suspended else use.until) for use in uses]
    admission = decide(suspended=False, datasets=uses, runs=runs)
    if admission.admitted and observed.missing_claim:
        return Admission(
            admitted=False, data_ready=False, reason=Reason.NO_CLAIM, message=observed.missing_claim
        )
    before = next(
        (condition for condition in observed.status.conditions if condition.type == names.DATA_READY), None
    )
    if (
        admission.admitted
        and observed.was_admitted
        and before is not None
        and before.reason == Reason.TIMED_OUT
    ):
        # It did start without all its data, whatever was loaded since.
        return replace(admission, reason=Reason.TIMED_OUT, message=before.message)
    return admission


def decision_of(*, observed: Observed, data: Admission, admission: Admission | None = None) -> Decision:
    """Whether the pods may exist. An admitted job stays admitted when its data changes, until the user suspends it.

    Args:
        data: the decision by the datasets.
        admission: the gang queue's decision on a job whose data is ready; None when it need not queue.
    """
    if observed.spec.run_policy.suspend:
        wish = decide(suspended=True, datasets=[])
        return Decision(admitted=False, reason=wish.reason, message=wish.message, data=data)
    if observed.was_admitted:
        before = next(
            condition for condition in observed.status.conditions if condition.type == names.ADMITTED
        )
        kept_reasons = (Reason.FITS, Reason.TIMED_OUT, Reason.KUEUE_ADMITTED)
        reason = next((reason for reason in kept_reasons if reason == before.reason), Reason.READY)
        text = before.message if before.reason == reason else data.message
        if not data.admitted:
            text = f"admitted before, and not taken back; now: {data.message}"
        elif text.startswith("admitted before"):
            text = data.message
        return Decision(admitted=True, reason=reason, message=text, data=data)
    chosen = admission if data.admitted and admission is not None else data
    return Decision(admitted=chosen.admitted, reason=chosen.reason, message=chosen.message, data=data)


def taken_back(*, admission: Admission, data: Admission) -> Decision:
    """The decision on a job whose admission Kueue has withdrawn."""
    return Decision(admitted=False, reason=admission.reason, message=admission.message, data=data)


def gave_back(*, reason: Reason, message: str, data: Admission) -> Decision:
    """The decision on a gang that gives its room back, because some pods have no place or it does not run."""
    return Decision(admitted=False, reason=reason, message=message, data=data)


def says_more(observed: Observed, decision: Decision) -> bool:
    """Whether the status still lacks what was decided: admission or room given back, worker count, queue state. It must
    be written before the pods change."""
    if decision.admitted != observed.was_admitted and (decision.admitted or decision.reason in GAVE_BACK):
        return True
    sized = decision.admitted and observed.workers is not None
    return sized and (observed.workers, decision.record) != (
        observed.status.admitted_workers,
        observed.status.queue,
    )


def is_refused_for_good(observed: Observed, *, message: str, now: str) -> bool:
    """Whether the API server has refused a child of a never admitted job with this message for `REFUSED_SECONDS`.

    A refusal may come from a webhook or policy that is being repaired, so the job does not fail at once.
    """
    condition = next(
        (condition for condition in observed.status.conditions if condition.type == names.ADMITTED), None
    )
    return (
        condition is not None
        and (condition.status, condition.reason, condition.message)
        == ("False", Reason.REFUSED, shorten(message))
        and seconds_between(condition.last_transition_time, now) >= REFUSED_SECONDS
    )


def refused(*, message: str, data: Admission) -> Decision:
    """The decision on a job with a child that the API server refuses for good."""
    return Decision(admitted=False, reason=Reason.REFUSED, message=message, data=data)


def patience_left(use: DatasetUse, *, observed: Observed, now: str) -> float | None:
    """Seconds until a job stops waiting for the required share of a dataset; None: no limit.

    Time spent suspended does not count.
    """
    if use.readiness.timeout is None or not observed.created:
        return None
    waited = seconds_between(observed.created, now) - suspended_seconds(observed, now=now)
    return to_seconds(use.readiness.timeout) - waited


def suspended_seconds(observed: Observed, *, now: str) -> int:
    """Total seconds that the job has been suspended since its creation.

    The status holds the sum of past periods; the condition holds the start of the present one.
    """
    before = observed.status.suspended_seconds or 0
    condition = next(
        (condition for condition in observed.status.conditions if condition.type == names.SUSPENDED), None
    )
    if condition is None or condition.status != "True":
        # A job that was created suspended: from its creation on.
        first = (
            observed.spec.run_policy.suspend
            and condition is None
            and not observed.was_admitted
            and observed.created
        )
        return before + (max(round(seconds_between(observed.created, now)), 0) if first else 0)
    return before + max(round(seconds_between(condition.last_transition_time, now)), 0)


def readiness(
    use: DatasetUse,
    dataset: Dataset | None,
    *,
    present: bool = False,
    deleting: bool = False,
    patience_left: float | None = None,
    generation: int = 0,
    now: str,
) -> DatasetReadiness:
    """One dataset as the admission policy sees it at time `now` (RFC 3339). `generation`: of its spec.

    No share is required of a dataset that is not preloaded, or is loaded as far as it fits: nothing more will be
    loaded, and the job would never start.
    """
    if deleting or dataset is None or dataset.status is None:
        exists = present or deleting or dataset is not None
        why = NOT_UNDERSTOOD if dataset is None else why_not_mounted(dataset, generation=generation)
        return DatasetReadiness(name=use.name, exists=exists, deleting=deleting, why=why)
    start = dataset.spec.preload.start_time
    final = not dataset.spec.preload.enabled or is_loaded(dataset.status.conditions)
    over = patience_left is not None and patience_left <= 0
    mounted = is_true(dataset.status.conditions, names.MOUNTED)
    return DatasetReadiness(
        name=use.name,
        exists=True,
        readable=mounted and bool(dataset.status.claim_name),
        mounted=mounted,
        why=why_not_mounted(dataset, generation=generation),
        lacks_why=_why_not_loaded(dataset, generation=generation),
        # Counted over all copies: replicated on three nodes, the first copy is a third.
        cached_ratio=dataset.status.loaded_ratio,
        required_ratio=0.0 if final else use.readiness.percent / 100,
        waited=use.readiness.timeout or "" if over else "",
        loads_from=start if start is not None and seconds_until(start, now=now) else "",
        until="" if patience_left is None else time_after(now, seconds=patience_left),
    )


def _why_not_loaded(dataset: Dataset, *, generation: int) -> str:
    """The Dataset's own reason why no more of it is loaded than there is; empty when there is none."""
    by_type = _last_conditions(dataset)
    placed, loaded = by_type.get(names.PLACED), by_type.get(names.LOADED)
    if placed is not None and placed.status == "False":
        return _quoted(placed, dataset, generation=generation)
    if loaded is not None and loaded.status == "False" and loaded.reason in {FILES_FAILED, LOAD_FAILED}:
        return _quoted(loaded, dataset, generation=generation)
    return ""


def _last_conditions(dataset: Dataset) -> dict[str, Condition]:
    """What the operator's last look concluded, by type: it keeps conditions of which a later look says nothing."""
    if dataset.status is None:
        return {}
    observed = dataset.status.observed_generation
    return {
        condition.type: condition
        for condition in dataset.status.conditions
        if condition.observed_generation >= observed
    }


def _quoted(condition: Condition, dataset: Dataset, *, generation: int) -> str:
    """What a condition gives as the reason; one of an older spec is not the reason any more."""
    if dataset.status is None or dataset.status.observed_generation < generation:
        return "its spec has changed, and the operator has not looked at it since"
    return f"{condition.reason}: {condition.message}".rstrip(": ")


def why_not_mounted(dataset: Dataset, *, generation: int = 0) -> str:
    """The Dataset's own reason why it cannot be read; empty when it can, or gives none. `generation`: of its spec."""
    if dataset.status is None:
        return "the operator has not looked at it yet"
    conditions = _last_conditions(dataset)
    if is_true(dataset.status.conditions, names.MOUNTED):
        if dataset.status.claim_name:
            return ""
        ready = conditions.get(names.READY)
        if ready is not None and ready.reason in {CLAIM_LOST, CLAIM_REFUSED}:
            return _quoted(ready, dataset, generation=generation)
        return "its volume is not bound yet (kubectl get pvc)"
    condition = conditions.get(names.MOUNTED) or conditions.get(names.READY)
    return "" if condition is None else _quoted(condition, dataset, generation=generation)


def deciding_role(spec: TrainingJobSpec) -> Role:
    roles = spec.by_role()
    return next((role for role in LEADERS if role in roles), "Worker")


def outcome(observed: Observed, *, now: str) -> JobOutcome | None:
    """How the job ended; None when it has not.

    As in Kubeflow, the chief (or launcher) decides, otherwise worker 0; the other workers then get `ENDING_GRACE` to
    exit. Without a framework the workers are independent, and all must succeed. A role's Job that fails for good fails
    the whole job; the caller checks first whether all pods are restarted instead (`restart_of`).
    """
    role = deciding_role(observed.spec)
    decider = observed.job(role)
    if decider.complete:
        return JobOutcome(
            succeeded=True, reason="Completed", message=_done(observed, role), time=decider.completion_time
        )
    if _pods_succeeded(observed, role) and not decider.failure:
        text = f"{_done(observed, role)}; containers that no template names still ran, and are ended"
        return JobOutcome(succeeded=True, reason="Completed", message=text)
    if worker_0_decides(observed.spec) and decider.first_succeeded:
        grace_left = ending_left(observed, now=now)
        if grace_left <= 0 or decider.failure:
            text = "worker 0 succeeded, and so did the job"
            return JobOutcome(succeeded=True, reason="Completed", message=text)
    for job_role, job in observed.jobs.items():
        if job.failure:
            text = failed(
                role=job_role,
                verdict=cause_of_end(observed.spec, role=job_role, verdict=job.failure),
                limit=max_restarts(observed.spec),
                restarts=observed.status.restarts or 0 if is_whole(observed) else None,
                pods=[pod for pod in observed.pods if pod.role == job_role],
                namespace=observed.namespace,
                conditions=observed.status.conditions,
            )
            return JobOutcome(succeeded=False, reason="JobFailed", message=text, time=job.completion_time)
    return None


def _pods_succeeded(observed: Observed, role: Role) -> bool:
    """Whether all deciding pods have succeeded, apart from injected containers (`left_sidecars`)."""
    kept_alive = [pod for pod in observed.pods if pod.kept_alive]
    if not kept_alive or not any(pod.role == role for pod in kept_alive):
        return False
    pods = {pod.number: pod for pod in newest(observed.pods) if pod.role == role}
    deciding = [0] if role != "Worker" or worker_0_decides(observed.spec) else range(observed.replicas(role))
    return all(index in pods and pods[index].phase == "Succeeded" for index in deciding)


def worker_0_decides(spec: TrainingJobSpec) -> bool:
    """Whether the job ends with worker 0, and the other workers are then stopped."""
    return (
        deciding_role(spec) == "Worker"
        and spec.framework != "None"
        and spec.run_policy.clean_pod_policy != "None"
    )


def ending_left(observed: Observed, *, now: str) -> float:
    """Seconds left for the other workers to exit after worker 0 has succeeded."""
    first = next((pod for pod in newest(observed.pods) if pod.role == "Worker" and pod.index == "0"), None)
    if first is None or not first.finished:
        return 0.0
    return ENDING_GRACE - seconds_since(first.finished, now=now)


def _done(observed: Observed, role: Role) -> str:
    if role != "Worker":
        return f"the {role.lower()} succeeded"
    workers = observed.replicas("Worker")
    return f"all {workers} workers succeeded" if workers > 1 else "the worker succeeded"


def seconds_to_live(ttl: float | None, *, ended: str | None, now: str) -> float | None:
    """Seconds until an ended job is deleted (`spec.runPolicy.ttlSecondsAfterFinished`); zero or less: now. None when it
    has not ended, or is kept."""
    return None if ttl is None or not ended else ttl - seconds_between(ended, now)
