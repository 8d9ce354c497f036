"""The observed state of a TrainingJob: its spec and status, datasets, Jobs and pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.model.job_pods import PodView, Unmade, newest
from tdcs.model.kube_objects import Object

BACKOFF_LIMIT = 6
"""The Kubernetes default of a Job's backoffLimit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The Indexed Job of a role, as the Job controller reports it.

    `first_succeeded`: whether index 0 has succeeded. `failure`: empty unless the Job has failed. `attempt`: how often
    all pods had been restarted when it was created; None: it was created by an operator that restarted pods one by one.
    `spec_digest`: digest of the TrainingJob's spec at its creation; empty when unknown. `gang`: whether the TrainingJob
    was a gang then. `going`: whether it is being deleted.
    """

    exists: bool = False
    suspended: bool = False
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    first_succeeded: bool = False
    complete: bool = False
    failure: str = ""
    completion_time: str | None = None
    start_time: str | None = None
    uid: str = ""
    attempt: int | None = None
    spec_digest: str = ""
    gang: bool | None = None
    going: bool = False

    @property
    def finished(self) -> bool:
        """Whether the Job will start no more pods."""
        return self.complete or bool(self.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A TrainingJob with all objects that decisions about it depend on.

    Attributes:
        spec: the desired state.
        status: the last written status.
        name: the job's name.
        namespace: the job's namespace.
        created: when it was created.
        datasets: the job's valid Datasets, by name.
        generations: of their specs, by the same.
        present: names of the job's Datasets that exist.
        deleting: names of the job's Datasets that are being deleted.
        jobs: the existing Indexed Jobs that the TrainingJob owns, by role.
        pods: all pods of these Jobs.
        workers: how many workers the queue gives to an elastic gang, if the status does not say so yet.
        unmade: pods that the Job controller cannot create, and why; None when none are known.
        missing_claim: which PersistentVolumeClaim of the templates does not exist, and what to do; empty when all
            exist, or once the job was admitted.
        predicted: the predicted seconds of its annotation; None without one.
    """

    spec: TrainingJobSpec
    status: TrainingJobStatus
    name: str = ""
    namespace: str = ""
    created: str = ""
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    deleting: frozenset[str] = frozenset()
    jobs: Mapping[Role, JobView] = field(default_factory=dict)
    pods: Sequence[PodView] = ()
    unmade: Unmade | None = None
    workers: int | None = None
    missing_claim: str = ""
    predicted: int | None = None

    def as_admitted(self) -> "Observed":
        """The job with the `gang` setting that it was admitted with: a later change must not end its pods."""
        gang = next((job.gang for job in self.jobs.values() if job.gang is not None), None)
        if not self.was_admitted or gang is None or gang is self.spec.scheduling.gang:
            return self
        scheduling = self.spec.scheduling.model_copy(update={"gang": gang})
        return replace(self, spec=self.spec.model_copy(update={"scheduling": scheduling}))

    @property
    def ended(self) -> bool:
        """Whether the status already holds the job's result: no more children are created."""
        return ended(self.status)

    @property
    def was_admitted(self) -> bool:
        """Whether the job was admitted before and has not been suspended since."""
        return is_true(self.status.conditions, names.ADMITTED)

    def job(self, role: Role) -> JobView:
        """The Job of a role; an empty view when it does not exist."""
        return self.jobs.get(role) or JobView()

    def replicas(self, role: Role) -> int:
        """The desired number of a role's pods. An elastic job gets the workers that its queue admitted, if the queue
        counts them (the operator's own queue for gangs, Kueue for all jobs)."""
        spec_replicas = self.spec.by_role()[role].replicas
        elastic = self.spec.elastic
        if role != "Worker" or elastic is None or not (self.spec.scheduling.gang or self.workers):
            return spec_replicas
        admitted = self.workers or (
            self.status.admitted_workers if self.was_admitted else elastic.min_replicas
        )
        return spec_replicas if admitted is None else min(spec_replicas, admitted)

    def absent(self, role: Role) -> int:
        """How many pods of a role are missing. A failed pod is not missing: its Job replaces it."""
        job = self.job(role)
        if not job.exists or job.suspended or job.finished:
            return 0
        pods = newest(pod for pod in self.pods if pod.role == role)
        done = sum(pod.phase == "Succeeded" for pod in pods)
        return max(self.replicas(role) - (len(pods) - done) - max(job.succeeded, done), 0)


def ended(status: TrainingJobStatus) -> bool:
    return any(is_true(status.conditions, type_) for type_ in (names.SUCCEEDED, names.FAILED))


def predicted_seconds(annotations: Mapping[str, Any] | None) -> int | None:
    """The predicted seconds in a TrainingJob's annotation; None when it is missing or invalid."""
    text = str((annotations or {}).get(names.ANNOTATION_PREDICTED) or "")
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else 0
    return seconds or None


def job_view(job: Mapping[str, Any] | None) -> JobView:
    if job is None:
        return JobView()
    status, metadata = job.get("status") or {}, job.get("metadata") or {}
    conditions = {
        condition["type"]: condition
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    failed = conditions.get("Failed")
    complete = conditions.get("Complete")
    failure = ""
    if failed is not None:
        failure = f"{failed.get('reason', 'Failed')}: {failed.get('message', '')}".rstrip(": ")
    ending = failed or complete or {}
    return JobView(
        exists=True,
        suspended=bool((job.get("spec") or {}).get("suspend")),
        active=status.get("active", 0),
        ready=status.get("ready", 0),
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        first_succeeded=str(status.get("completedIndexes") or "").partition(",")[0].partition("-")[0] == "0",
        complete=complete is not None,
        failure=failure,
        completion_time=status.get("completionTime") or ending.get("lastTransitionTime"),
        start_time=status.get("startTime"),
        uid=metadata.get("uid", ""),
        attempt=_attempt(metadata.get("annotations") or {}),
        spec_digest=str((metadata.get("annotations") or {}).get(names.ANNOTATION_SPEC_DIGEST, "")),
        gang=_GANG.get(str((metadata.get("annotations") or {}).get(names.ANNOTATION_GANG))),
        going=bool(metadata.get("deletionTimestamp")),
    )


_GANG = {"true": True, "false": False}


def _attempt(annotations: Mapping[str, Any]) -> int | None:
    text = str(annotations.get(names.ANNOTATION_RESTART_ATTEMPT, ""))
    return int(text) if text.isascii() and text.isdecimal() else None


def started(live: Object) -> bool:
    """Whether a Job was ever unsuspended: from then on its template is immutable."""
    return bool((live.get("status") or {}).get("startTime"))
