"""What a TrainingJob waits for, and how it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.api.conditions import CLAIM_LOST, CLAIM_REFUSED, Finding, is_loaded, is_true, shorten
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
"""Seconds that the other workers get to end by themselves, once worker 0 has succeeded."""

REFUSED_SECONDS = 600.0
"""How long the API server must refuse a job's template in the same words before the job fails."""

NOT_UNDERSTOOD = "it cannot be understood; its own status says which fields are wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether the pods may exist, and why.

    Attributes:
        data: what the datasets alone say.
        copies: the copy of each dataset that the job reads, by the dataset's name; empty before it is admitted.
        meetings: where the job and each dataset meet, by the dataset's name.
        considered: what nodes had when its pods were placed; None: as its status has it.
        passed: how many later jobs were admitted before it, while it waited for room.
        growth: what an elastic job that runs waits for before it gets more workers.
        shortage: how many pods of a gang found no place when it was tried last, and why; empty once they have.
        queue: the LocalQueue of Kueue that decides; empty: the own queue does.
        record: what an operator that starts goes on from.
        restart: why all pods are being restarted; None when they are not.
        nodes: what came of the nodes that it asks for; None: nothing is to be said.
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
    """How the job ended, and when if that is known."""

    succeeded: bool
    reason: str
    message: str
    time: str | None = None


def data(seen: Observed, *, now: str, runs: bool | None = None) -> Admission:
    """Whether the datasets, and the claims of the templates, let the pods exist; of a job that runs, what is the matter
    with the datasets.

    Args:
        now: the time.
        runs: whether the job runs; left out, as it was observed.
    """
    if runs is None:
        runs = seen.was_admitted and not seen.spec.run_policy.suspend
    uses = [
        readiness(
            use,
            seen.datasets.get(use.name),
            present=use.name in seen.present,
            deleting=use.name in seen.deleting,
            patience_left=patience_left(use, seen=seen, now=now),
            now=now,
        )
        for use in seen.spec.datasets
    ]
    suspended = seen.spec.run_policy.suspend  # its time stands still
    uses = [replace(use, namespace=seen.namespace, until="" if suspended else use.until) for use in uses]
    found = decide(suspended=False, datasets=uses, runs=runs)
    if found.admitted and seen.missing_claim:
        return Admission(admitted=False, data_ready=False, reason=Reason.NO_CLAIM, message=seen.missing_claim)
    before = next((one for one in seen.known.conditions if one.type == names.DATA_READY), None)
    if found.admitted and seen.was_admitted and before is not None and before.reason == Reason.TIMED_OUT:
        # How it started stays true, whatever was loaded since.
        return replace(found, reason=Reason.TIMED_OUT, message=before.message)
    return found


def decision_of(*, seen: Observed, data: Admission, admission: Admission | None = None) -> Decision:
    """Whether the pods may exist. A job that was admitted stays in: its data may move, the user's wish may not.

    Args:
        data: what the datasets say.
        admission: what the gang queue says of a job whose data is ready; None when it need not queue.
    """
    if seen.spec.run_policy.suspend:
        wish = decide(suspended=True, datasets=[])
        return Decision(admitted=False, reason=wish.reason, message=wish.message, data=data)
    if seen.was_admitted:
        before = next(found for found in seen.known.conditions if found.type == names.ADMITTED)
        kept = (Reason.FITS, Reason.TIMED_OUT, Reason.KUEUE_ADMITTED)
        reason = next((reason for reason in kept if reason == before.reason), Reason.READY)
        text = before.message if before.reason == reason else data.message
        if not data.admitted:
            text = f"admitted before, and not taken back; now: {data.message}"
        elif text.startswith("admitted before"):
            text = data.message
        return Decision(admitted=True, reason=reason, message=text, data=data)
    chosen = admission if data.admitted and admission is not None else data
    return Decision(admitted=chosen.admitted, reason=chosen.reason, message=chosen.message, data=data)


def taken_back(*, admission: Admission, data: Admission) -> Decision:
    """The decision on a job that Kueue admitted before and does not any more."""
    return Decision(admitted=False, reason=admission.reason, message=admission.message, data=data)


def gave_back(*, reason: Reason, message: str, data: Admission) -> Decision:
    """The decision on a gang that did not find all its places, or does not run there, and frees those that it has."""
    return Decision(admitted=False, reason=reason, message=message, data=data)


def says_more(seen: Observed, decision: Decision) -> bool:
    """Whether the status does not say yet what was decided: that a job was admitted or gave its room back, with how
    many workers, and what the queue goes on from. It has to say so before the pods change."""
    if decision.admitted != seen.was_admitted and (decision.admitted or decision.reason in GAVE_BACK):
        return True
    sized = decision.admitted and seen.workers is not None
    return sized and (seen.workers, decision.record) != (seen.known.admitted_workers, seen.known.queue)


def is_refused_for_good(seen: Observed, *, message: str, now: str) -> bool:
    """Whether a job that never was admitted has been refused a child with these words for `REFUSED_SECONDS`.

    The API server checks what webhooks and policies have made of a child: that may be mended meanwhile.
    """
    known = next((each for each in seen.known.conditions if each.type == names.ADMITTED), None)
    return (
        known is not None
        and (known.status, known.reason, known.message) == ("False", Reason.REFUSED, shorten(message))
        and seconds_between(known.last_transition_time, now) >= REFUSED_SECONDS
    )


def refused(*, message: str, data: Admission) -> Decision:
    """The decision on a job that can never have one of its children."""
    return Decision(admitted=False, reason=Reason.REFUSED, message=message, data=data)


def patience_left(use: DatasetUse, *, seen: Observed, now: str) -> float | None:
    """Seconds until a job no longer waits for the asked share of a dataset; None: it waits for ever.

    The time that the job was suspended does not count.
    """
    if use.readiness.timeout is None or not seen.created:
        return None
    waited = seconds_between(seen.created, now) - suspended_seconds(seen, now=now)
    return to_seconds(use.readiness.timeout) - waited


def suspended_seconds(seen: Observed, *, now: str) -> int:
    """How long the job has been suspended in all since it was created.

    The status has the sum of the periods that are over; the condition says since when the present one lasts.
    """
    before = seen.known.suspended_seconds or 0
    found = next((one for one in seen.known.conditions if one.type == names.SUSPENDED), None)
    if found is None or found.status != "True":
        # A job that was created suspended: from its creation on.
        first = seen.spec.run_policy.suspend and found is None and not seen.was_admitted and seen.created
        return before + (max(round(seconds_between(seen.created, now)), 0) if first else 0)
    return before + max(round(seconds_between(found.last_transition_time, now)), 0)


def readiness(
    use: DatasetUse,
    dataset: Dataset | None,
    *,
    present: bool = False,
    deleting: bool = False,
    patience_left: float | None = None,
    now: str,
) -> DatasetReadiness:
    """One dataset as the admission policy sees it at a time (RFC 3339).

    Nothing more will come of a dataset that is not preloaded, or that is loaded as far as it fits: it is
    asked for no share, for else the job would wait for ever.
    """
    if deleting or dataset is None or dataset.status is None:
        found = present or deleting or dataset is not None
        why = NOT_UNDERSTOOD if dataset is None else why_not_mounted(dataset)
        return DatasetReadiness(name=use.name, exists=found, deleting=deleting, why=why)
    start = dataset.spec.preload.start_time
    final = not dataset.spec.preload.enabled or is_loaded(dataset.status.conditions)
    over = patience_left is not None and patience_left <= 0
    mounted = is_true(dataset.status.conditions, names.MOUNTED)
    return DatasetReadiness(
        name=use.name,
        exists=True,
        readable=mounted and bool(dataset.status.claim_name),
        mounted=mounted,
        why=why_not_mounted(dataset),
        # Every wanted copy of a byte counts: replicated on three nodes, a third of it is there after the first.
        cached_ratio=dataset.status.loaded_ratio,
        required_ratio=0.0 if final else use.readiness.percent / 100,
        waited=use.readiness.timeout or "" if over else "",
        loads_from=start if start is not None and seconds_until(start, now=now) else "",
        until="" if patience_left is None else time_after(now, seconds=patience_left),
    )


def why_not_mounted(dataset: Dataset) -> str:
    """What the Dataset itself says of why it cannot be read; empty when it can, or says nothing."""
    if dataset.status is None:
        return "the operator has not looked at it yet"
    conditions = {condition.type: condition for condition in dataset.status.conditions}
    if is_true(dataset.status.conditions, names.MOUNTED):
        if dataset.status.claim_name:
            return ""
        ready = conditions.get(names.READY)
        if ready is not None and ready.reason in {CLAIM_LOST, CLAIM_REFUSED}:
            return f"{ready.reason}: {ready.message}"
        return "its volume is not bound yet (kubectl get pvc)"
    found = conditions.get(names.MOUNTED) or conditions.get(names.READY)
    return "" if found is None else f"{found.reason}: {found.message}".rstrip(": ")


def deciding_role(spec: TrainingJobSpec) -> Role:
    roles = spec.by_role()
    return next((role for role in LEADERS if role in roles), "Worker")


def outcome(seen: Observed, *, now: str) -> JobOutcome | None:
    """How the job ended; None when it has not.

    As in Kubeflow the chief (or launcher) decides, else worker 0; the other workers then have a little time to end
    by themselves. Without a framework every worker has its own work, and all must succeed. A role whose Job fails
    for good fails the whole: whether all pods are restarted instead has been asked before (`restart_of`).
    """
    role = deciding_role(seen.spec)
    decider = seen.job(role)
    if decider.complete:
        return JobOutcome(
            succeeded=True, reason="Completed", message=_done(seen, role), time=decider.completion_time
        )
    if _pods_succeeded(seen, role) and not decider.failure:
        text = f"{_done(seen, role)}; containers that no template names still ran, and are ended"
        return JobOutcome(succeeded=True, reason="Completed", message=text)
    if worker_0_decides(seen.spec) and decider.first_succeeded:
        left = ending_left(seen, now=now)
        if left <= 0 or decider.failure:
            text = "worker 0 succeeded, and so did the job"
            return JobOutcome(succeeded=True, reason="Completed", message=text)
    for each, job in seen.jobs.items():
        if job.failure:
            text = failed(
                role=each,
                verdict=cause_of_end(seen.spec, role=each, verdict=job.failure),
                limit=max_restarts(seen.spec),
                restarts=seen.known.restarts or 0 if is_whole(seen) else None,
                pods=[pod for pod in seen.pods if pod.role == each],
                namespace=seen.namespace,
                known=seen.known.conditions,
            )
            return JobOutcome(succeeded=False, reason="JobFailed", message=text, time=job.completion_time)
    return None


def _pods_succeeded(seen: Observed, role: Role) -> bool:
    """Whether all pods that decide have succeeded, but for containers that were added to them (`left_sidecars`)."""
    kept_alive = [pod for pod in seen.pods if pod.kept_alive]
    if not kept_alive or not any(pod.role == role for pod in kept_alive):
        return False
    pods = {pod.number: pod for pod in newest(seen.pods) if pod.role == role}
    deciding = [0] if role != "Worker" or worker_0_decides(seen.spec) else range(seen.replicas(role))
    return all(index in pods and pods[index].phase == "Succeeded" for index in deciding)


def worker_0_decides(spec: TrainingJobSpec) -> bool:
    """Whether the job ends as worker 0 does, and the other workers are then ended."""
    return (
        deciding_role(spec) == "Worker"
        and spec.framework != "None"
        and spec.run_policy.clean_pod_policy != "None"
    )


def ending_left(seen: Observed, *, now: str) -> float:
    """Seconds that the other workers still have, once worker 0 has succeeded."""
    first = next((pod for pod in newest(seen.pods) if pod.role == "Worker" and pod.index == "0"), None)
    if first is None or not first.finished:
        return 0.0
    return ENDING_GRACE - seconds_since(first.finished, now=now)


def _done(seen: Observed, role: Role) -> str:
    if role != "Worker":
        return f"the {role.lower()} succeeded"
    wanted = seen.replicas("Worker")
    return f"all {wanted} workers succeeded" if wanted > 1 else "the worker succeeded"


def seconds_to_live(ttl: float | None, *, ended: str | None, now: str) -> float | None:
    """How long a job that ended stays (`spec.runPolicy.ttlSecondsAfterFinished`): not above 0 when it is to be deleted.
    None when it has not ended, or stays."""
    return None if ttl is None or not ended else ttl - seconds_between(ended, now)
