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
from tdcs.decide.job.failure_message import is_told
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


def places_of(seen: Observed, copies: Sequence[CopyOnNodes]) -> PodPlaces:
    """Where the pods are: the newest pod of each index, with the bytes that lay there when it was first seen.

    When all pods are gone (the job ended and was cleaned up) what was known is kept.
    """
    placed = newest(pod for pod in seen.pods if pod.node)
    nodes = {pod.name: pod.node for pod in placed}
    return PodPlaces(listed=_listed(seen, placed, copies), nodes=nodes)


def _listed(seen: Observed, placed: Sequence[PodView], copies: Sequence[CopyOnNodes]) -> list[PodPlacement]:
    if not placed:
        return list(seen.known.placement)
    known = {(entry.pod, entry.node): entry for entry in seen.known.placement}
    return [
        known.get((pod.name, pod.node))
        or PodPlacement(pod=pod.name, node=pod.node, cached_bytes=bytes_on_node(node=pod.node, copies=copies))
        for pod in sorted(placed[:PLACEMENT_LIMIT], key=lambda pod: pod.name)
    ]


def status_of(
    seen: Observed, *, decision: Decision, outcome: JobOutcome | None, now: str, stall: Stall | None = None
) -> TrainingJobStatus:
    """The status without its conditions. `stall`: how long its reads waited, if that is known."""
    known, copies = seen.known, held(seen.datasets)
    # What a gang gave back, or Kueue took back, it has no more.
    given_back = decision.reason in GAVE_BACK | {Reason.IN_KUEUE}
    places = PodPlaces(listed=[], nodes={}) if given_back else places_of(seen, copies)
    omitted, digest = places.omitted, places.digest
    if not places.nodes and not given_back:
        omitted, digest = known.placement_omitted or 0, known.placement_digest
    moved = digest != known.placement_digest or [(each.pod, each.node) for each in places.listed] != [
        (each.pod, each.node) for each in known.placement
    ]
    near, share = known.locality, known.local_share
    if moved or is_under_way(known.copies):
        near, share = _nearness(seen, places.nodes)
    shown = headline(seen, decision=decision, outcome=outcome)
    starts = [job.start_time for job in seen.jobs.values() if job.start_time]
    ran = outcome is None and running(seen).status == "True"
    first_ran = known.running_time or (now if ran else None)
    start = known.start_time or min(starts, default=now if decision.admitted else None)
    completion = known.completion_time or (None if outcome is None else outcome.time or now)
    return TrainingJobStatus(
        state=shown.state,
        reason=shown.reason,
        message=shown.message,
        replica_statuses=_at_the_end(seen) if outcome is not None else replica_statuses(seen),
        replicas=seen.replicas("Worker"),
        admitted_workers=seen.replicas("Worker")
        if decision.admitted and (seen.spec.is_elastic_gang or seen.workers)
        else None,
        suspended_seconds=_suspended_seconds(seen, now=now) or None,
        selector=selector_of(job=seen.name, role="Worker"),
        placement=places.listed,
        placement_omitted=omitted or None,
        placement_digest=digest,
        considered=[]
        if given_back
        else list(known.considered if decision.considered is None else decision.considered),
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
        restarts=known.restarts,
        restarts_count_towards_max=known.restarts_count_towards_max,
        restarts_after_failures=known.restarts_after_failures,
        node_failures=known.node_failures,
        avoided_nodes=known.avoided_nodes,
        running_time=first_ran if decision.admitted else None,
        start_time=start,
        completion_time=completion,
        prediction=known.prediction or _prediction(seen, outcome=outcome, start=start, completion=completion),
        data_stall=status_of_stall(stall, known.data_stall, datasets=seen.datasets.values()),
    )


def counting(known: TrainingJobStatus, restart: JobRestart) -> TrainingJobStatus:
    """The status with one more restart."""
    return known.model_copy(
        update={
            "restarts": (known.restarts or 0) + 1,
            "restarts_count_towards_max": (known.restarts_count_towards_max or 0) + restart.counts or None,
            "restarts_after_failures": own_failures(known) + restart.failed or None,
            "node_failures": counted(known.node_failures, node=restart.failed_node),
        }
    )


def _prediction(
    seen: Observed, *, outcome: JobOutcome | None, start: str | None, completion: str | None
) -> PredictionCheck | None:
    """How wrong the prediction was; None without one, or where the times do not compare."""
    if outcome is None or not outcome.succeeded or seen.predicted is None or not (start and completion):
        return None
    if seen.known.suspended_seconds or is_true(seen.known.conditions, names.SUSPENDED):
        return None
    took = max(round(seconds_between(start, completion)), 1)  # times of Kubernetes are whole seconds
    return PredictionCheck(
        predicted_seconds=seen.predicted,
        run_seconds=took,
        error_percent=round(100 * (seen.predicted - took) / took),
    )


def _nearness(seen: Observed, nodes: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Locality and local share: the mean over the pods that read data, each by the datasets that it reads itself."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for pod in seen.pods:
        reads = tuple(use.name for use in seen.spec.datasets_of(pod.role, pod.number))
        if reads and pod.name in nodes:
            groups.setdefault(reads, []).append(nodes[pod.name])
    near, share = [], []
    for reads, where in groups.items():
        copies = held({name: found for name, found in seen.datasets.items() if name in reads})
        near.append((locality(pod_nodes=where, copies=copies), len(where)))
        share.append((local_share(pod_nodes=where, copies=copies), len(where)))
    return _mean(near), _mean(share)


def _mean(parts: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of values with their weights, those left out that are None."""
    known = [(value, weight) for value, weight in parts if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def findings_of(seen: Observed, *, decision: Decision, outcome: JobOutcome | None) -> list[Finding]:
    """The conditions. Those of rare states are there only once the job has been in them."""
    data, known = decision.data, {condition.type for condition in seen.known.conditions}
    found = [finding(names.DATA_READY, data.data_ready, data.reason.value, data.message)]
    waits = decision if not decision.admitted and decision.reason in IN_THE_QUEUE else decision.growth
    if outcome is not None and not data.data_ready:  # what it says of pods to come is over
        was_ready = is_true(seen.known.conditions, names.DATA_READY)
        found = [finding(names.DATA_READY, was_ready, "Finished", outcome.message)]
    if waits is not None and outcome is None:
        found.append(finding(names.QUEUED, True, waits.reason.value, waits.message))
    elif names.QUEUED in known:
        found.append(finding(names.QUEUED, False, "NotQueued", "it waits for no turn"))
    suspended = decision.reason is Reason.SUSPENDED
    if suspended or names.SUSPENDED in known:
        text = decision.message if suspended else "spec.runPolicy.suspend is false"
        found.append(finding(names.SUSPENDED, suspended, "SuspendedByUser" if suspended else "Resumed", text))
    if decision.nodes is not None:
        found.append(decision.nodes)
    admitted = decision.message if outcome is None or data.admitted else outcome.message
    found.append(finding(names.ADMITTED, decision.admitted, decision.reason.value, admitted))
    if outcome is not None:
        if any(one.type == names.RESTARTING and is_told(one) for one in seen.known.conditions):
            found.append(finding(names.RESTARTING, False, "Finished", outcome.message))
        type_ = names.SUCCEEDED if outcome.succeeded else names.FAILED
        return [
            *found,
            finding(names.RUNNING, False, "Finished", outcome.message),
            finding(type_, True, outcome.reason, outcome.message),
        ]
    if not decision.admitted:
        return [*found, finding(names.RUNNING, False, "NotAdmitted", decision.message)]
    if (restart := decision.restart) is not None:
        reason = POD_FAILED if restart.failed else POD_LOST
        found.append(finding(names.RESTARTING, True, reason, restart.message))
        return [*found, finding(names.RUNNING, False, "PodsStarting", restart.message)]
    now = running(seen)
    failed = None if now.status == "True" else last_failure(seen)
    told = None if now.status == "True" else restarting(seen)
    if failed is None and told is not None:
        found.append(told)
    elif failed is not None:
        reason = NO_RETRY_LEFT if failed.is_final else POD_FAILED
        found.append(finding(names.RESTARTING, not failed.is_final, reason, failed.text))
    elif names.RESTARTING in known:
        found.append(
            finding(names.RESTARTING, False, "AllPodsRun", "no failed pod waits for its replacement")
        )
    return [*found, now]


def _suspended_seconds(seen: Observed, *, now: str) -> int:
    """The sum of the periods of suspension that are over; the condition says since when the present one lasts."""
    return (
        seen.known.suspended_seconds or 0
        if seen.spec.run_policy.suspend
        else suspended_seconds(seen, now=now)
    )


def _at_the_end(seen: Observed) -> list[ReplicaStatus]:
    """The last counts: what still runs is about to be ended, unless it is to be left alone."""
    found = replica_statuses(seen)
    if seen.spec.run_policy.clean_pod_policy == "None":
        return [status.model_copy(update={"ready": status.ready or None}) for status in found]
    still = {"active": 0, "ready": None}
    return [status.model_copy(update=still) for status in found]
