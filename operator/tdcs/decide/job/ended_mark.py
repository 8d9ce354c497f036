"""The mark by which a job that has ended is known when a backup brings it back without its status.

A restored job has the annotations that it had and another uid. Without the mark the training that has ended, and that
somebody restored for its spec and its results, would begin again on as many GPUs as it finds.
"""

import json
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.api.durations import SKEW_SECONDS, seconds_between
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.model.kube_objects import Object

RESTORED = "Restored"
"""A backup brought the job back: it has ended already, or queues again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierEnd:
    """How a job had ended before it was restored, and when."""

    succeeded: bool
    time: str


def ended_mark(obj: Object, *, succeeded: bool, time: str) -> str:
    """What the annotation says of a job that has ended."""
    metadata = obj["metadata"]
    told = {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "state": _state(succeeded=succeeded),
        "time": time,
    }
    return json.dumps(told, separators=(",", ":"))


def has_mark(obj: Object) -> bool:
    """Whether a job says of itself that it has ended."""
    return bool(_told(obj).get("uid") == obj["metadata"]["uid"])


def earlier_end(obj: Object, known: TrainingJobStatus) -> EarlierEnd | None:
    """How a job had ended that was restored without its status; None of any other job.

    A copy of a job under another name is another job.
    """
    told, metadata = _told(obj), obj["metadata"]
    if told.get("name") != metadata["name"] or told.get("uid") in (None, metadata["uid"]) or known.conditions:
        return None
    return EarlierEnd(succeeded=told.get("state") == _state(succeeded=True), time=str(told.get("time") or ""))


def is_of_another_life(known: TrainingJobStatus, *, created: str) -> bool:
    """Whether the status of a job that runs came with it from a backup: the job was admitted before it was created, and
    holds nothing now.

    The API server's clock tells when it was created, the operator's when it was admitted: one that is behind would take
    each new job for a restored one, and end its pods, until it has caught up.
    """
    if any(is_true(known.conditions, each) for each in (names.SUCCEEDED, names.FAILED)):
        return False
    return any(
        (each.type, each.status) == (names.ADMITTED, "True")
        and seconds_between(each.last_transition_time, created) > SKEW_SECONDS
        for each in (known.conditions if created else ())
    )


def ended_before(
    end: EarlierEnd, known: TrainingJobStatus, *, now: str
) -> tuple[TrainingJobStatus, list[Finding]]:
    """What the status of such a job says, and its conditions."""
    how, when = "succeeded" if end.succeeded else "failed", end.time or "an unknown time"
    message = (
        f"it had {how} at {when} when it was backed up, "
        f"says its annotation {names.ANNOTATION_ENDED}; to run it again, create it without this annotation"
    )
    status = {
        "state": _state(succeeded=end.succeeded),
        "reason": RESTORED,
        "message": message,
        "completion_time": end.time or now,
    }
    return known.model_copy(update=status), [
        finding(names.ADMITTED, False, RESTORED, message),
        finding(names.SUCCEEDED if end.succeeded else names.FAILED, True, RESTORED, message),
    ]


def queues_again() -> tuple[TrainingJobStatus, list[Finding]]:
    """What the status of a job says that a backup brought back while it ran, and its conditions."""
    why = "it came back from a backup, and queues as any other job"
    return TrainingJobStatus(state="Waiting", reason=RESTORED, message=why), [
        finding(names.ADMITTED, False, RESTORED, why),
        finding(names.RUNNING, False, "NotAdmitted", why),
    ]


def _state(*, succeeded: bool) -> str:
    return "Succeeded" if succeeded else "Failed"


def _told(obj: Object) -> Object:
    text = str((obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_ENDED) or "")
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
