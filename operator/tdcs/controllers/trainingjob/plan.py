"""What a TrainingJob's state is and what it waits for. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import (
    CopyUse,
    DatasetUse,
    JobState,
    PodPlacement,
    ReplicaStatus,
    ReplicaStatuses,
    TrainingJobSpec,
    TrainingJobStatus,
)
from tdcs.controllers.trainingjob.children import COPY
from tdcs.policy.admission import Admission, DatasetReadiness, Reason, decide
from tdcs.policy.scoring import CopyOnNodes, bytes_on_node, local_share, locality


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod of the job that has a node."""

    name: str
    node: str
    index: str
    created: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What the Job controller says of the Indexed Job."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    complete: bool = False
    failure: str = ""
    completion_time: str | None = None
    start_time: str | None = None

    @property
    def finished(self) -> bool:
        """Whether no pod will be started any more."""
        return self.complete or bool(self.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything a pass over a TrainingJob looks at.

    `datasets` are those of the job that exist, by name; `known` is the status as it is.
    """

    spec: TrainingJobSpec
    known: TrainingJobStatus
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    job: JobView = field(default_factory=JobView)
    pods: Sequence[PodView] = ()

    @property
    def ended(self) -> bool:
        """Whether the status says already how the job ended: then nothing is made any more."""
        return any(is_true(self.known.conditions, type_) for type_ in (names.SUCCEEDED, names.FAILED))


def admission(seen: Observed) -> Admission:
    """Whether the pods may exist. A job that was let in stays in: its data may move, the user's wish may not."""
    decision = decide(
        suspended=seen.spec.run_policy.suspend,
        datasets=[readiness(use, seen.datasets.get(use.name)) for use in seen.spec.datasets],
    )
    was_in = is_true(seen.known.conditions, names.ADMITTED)
    if was_in and not decision.admitted and not seen.spec.run_policy.suspend:
        return Admission(
            admitted=True,
            data_ready=decision.data_ready,
            reason=Reason.READY,
            message="admitted before; a running job is not taken back",
        )
    return decision


def readiness(use: DatasetUse, dataset: Dataset | None) -> DatasetReadiness:
    """One dataset as the admission policy sees it.

    Nothing more will come of a dataset that is not preloaded, or that is loaded as far as it fits: it is
    asked for no fraction, for else the job would wait for ever.
    """
    if dataset is None or dataset.status is None:
        return DatasetReadiness(name=use.name, found=dataset is not None)
    final = not dataset.spec.preload.enabled or is_true(dataset.status.conditions, names.LOADED)
    return DatasetReadiness(
        name=use.name,
        found=True,
        readable=is_true(dataset.status.conditions, names.MOUNTED),
        # Every wanted copy of a byte counts: replicated on three nodes, a third of it is there after the first.
        cached_ratio=dataset.status.loaded_ratio,
        required_ratio=0.0 if final else use.readiness.fraction,
    )


def job_view(job: Mapping[str, Any] | None) -> JobView:
    """The parts of a Job's status that matter."""
    if job is None:
        return JobView()
    status = job.get("status") or {}
    conditions = {
        found["type"]: found for found in status.get("conditions") or () if found.get("status") == "True"
    }
    failed = conditions.get("Failed")
    complete = conditions.get("Complete")
    failure = ""
    if failed is not None:
        failure = f"{failed.get('reason', 'Failed')}: {failed.get('message', '')}".rstrip(": ")
    ending = failed or complete or {}
    return JobView(
        active=status.get("active", 0),
        ready=status.get("ready", 0),
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        complete=complete is not None,
        failure=failure,
        completion_time=status.get("completionTime") or ending.get("lastTransitionTime"),
        start_time=status.get("startTime"),
    )


def copies_of(seen: Observed) -> list[CopyOnNodes]:
    """The copies that the job reads, for the definitions of locality."""
    found = []
    for dataset in seen.datasets.values():
        if dataset.status is None:
            continue
        node_bytes = {
            node.name: node.bytes for copy in dataset.status.copies if copy.id == COPY for node in copy.nodes
        }
        found.append(CopyOnNodes(total_bytes=dataset.status.total_bytes, node_bytes=node_bytes))
    return found


def placement(seen: Observed, copies: Sequence[CopyOnNodes]) -> list[PodPlacement]:
    """Where the pods are: the newest pod of each index, with the bytes that lay there when it was first seen.

    When all pods are gone (the job ended and was cleaned up) what was known is kept.
    """
    newest: dict[str, PodView] = {}
    for pod in seen.pods:
        other = newest.get(pod.index)
        if other is None or (other.created, other.name) < (pod.created, pod.name):
            newest[pod.index] = pod
    if not newest:
        return list(seen.known.placement)
    known = {(entry.pod, entry.node): entry for entry in seen.known.placement}
    return [
        known.get((pod.name, pod.node))
        or PodPlacement(pod=pod.name, node=pod.node, cached_bytes=bytes_on_node(node=pod.node, copies=copies))
        for pod in sorted(newest.values(), key=lambda pod: pod.name)
    ]


def status_of(seen: Observed, *, decision: Admission, state: JobState, now: str) -> TrainingJobStatus:
    """The status without its conditions."""
    copies = copies_of(seen)
    places = placement(seen, copies)
    known = seen.known
    moved = [(place.pod, place.node) for place in places] != [
        (place.pod, place.node) for place in known.placement
    ]
    nodes = [place.node for place in places]
    near = locality(pod_nodes=nodes, copies=copies) if moved else known.locality
    share = local_share(pod_nodes=nodes, copies=copies) if moved else known.local_share
    job = seen.job
    completion = known.completion_time or (job.completion_time or now if job.finished else None)
    return TrainingJobStatus(
        state=state,
        replica_statuses=ReplicaStatuses(
            worker=ReplicaStatus(
                active=job.active, ready=job.ready, succeeded=job.succeeded, failed=job.failed
            )
        ),
        placement=places,
        locality=None if near is None else round(near, 4),
        local_share=None if share is None else round(share, 4),
        copies=[CopyUse(dataset=use.name, copy_id=COPY) for use in seen.spec.datasets],
        start_time=known.start_time or job.start_time or (now if decision.admitted else None),
        completion_time=completion,
    )


def findings_of(seen: Observed, decision: Admission) -> list[Finding]:
    """The conditions."""
    job, wanted = seen.job, seen.spec.replica_specs.worker.replicas
    data_reason = Reason.READY if decision.data_ready else decision.reason
    data_text = "every dataset is ready" if decision.data_ready else decision.message
    found = [
        finding(names.DATA_READY, decision.data_ready, data_reason.value, data_text),
        finding(names.ADMITTED, decision.admitted, decision.reason.value, decision.message),
    ]
    if job.complete:
        done = f"all {wanted} workers succeeded" if wanted > 1 else "the worker succeeded"
        return [
            *found,
            finding(names.RUNNING, False, "Finished", done),
            finding(names.SUCCEEDED, True, "Completed", done),
        ]
    if job.failure:
        text = f"{job.failure}; the logs of its pods, which status.placement names, say why"
        return [
            *found,
            finding(names.RUNNING, False, "Finished", "the job failed"),
            finding(names.FAILED, True, "JobFailed", text),
        ]
    running = job.ready > 0 and job.ready + job.succeeded >= wanted
    if running:
        return [*found, finding(names.RUNNING, True, "PodsReady", f"{job.ready} of {wanted} pods run")]
    if not decision.admitted:
        return [*found, finding(names.RUNNING, False, "NotAdmitted", decision.message)]
    text = f"{job.ready} of {wanted} pods are ready"
    return [*found, finding(names.RUNNING, False, "PodsStarting", text)]


def state_of(seen: Observed, decision: Admission) -> JobState:
    """The conditions in one word."""
    if seen.job.complete:
        return "Succeeded"
    if seen.job.failure:
        return "Failed"
    if not decision.admitted:
        return "Suspended" if decision.reason is Reason.SUSPENDED else "Waiting"
    wanted = seen.spec.replica_specs.worker.replicas
    return "Running" if seen.job.ready > 0 and seen.job.ready + seen.job.succeeded >= wanted else "Starting"
