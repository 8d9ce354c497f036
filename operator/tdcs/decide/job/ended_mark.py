"""The annotation that marks an ended job, so that it is recognised when a backup restores it without its status.

A restored job keeps its annotations and gets a new uid. Without the mark, a finished training that was restored for its
spec and results would start again and take GPUs.
"""

import json
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.api.durations import SKEW_SECONDS, is_time, seconds_between
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.model.kube_objects import Object

RESTORED = "Restored"
"""A backup brought the job back: it has ended already, or queues again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierEnd:
    """How a job had ended before it was restored, and when; `time` is empty when the mark has no valid one."""

    succeeded: bool
    time: str


def ended_mark(obj: Object, *, succeeded: bool, time: str) -> str:
    """The value of the annotation of a job that has ended."""
    metadata = obj["metadata"]
    mark = {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "state": _state(succeeded=succeeded),
        "time": time,
    }
    return json.dumps(mark, separators=(",", ":"))


def has_mark(obj: Object) -> bool:
    """Whether the job carries the annotation with its own uid."""
    return bool(_mark_of(obj).get("uid") == obj["metadata"]["uid"])


def earlier_end(obj: Object, status: TrainingJobStatus) -> EarlierEnd | None:
    """How a job that was restored without its status had ended; None for any other job.

    A copy under another name is a new job.
    """
    mark, metadata = _mark_of(obj), obj["metadata"]
    if (
        mark.get("name") != metadata["name"]
        or mark.get("uid") in (None, metadata["uid"])
        or status.conditions
    ):
        return None
    time = str(mark.get("time") or "")
    return EarlierEnd(
        succeeded=mark.get("state") == _state(succeeded=True), time=time if is_time(time) else ""
    )


def is_of_another_life(status: TrainingJobStatus, *, created: str) -> bool:
    """Whether the status of a running job was restored from a backup: the job was admitted before it was created, so it
    holds nothing now.

    The creation time is of the API server's clock, the admission time of the operator's. `SKEW_SECONDS` allows for an
    operator's clock that is behind: otherwise every new job would look restored, and its pods would be ended.
    """
    if any(is_true(status.conditions, type_) for type_ in (names.SUCCEEDED, names.FAILED)):
        return False
    return any(
        (condition.type, condition.status) == (names.ADMITTED, "True")
        and seconds_between(condition.last_transition_time, created) > SKEW_SECONDS
        for condition in (status.conditions if created else ())
    )


def ended_before(
    end: EarlierEnd, status: TrainingJobStatus, *, now: str
) -> tuple[TrainingJobStatus, list[Finding]]:
    """The status and conditions of a restored job that had ended."""
    how, when = "succeeded" if end.succeeded else "failed", end.time or "an unknown time"
    message = (
        f"it had {how} at {when} when it was backed up, "
        f"says its annotation {names.ANNOTATION_ENDED}; to run it again, create it without this annotation"
    )
    changes = {
        "state": _state(succeeded=end.succeeded),
        "reason": RESTORED,
        "message": message,
        "completion_time": end.time or now,
    }
    return status.model_copy(update=changes), [
        finding(names.ADMITTED, False, RESTORED, message),
        finding(names.SUCCEEDED if end.succeeded else names.FAILED, True, RESTORED, message),
    ]


def queues_again() -> tuple[TrainingJobStatus, list[Finding]]:
    """The status and conditions of a job that was running when it was backed up."""
    why = "it came back from a backup, and queues as any other job"
    return TrainingJobStatus(state="Waiting", reason=RESTORED, message=why), [
        finding(names.ADMITTED, False, RESTORED, why),
        finding(names.RUNNING, False, "NotAdmitted", why),
    ]


def _state(*, succeeded: bool) -> str:
    return "Succeeded" if succeeded else "Failed"


def _mark_of(obj: Object) -> Object:
    text = str((obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_ENDED) or "")
    try:
        mark = json.loads(text) if text else {}
    except ValueError:
        return {}
    return mark if isinstance(mark, dict) else {}
