"""What a pass over a TrainingJob looks at: its spec and status, its datasets, its Jobs and pods."""

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
"""The API's own default for a Job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What the Job controller says of the Indexed Job of a role.

    `first_succeeded`: whether index 0 has; `failure` is empty unless the Job has failed. `attempt`: how often all pods
    had been restarted when it was made; None: an operator made it that restarted pods one by one. `spec_digest`: of
    what the TrainingJob asked for when it was made; empty when that is not known. `gang`: whether it
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
        """Whether no pod will be started any more."""
        return self.complete or bool(self.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything a pass over a TrainingJob looks at.

    Attributes:
        spec: what is asked for.
        known: the status as it is.
        name: the job's name, and its namespace.
        created: when it was created.
        datasets: those of the job that can be used, by name.
        deleting: names of those that are being deleted.
        jobs: the Indexed Jobs that exist and are its own, by role.
        pods: all pods of these Jobs.
        workers: how many workers the queue gives to an elastic gang, where its status does not say so yet.
        unmade: pods that cannot even be made, and why; None when there are none, or none are known.
        missing_claim: which PersistentVolumeClaim of its templates does not exist, and what to do; empty when all
            exist, and of a job that was admitted.
        predicted: the seconds that its annotation says were predicted; None when it says none.
    """

    spec: TrainingJobSpec
    known: TrainingJobStatus
    name: str = ""
    namespace: str = ""
    created: str = ""
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    deleting: frozenset[str] = frozenset()
    jobs: Mapping[Role, JobView] = field(default_factory=dict)
    pods: Sequence[PodView] = ()
    unmade: Unmade | None = None
    workers: int | None = None
    missing_claim: str = ""
    predicted: int | None = None

    def as_admitted(self) -> "Observed":
        """The job as the gang, or the single pods, that it was admitted as: what is said later ends no pods."""
        gang = next((job.gang for job in self.jobs.values() if job.gang is not None), None)
        if not self.was_admitted or gang is None or gang is self.spec.scheduling.gang:
            return self
        scheduling = self.spec.scheduling.model_copy(update={"gang": gang})
        return replace(self, spec=self.spec.model_copy(update={"scheduling": scheduling}))

    @property
    def ended(self) -> bool:
        """Whether the status says already how the job ended: then nothing is made any more."""
        return ended(self.known)

    @property
    def was_admitted(self) -> bool:
        """Whether the job was admitted before and has not been suspended since."""
        return is_true(self.known.conditions, names.ADMITTED)

    def job(self, role: Role) -> JobView:
        """The Job of a role; one that does not exist has done nothing."""
        return self.jobs.get(role) or JobView()

    def replicas(self, role: Role) -> int:
        """How many pods a role is to have: of an elastic job as many workers as its queue has admitted, where that
        counts them (the own queue does for gangs, Kueue for all)."""
        asked = self.spec.by_role()[role].replicas
        elastic = self.spec.elastic
        if role != "Worker" or elastic is None or not (self.spec.scheduling.gang or self.workers):
            return asked
        admitted = self.workers or (
            self.known.admitted_workers if self.was_admitted else elastic.min_replicas
        )
        return asked if admitted is None else min(asked, admitted)

    def absent(self, role: Role) -> int:
        """How many pods of a role do not exist that should. One that failed counts as there: it is made anew."""
        job = self.job(role)
        if not job.exists or job.suspended or job.finished:
            return 0
        pods = newest(pod for pod in self.pods if pod.role == role)
        done = sum(pod.phase == "Succeeded" for pod in pods)
        return max(self.replicas(role) - (len(pods) - done) - max(job.succeeded, done), 0)


def ended(known: TrainingJobStatus) -> bool:
    return any(is_true(known.conditions, type_) for type_ in (names.SUCCEEDED, names.FAILED))


def predicted_seconds(annotations: Mapping[str, Any] | None) -> int | None:
    """What the annotation of a TrainingJob says was predicted; None where it says nothing that can be understood."""
    text = str((annotations or {}).get(names.ANNOTATION_PREDICTED) or "")
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else 0
    return seconds or None


def job_view(job: Mapping[str, Any] | None) -> JobView:
    if job is None:
        return JobView()
    status, metadata = job.get("status") or {}, job.get("metadata") or {}
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
    """Whether a Job's pods were ever allowed to exist: from then on the API lets nobody change its template."""
    return bool((live.get("status") or {}).get("startTime"))
