"""Whether the pods of a training job may exist yet.

A job is admitted when every dataset it names can be read and has as much of itself in the
cache as the job asks for. Until then its Job stays suspended, so no GPU is held idle.

Whose turn it is among several jobs: :func:`tdcs.decide.queue.gang_turn.schedule`.

A copy of a dataset may have a limit of jobs that read it at once (:func:`choose_copy`): over it a
job waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

#: How many later jobs may be admitted before a job whose gang does not fit.
MAX_PASSES = 64


class Reason(StrEnum):
    """Why a job is or is not admitted; used as the reason of its conditions."""

    READY = "DatasetsReady"
    TIMED_OUT = "ReadinessTimedOut"
    SUSPENDED = "SuspendedByUser"
    MISSING = "DatasetNotFound"
    UNREADABLE = "DatasetNotMounted"
    LOADING = "DatasetLoading"
    SCHEDULED = "DatasetScheduled"
    DELETING = "DatasetBeingDeleted"
    NO_CLAIM = "PersistentVolumeClaimNotFound"
    NO_ROOM = "NotEnoughRoom"
    BEHIND = "BehindOtherJobs"
    NEVER = "NoNodeIsLargeEnough"
    NO_MATCH = "NoNodeMatches"
    NO_PRIORITY = "PriorityClassNotFound"
    FITS = "AllPodsFit"
    REQUEUED = "NotAllPodsPlaced"
    START_TIMEOUT = "StartTimeout"
    RECOVERY_TIMEOUT = "RecoveryTimeout"
    QUOTA = "QuotaTooSmall"
    AT_LIMIT = "DatasetAtLimit"
    IN_KUEUE = "WaitsInKueue"
    KUEUE_ADMITTED = "AdmittedByKueue"
    INVALID = "InvalidSpec"
    REFUSED = "ChildRefused"
    NO_NODES = "NodesDidNotCome"
    AWAITS_NODES = "AwaitsNodes"
    STOPPED = "QueueStopped"
    PREEMPTED = "Preempted"
    AWAITS_DATA = "AwaitsRoomAtData"


GAVE_BACK = frozenset(
    {
        Reason.REQUEUED,
        Reason.START_TIMEOUT,
        Reason.RECOVERY_TIMEOUT,
        Reason.NO_NODES,
        Reason.STOPPED,
        Reason.PREEMPTED,
    }
)
"""Why a job that was admitted gave its room back, and queues again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetReadiness:
    """One dataset of a job.

    Attributes:
        name: the Dataset's name.
        namespace: its namespace, which is the job's; empty where that is not said.
        exists: whether there is a Dataset of that name.
        readable: whether it is mounted in the cache, and pods can mount its volume.
        mounted: whether it is mounted in the cache.
        why: why it is not, in the words of whoever knows.
        lacks_why: why it will not be cached as it was asked for, in the words of its conditions; empty when it will.
        cached_ratio: cached bytes over all bytes, between 0 and 1.
        required_ratio: the fraction the job waits for, between 0 and 1.
        waited: how long the job has waited in vain for the fraction, such as 30m, and does not any longer; empty
            while it waits.
        loads_from: when its loading begins (spec.preload.startTime), while that is to come; empty otherwise.
        until: when the job stops waiting for the fraction; empty: it waits forever.
    """

    name: str
    exists: bool
    namespace: str = ""
    readable: bool = False
    mounted: bool = False
    cached_ratio: float = 0.0
    required_ratio: float = 0.0
    deleting: bool = False
    waited: str = ""
    why: str = ""
    lacks_why: str = ""
    loads_from: str = ""
    until: str = ""

    @property
    def lacks(self) -> bool:
        """Whether less of it is cached than the job asks for."""
        # A hair of tolerance: 0.1 + 0.2 style fractions must not hold a job forever.
        return self.cached_ratio + 1e-9 < self.required_ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """The decision, and a sentence that says why."""

    admitted: bool
    data_ready: bool
    reason: Reason
    message: str


_COMES_BY_ITSELF: Final = frozenset({Reason.LOADING, Reason.SCHEDULED})


def decide(*, suspended: bool, datasets: Sequence[DatasetReadiness], runs: bool = False) -> Admission:
    """Admit a job, or say what it waits for. The first dataset that is not ready names the reason.

    Args:
        suspended: whether its user holds it back.
        datasets: those that it names.
        runs: whether it was admitted before: it then waits for nothing, and the message says what is wrong with its
            data.
    """
    for dataset in datasets:
        if (reason := _matter(dataset)) is not None:
            message = (_suffered if runs else _awaited)(reason, dataset)
            # What runs reads the rest remotely until it is there again: nobody has to act.
            ready = runs and reason in _COMES_BY_ITSELF
            return Admission(admitted=False, data_ready=ready, reason=reason, message=message)
    if suspended:
        return Admission(
            admitted=False,
            data_ready=True,
            reason=Reason.SUSPENDED,
            message="spec.runPolicy.suspend is true; set it to false to start the job",
        )
    cold = [dataset for dataset in datasets if dataset.lacks]
    if cold:
        text = "; ".join(
            f"after {dataset.waited} it starts with {dataset.cached_ratio:.0%} of Dataset {dataset.name} cached, "
            f"{dataset.required_ratio:.0%} was asked for"
            for dataset in cold
        )
        return Admission(admitted=True, data_ready=True, reason=Reason.TIMED_OUT, message=text)
    count = len(datasets)
    message = f"{count} dataset{'s' if count != 1 else ''} ready" if count else "the job names no dataset"
    return Admission(admitted=True, data_ready=True, reason=Reason.READY, message=message)


def _matter(dataset: DatasetReadiness) -> Reason | None:
    """What is wrong with a dataset; None when a job can be admitted, as far as it goes."""
    if not dataset.exists:
        return Reason.MISSING
    if dataset.deleting:
        return Reason.DELETING
    if not dataset.readable:
        return Reason.UNREADABLE
    if not dataset.lacks or dataset.waited:
        return None
    return Reason.SCHEDULED if dataset.loads_from else Reason.LOADING


def _awaited(reason: Reason, dataset: DatasetReadiness) -> str:
    """What a job waits for that is not let in yet."""
    match reason:
        case Reason.MISSING:
            return f"there is no Dataset {dataset.name} in {_place(dataset)}; create it, or correct spec.datasets"
        case Reason.DELETING:
            return f"Dataset {dataset.name} is being deleted; the job goes on when there is one of that name again"
        case Reason.UNREADABLE:
            return f"{_unreadable(dataset)} yet{_cause(dataset)}"
        case _:
            begins = f"loading begins at {dataset.loads_from} (spec.preload.startTime), "
            until = f", until {dataset.until} at most (readiness.timeout)" if dataset.until else ""
            return (
                f"Dataset {dataset.name} has {dataset.cached_ratio:.0%} of its bytes cached, "
                f"{begins if dataset.loads_from else ''}the job waits for {dataset.required_ratio:.0%}{until}"
                f"{f'. {dataset.lacks_why}' if dataset.lacks_why else ''}"
            )


def _suffered(reason: Reason, dataset: DatasetReadiness) -> str:
    """What that means for a job that runs, and goes on running."""
    match reason:
        case Reason.MISSING:
            return (
                f"Dataset {dataset.name} is gone from {_place(dataset)}; the job runs on, but pods that have to be "
                "created again wait until there is one of that name again"
            )
        case Reason.DELETING:
            return (
                f"Dataset {dataset.name} is being deleted, which waits for the job's pods; the job runs on with its "
                "data, but pods that have to be created again wait until there is one of that name again"
            )
        case Reason.UNREADABLE:
            return (
                f"the job runs, and {_unreadable(dataset)} just now: what is on a pod's own node can be read all the "
                f"same{_cause(dataset)}"
            )
        case _:
            return (
                f"the job runs, and Dataset {dataset.name} has {dataset.cached_ratio:.0%} of its bytes cached now: "
                f"the rest is {_rest(dataset)}, and is read from other nodes or the source until then"
            )


def _place(dataset: DatasetReadiness) -> str:
    return f"namespace {dataset.namespace}" if dataset.namespace else "the job's namespace"


def _rest(dataset: DatasetReadiness) -> str:
    if dataset.loads_from:
        return f"loaded from {dataset.loads_from} on (spec.preload.startTime)"
    return "being loaded again"


def _unreadable(dataset: DatasetReadiness) -> str:
    """What of a Dataset is missing before pods can read it."""
    if dataset.mounted:
        return f"Dataset {dataset.name} cannot be read by pods"
    return f"Dataset {dataset.name} is not mounted"


def _cause(dataset: DatasetReadiness) -> str:
    return f": {dataset.why}" if dataset.why else "; see its conditions"


class Waiting(Protocol):
    """A job in the queue, as :func:`queue_key` sees it."""

    @property
    def priority(self) -> int:
        """Larger enters first."""

    @property
    def submitted(self) -> float:
        """When it was submitted, in seconds on any one clock."""


def queue_key(job: Waiting) -> tuple[int, float]:
    """Sorts a queue: by priority, then by age."""
    return (-job.priority, job.submitted)


def copy_to_read(*, active: Mapping[str, int], room: Mapping[str, int] | None = None, limit: int = 0) -> str:
    """The copy of a job for which a place was counted: that of `choose_copy`, and, should places be uneven for a
    moment, the copy with the fewest readers."""
    chosen = choose_copy(active=active, room=room, limit=limit)
    return chosen if chosen is not None else min(active, key=lambda copy: (active[copy], copy))


def choose_copy(
    *, active: Mapping[str, int], room: Mapping[str, int] | None = None, limit: int = 0
) -> str | None:
    """Of the copies under their limit the one with room for most of the job's pods, then the one with the fewest
    jobs; None when each has as many as it may.

    Args:
        active: jobs that read each copy now, by the copy's id (ids are "0", "1", ...).
        room: how many of the job's pods find room on the nodes of each copy; left out, that is not looked at.
        limit: jobs that one copy serves at once; 0 means no limit.
    """
    near = room or {}
    free = [copy for copy, jobs in active.items() if limit <= 0 or jobs < limit]
    return min(free, key=lambda copy: (-near.get(copy, 0), active[copy], copy), default=None)
