"""Whether the pods of a training job may exist yet.

A job enters when every dataset it names can be read and has as much of itself in the
cache as the job asks for. Until then its Job stays suspended, so no GPU is held idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a job is or is not admitted; used as the reason of its conditions."""

    READY = "DatasetsReady"
    SUSPENDED = "SuspendedByUser"
    MISSING = "DatasetNotFound"
    UNREADABLE = "DatasetNotMounted"
    LOADING = "DatasetLoading"


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetReadiness:
    """One dataset of a job.

    Attributes:
        name: the Dataset's name.
        found: whether there is a Dataset of that name.
        readable: whether it is mounted in the cache.
        cached_ratio: cached bytes over all bytes, between 0 and 1.
        required_ratio: the fraction the job waits for, between 0 and 1.
    """

    name: str
    found: bool
    readable: bool = False
    cached_ratio: float = 0.0
    required_ratio: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """The decision, and a sentence that says why."""

    admitted: bool
    data_ready: bool
    reason: Reason
    message: str


def decide(*, suspended: bool, datasets: Sequence[DatasetReadiness]) -> Admission:
    """Admit a job, or say what it waits for. The first dataset that is not ready names the reason."""
    for dataset in datasets:
        if (blocker := _blocker(dataset)) is not None:
            reason, message = blocker
            return Admission(admitted=False, data_ready=False, reason=reason, message=message)
    if suspended:
        return Admission(
            admitted=False,
            data_ready=True,
            reason=Reason.SUSPENDED,
            message="spec.runPolicy.suspend is true; set it to false to start the job",
        )
    count = len(datasets)
    message = f"{count} dataset{'s' if count != 1 else ''} ready" if count else "the job names no dataset"
    return Admission(admitted=True, data_ready=True, reason=Reason.READY, message=message)


def _blocker(dataset: DatasetReadiness) -> tuple[Reason, str] | None:
    if not dataset.found:
        return Reason.MISSING, (
            f"there is no Dataset {dataset.name} in the job's namespace; create it, or correct spec.datasets"
        )
    if not dataset.readable:
        return Reason.UNREADABLE, f"Dataset {dataset.name} is not mounted yet; see its conditions"
    # A hair of tolerance: 0.1 + 0.2 style fractions must not hold a job for ever.
    if dataset.cached_ratio + 1e-9 < dataset.required_ratio:
        return Reason.LOADING, (
            f"Dataset {dataset.name} has {dataset.cached_ratio:.0%} of its bytes cached, "
            f"the job waits for {dataset.required_ratio:.0%}"
        )
    return None
