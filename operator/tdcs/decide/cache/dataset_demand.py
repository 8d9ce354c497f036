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
    """The names of the Datasets that a job reads, even if the rest of its spec is invalid."""
    spec = (job or {}).get("spec")
    uses = spec.get("datasets") if isinstance(spec, dict) else None
    return tuple(
        str(use["name"])
        for use in (uses if isinstance(uses, list) else ())
        if isinstance(use, dict) and use.get("name")
    )


def stage_of(job: Object | None) -> str:
    """Active: the job was admitted and has not ended. Waiting: it waits for its admission. Otherwise empty."""
    if job is None or job["metadata"].get("deletionTimestamp"):
        return ""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    conditions: dict[Any, Any] = {
        condition.get("type"): condition for condition in status.get("conditions") or ()
    }
    is_true = {type_ for type_, condition in conditions.items() if condition.get("status") == "True"}
    if is_true & {names.SUCCEEDED, names.FAILED} or (spec.get("runPolicy") or {}).get("suspend"):
        return ""
    if names.ADMITTED in is_true:
        return "Active"
    return "" if (conditions.get(names.ADMITTED) or {}).get("reason") == "InvalidSpec" else "Waiting"


def waits_for_data(job: Object) -> bool:
    """Whether more data may change the state of a waiting job: its data was not ready, or was incomplete when its
    readiness timeout ended."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next(
        (condition for condition in conditions if condition.get("type") == names.DATA_READY), {}
    )
    return ready.get("status") != "True" or ready.get("reason") == Reason.TIMED_OUT


def nodes_alongside(job: Object | None) -> dict[str, list[str]]:
    """The nodes with the copies that an active job reads, present or planned, by Dataset."""
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
    """The use of a Dataset, from its present users and from its status.

    A use that ended while no operator ran counts as ended now.

    Args:
        users: the first pods, by name, that mount it and belong to no TrainingJob.
    """
    previous = status or DatasetStatus()
    was, active = previous.in_use or previous.active_jobs > 0, mounted or bool(jobs.active)
    more = len(jobs.active) > previous.active_jobs
    return UsersOfDataset(
        jobs=jobs,
        mounted=mounted,
        users=users,
        last_used=now if was != active else _past(previous.last_used_time, now=now),
        uses=tuple([*(past(time, now=now) for time in previous.uses), *([now] if more else ())][-USES_KEPT:]),
    )


def _past(time: str | None, *, now: str) -> str | None:
    return None if time is None else past(time, now=now)
