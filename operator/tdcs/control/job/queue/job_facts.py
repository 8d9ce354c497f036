"""What a pass over the queue reads of each TrainingJob next to its spec: read once for each version of the object."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.api.durations import seconds_from_1970
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.model.kube_objects import Object

EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What the object says.

    Attributes:
        admitted: whether its status says that it was admitted.
        data_ready: whether its status says that its data lets it start.
        going: whether it is being deleted.
        submitted: when it was created, in seconds since 1970; 0: nothing says so.
        waits_since: since when it waits, in seconds since 1970: since it was created, resumed, or lost its place; None:
            nothing says so. A time in the status that is none does not count.
        datasets: the names of those that it reads.
        admitted_workers: how many workers it was admitted with; None: its status does not say so.
    """

    admitted: bool
    data_ready: bool
    going: bool
    submitted: float
    waits_since: float | None
    datasets: tuple[str, ...]
    admitted_workers: int | None


class KnownFacts:
    """The facts of the jobs, by uid. A job that changes is another object: none is changed where it is."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[Object, JobFacts]] = {}

    def of(self, uid: str, obj: Object) -> JobFacts:
        """The facts of a job."""
        entry = self._facts.get(uid)
        if entry is None or entry[0] is not obj:
            entry = self._facts[uid] = (obj, facts_of(obj))
        return entry[1]

    def keep(self, uids: Collection[str]) -> None:
        """Forget all jobs but these."""
        if len(self._facts) > len(uids):
            self._facts = {uid: entry for uid, entry in list(self._facts.items()) if uid in uids}


def facts_of(obj: Object) -> JobFacts:
    """What an object says."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    created = seconds_from_1970(metadata.get("creationTimestamp"))
    lost = [
        seconds_from_1970(conditions[kind].get("lastTransitionTime"))
        for kind in (names.ADMITTED, names.SUSPENDED)
        if conditions.get(kind, {}).get("status") == "False"
    ]
    workers = status.get("admittedWorkers")
    return JobFacts(
        admitted=conditions.get(names.ADMITTED, {}).get("status") == "True",
        data_ready=conditions.get(names.DATA_READY, {}).get("status") == "True",
        going=bool(metadata.get("deletionTimestamp")),
        submitted=created or 0.0,
        waits_since=max((time for time in (created, *lost) if time is not None), default=None),
        datasets=datasets_of(obj),
        admitted_workers=workers if isinstance(workers, int) else None,
    )
