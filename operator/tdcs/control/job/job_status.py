"""What the status of a TrainingJob says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import NO_RETRY_LEFT, POD_FAILED, POD_LOST, Finding, finding, is_true
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob_status import (
    PLACEMENT_LIMIT,
    CopyUse,
    PodPlacement,
    PredictionCheck,
    ReplicaStatus,
    TrainingJobStatus,
)
from tdcs.control.job.data_meetings import is_under_way
from tdcs.control.job.job_children import selector_of
from tdcs.control.job.stalled_reads import status_of_stall
from tdcs.decide.job.failure_message import tells_of_failure
from tdcs.decide.job.job_headline import (
    IN_THE_QUEUE,
    headline,
    last_failure,
    replica_statuses,
    restarting,
    running,
)
from tdcs.decide.job.job_phase import Decision, JobOutcome, suspended_seconds
from tdcs.decide.job.job_restart import JobRestart, own_failures
from tdcs.decide.job.node_failures import counted
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.data_location import held
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_score import bytes_on_node, local_share, locality
from tdcs.decide.queue.data_stall import Stall
from tdcs.decide.queue.pod_admission import GAVE_BACK, Reason
from tdcs.kube.apply import digest_of
from tdcs.model.job_pods import PodView, newest


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlaces:
    """Where the pods of a job are.

    Attributes:
        listed: those that the status lists.
        nodes: the node of every pod, by its name.
    """

    listed: list[PodPlacement]
    nodes: Mapping[str, str]

    @property
    def omitted(self) -> int:
        return max(len(self.nodes) - len(self.listed), 0)

    @property
    def digest(self) -> str | None:
        """Of all places, where not all are listed."""
        return digest_of(dict(self.nodes)) if self.omitted else None


def places_of(observed: Observed, copies: Sequence[CopyOnNodes]) -> PodPlaces:
    """Where the pods are: the newest pod of each index, with the bytes that were there when it was first seen.

    When all pods are gone (the job ended and was cleaned up) what was known is kept.
    """
    placed = newest(pod for pod in observed.pods if pod.node)
    nodes = {pod.name: pod.node for pod in placed}
    return PodPlaces(listed=_listed(observed, placed, copies), nodes=nodes)


def _listed(
    observed: Observed, placed: Sequence[PodView], copies: Sequence[CopyOnNodes]
) -> list[PodPlacement]:
    if not placed:
        return list(observed.status.placement)
    placement_of = {(entry.pod, entry.node): entry for entry in observed.status.placement}
    return [
        placement_of.get((pod.name, pod.node))
        or PodPlacement(pod=pod.name, node=pod.node, cached_bytes=bytes_on_node(node=pod.node, copies=copies))
        for pod in sorted(placed[:PLACEMENT_LIMIT], key=lambda pod: pod.name)
    ]


def status_of(
    observed: Observed,
    *,
    decision: Decision,
    outcome: JobOutcome | None,
    now: str,
    stall: Stall | None = None,
) -> TrainingJobStatus:
    """The status without its conditions. `stall`: how long its reads waited, if that is known."""
    published, copies = observed.status, held(observed.datasets)
    # What a gang gave back, or Kueue took back, it has no more.
    given_back = decision.reason in GAVE_BACK | {Reason.IN_KUEUE}
    places = PodPlaces(listed=[], nodes={}) if given_back else places_of(observed, copies)
    omitted, digest = places.omitted, places.digest
    if not places.nodes and not given_back:
        omitted, digest = published.placement_omitted or 0, published.placement_digest
    moved = digest != published.placement_digest or [
        (placement.pod, placement.node) for placement in places.listed
    ] != [(placement.pod, placement.node) for placement in published.placement]
    near, share = published.locality, published.local_share
    if moved or is_under_way(published.copies):
        near, share = _nearness(observed, places.nodes)
    headline_shown = headline(observed, decision=decision, outcome=outcome)
    starts = [job.start_time for job in observed.jobs.values() if job.start_time]
    ran = outcome is None and running(observed).status == "True"
    first_ran = published.running_time or (now if ran else None)
    start = published.start_time or min(starts, default=now if decision.admitted else None)
    completion = published.completion_time or (None if outcome is None else outcome.time or now)
    return TrainingJobStatus(
        state=headline_shown.state,
        reason=headline_shown.reason,
        message=headline_shown.message,
        replica_statuses=_at_the_end(observed) if outcome is not None else replica_statuses(observed),
        replicas=observed.replicas("Worker"),
        admitted_workers=observed.replicas("Worker")
        if decision.admitted and (observed.spec.is_elastic_gang or observed.workers)
        else None,
        suspended_seconds=_suspended_seconds(observed, now=now) or None,
        selector=selector_of(job=observed.name, role="Worker"),
        placement=places.listed,
        placement_omitted=omitted or None,
        placement_digest=digest,
        considered=[]
        if given_back
        else list(published.considered if decision.considered is None else decision.considered),
        locality=None if near is None else round(near, 4),
        locality_percent=None if near is None else f"{math.floor(near * 100 + 1e-9)}%",
        local_share=None if share is None else round(share, 4),
        copies=[
            CopyUse(dataset=name, copy_id=copy, meeting=decision.meetings.get(name))
            for name, copy in decision.copies.items()
        ],
        queue_name=decision.queue or None,
        passed=decision.passed or None,
        queue=decision.record,
        restarts=published.restarts,
        restarts_count_towards_max=published.restarts_count_towards_max,
        restarts_after_failures=published.restarts_after_failures,
        node_failures=published.node_failures,
        avoided_nodes=published.avoided_nodes,
        running_time=first_ran if decision.admitted else None,
        start_time=start,
        completion_time=completion,
        prediction=published.prediction
        or _prediction(observed, outcome=outcome, start=start, completion=completion),
        data_stall=status_of_stall(stall, published.data_stall, datasets=observed.datasets.values()),
    )


def counting(published: TrainingJobStatus, restart: JobRestart) -> TrainingJobStatus:
    """The status with one more restart."""
    return published.model_copy(
        update={
            "restarts": (published.restarts or 0) + 1,
            "restarts_count_towards_max": (published.restarts_count_towards_max or 0) + restart.counts
            or None,
            "restarts_after_failures": own_failures(published) + restart.failed or None,
            "node_failures": counted(published.node_failures, node=restart.failed_node),
        }
    )


def _prediction(
    observed: Observed, *, outcome: JobOutcome | None, start: str | None, completion: str | None
) -> PredictionCheck | None:
    """How wrong the prediction was; None without one, or where the times do not compare."""
    if outcome is None or not outcome.succeeded or observed.predicted is None or not (start and completion):
        return None
    if observed.status.suspended_seconds or is_true(observed.status.conditions, names.SUSPENDED):
        return None
    took = max(round(seconds_between(start, completion)), 1)  # times of Kubernetes are whole seconds
    return PredictionCheck(
        predicted_seconds=observed.predicted,
        run_seconds=took,
        error_percent=round(100 * (observed.predicted - took) / took),
    )


def _nearness(observed: Observed, nodes: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Locality and local share: the mean over the pods that read data, each by the datasets that it reads itself."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for pod in observed.pods:
        reads = tuple(use.name for use in observed.spec.datasets_of(pod.role, pod.number))
        if reads and pod.name in nodes:
            groups.setdefault(reads, []).append(nodes[pod.name])
    near, share = [], []
    for reads, where in groups.items():
        copies = held({name: dataset for name, dataset in observed.datasets.items() if name in reads})
        near.append((locality(pod_nodes=where, copies=copies), len(where)))
        share.append((local_share(pod_nodes=where, copies=copies), len(where)))
    return _mean(near), _mean(share)


def _mean(parts: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of values with their weights, those left out that are None."""
    weighted = [(value, weight) for value, weight in parts if value is not None]
    total = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / total if total else None


def findings_of(observed: Observed, *, decision: Decision, outcome: JobOutcome | None) -> list[Finding]:
    """The conditions. Those of rare states are there only once the job has been in them."""
    data, published_types = decision.data, {condition.type for condition in observed.status.conditions}
    findings = [finding(names.DATA_READY, data.data_ready, data.reason.value, data.message)]
    waits = decision if not decision.admitted and decision.reason in IN_THE_QUEUE else decision.growth
    if outcome is not None and not data.data_ready:  # what it says of pods to come is over
        was_ready = is_true(observed.status.conditions, names.DATA_READY)
        findings = [finding(names.DATA_READY, was_ready, "Finished", outcome.message)]
    if waits is not None and outcome is None:
        findings.append(finding(names.QUEUED, True, waits.reason.value, waits.message))
    elif names.QUEUED in published_types:
        findings.append(finding(names.QUEUED, False, "NotQueued", "it waits for no turn"))
    suspended = decision.reason is Reason.SUSPENDED
    if suspended or names.SUSPENDED in published_types:
        text = decision.message if suspended else "spec.runPolicy.suspend is false"
        findings.append(
            finding(names.SUSPENDED, suspended, "SuspendedByUser" if suspended else "Resumed", text)
        )
    if decision.nodes is not None:
        findings.append(decision.nodes)
    admitted = decision.message if outcome is None or data.admitted else outcome.message
    findings.append(finding(names.ADMITTED, decision.admitted, decision.reason.value, admitted))
    if outcome is not None:
        if any(
            condition.type == names.RESTARTING and tells_of_failure(condition)
            for condition in observed.status.conditions
        ):
            findings.append(finding(names.RESTARTING, False, "Finished", outcome.message))
        type_ = names.SUCCEEDED if outcome.succeeded else names.FAILED
        return [
            *findings,
            finding(names.RUNNING, False, "Finished", outcome.message),
            finding(type_, True, outcome.reason, outcome.message),
        ]
    if not decision.admitted:
        return [*findings, finding(names.RUNNING, False, "NotAdmitted", decision.message)]
    if (restart := decision.restart) is not None:
        reason = POD_FAILED if restart.failed else POD_LOST
        findings.append(finding(names.RESTARTING, True, reason, restart.message))
        return [*findings, finding(names.RUNNING, False, "PodsStarting", restart.message)]
    now = running(observed)
    failed = None if now.status == "True" else last_failure(observed)
    restarting_finding = None if now.status == "True" else restarting(observed)
    if failed is None and restarting_finding is not None:
        findings.append(restarting_finding)
    elif failed is not None:
        reason = NO_RETRY_LEFT if failed.is_final else POD_FAILED
        findings.append(finding(names.RESTARTING, not failed.is_final, reason, failed.text))
    elif names.RESTARTING in published_types:
        findings.append(
            finding(names.RESTARTING, False, "AllPodsRun", "no failed pod waits for its replacement")
        )
    return [*findings, now]


def _suspended_seconds(observed: Observed, *, now: str) -> int:
    """The sum of the periods of suspension that are over; the condition says since when the present one lasts."""
    return (
        observed.status.suspended_seconds or 0
        if observed.spec.run_policy.suspend
        else suspended_seconds(observed, now=now)
    )


def _at_the_end(observed: Observed) -> list[ReplicaStatus]:
    """The last counts: what still runs is about to be ended, unless it is to be left alone."""
    replicas = replica_statuses(observed)
    if observed.spec.run_policy.clean_pod_policy == "None":
        return [status.model_copy(update={"ready": status.ready or None}) for status in replicas]
    still = {"active": 0, "ready": None}
    return [status.model_copy(update=still) for status in replicas]
