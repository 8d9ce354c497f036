"""Who asks for a dataset: the jobs that read it and those that wait to."""

from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.api.dataset import USES_KEPT, DatasetStatus
from tdcs.api.durations import past
from tdcs.decide.cache.mount_standing import DatasetJobs, UsersOfDataset
from tdcs.decide.place.data_meeting import AT_JOB
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.kube_objects import Key, Object


def jobs_of(*, namespace: str, dataset: str, jobs: Mapping[Key, Object]) -> DatasetJobs:
    """The jobs that name a Dataset, by name. One that is suspended by its user does not count."""
    active, waiting = [], []
    for key, job in sorted(jobs.items()):
        if key[0] != namespace or dataset not in datasets_of(job):
            continue
        match stage_of(job):
            case "Active":
                active.append(key)
            case "Waiting":
                waiting.append(key)
    return DatasetJobs(active=tuple(active), waiting=tuple(waiting))


def datasets_of(job: Object | None) -> tuple[str, ...]:
    """The names of the Datasets that a job reads, however wrong its spec may be otherwise."""
    spec = (job or {}).get("spec")
    uses = spec.get("datasets") if isinstance(spec, dict) else None
    return tuple(
        str(use["name"])
        for use in (uses if isinstance(uses, list) else ())
        if isinstance(use, dict) and use.get("name")
    )


def stage_of(job: Object | None) -> str:
    """Active: it was admitted and has not ended. Waiting: it shall start as soon as it may. Else empty."""
    if job is None or job["metadata"].get("deletionTimestamp"):
        return ""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    found: dict[Any, Any] = {one.get("type"): one for one in status.get("conditions") or ()}
    is_true = {type_ for type_, one in found.items() if one.get("status") == "True"}
    if is_true & {names.SUCCEEDED, names.FAILED} or (spec.get("runPolicy") or {}).get("suspend"):
        return ""
    if names.ADMITTED in is_true:
        return "Active"
    return "" if (found.get(names.ADMITTED) or {}).get("reason") == "InvalidSpec" else "Waiting"


def waits_for_data(job: Object) -> bool:
    """Whether more data may change what is said of a waiting job: its data was not found ready, or was not enough when
    its time to wait for it was over."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next((one for one in conditions if one.get("type") == names.DATA_READY), {})
    return ready.get("status") != "True" or ready.get("reason") == Reason.TIMED_OUT


def nodes_beside(job: Object | None) -> dict[str, list[str]]:
    """The nodes that have, or get, the copies that a job reads which was admitted and has not ended, by the Dataset."""
    if job is None or stage_of(job) != "Active":
        return {}
    uses = ((job.get("status") or {}).get("copies")) or ()
    return {
        str(use.get("dataset")): list(use["meeting"].get("nodes") or ())
        for use in uses
        if (use.get("meeting") or {}).get("way") in AT_JOB
    }


def use_of(
    *,
    status: DatasetStatus | None,
    jobs: DatasetJobs,
    mounted: bool,
    now: str,
    users: tuple[str, ...] = (),
) -> UsersOfDataset:
    """The use of a Dataset, by what is seen and by what its status remembers.

    A use that ended while no operator looked counts as having ended now.

    Args:
        users: the first pods, by name, that mount it and that no TrainingJob made.
    """
    known = status or DatasetStatus()
    was, active = known.in_use or known.active_jobs > 0, mounted or bool(jobs.active)
    more = len(jobs.active) > known.active_jobs
    return UsersOfDataset(
        jobs=jobs,
        mounted=mounted,
        users=users,
        last_used=now if was != active else _past(known.last_used_time, now=now),
        uses=tuple([*(past(one, now=now) for one in known.uses), *([now] if more else ())][-USES_KEPT:]),
    )


def _past(time: str | None, *, now: str) -> str | None:
    return None if time is None else past(time, now=now)
