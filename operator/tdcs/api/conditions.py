"""Conditions: what is true of an object now, why, and since when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tdcs.api.base import Model, list_map

Status = Literal["True", "False", "Unknown"]

MESSAGE_LIMIT = 1024
"""Characters of a message that are kept: enough for a cause and a remedy, bounded for etcd."""


class Condition(Model):
    """One aspect of the object's state, in the form that all Kubernetes tools read."""

    type: Annotated[str, Field(max_length=316)]
    """The aspect, such as Ready."""
    status: Status
    """Whether it holds; Unknown before the first look."""
    reason: Annotated[str, Field(max_length=1024, min_length=1)]
    """Why, as one word for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, as a sentence for people, with what to do about it."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the spec that this was concluded from."""


Conditions = Annotated[list[Condition], Field(max_length=16, json_schema_extra=list_map("type"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a controller concludes about one aspect; time and generation are added on the way out."""

    type: str
    status: Status
    reason: str
    message: str = ""


def finding(type_: str, status: bool | None, reason: str, message: str = "") -> Finding:
    """A finding from a truth value; None is Unknown."""
    text: Status = "Unknown" if status is None else "True" if status else "False"
    return Finding(type=type_, status=text, reason=reason, message=message)


def merge(
    *, known: Sequence[Condition], findings: Iterable[Finding], generation: int, now: str
) -> list[Condition]:
    """The conditions after `findings`: the transition time moves only when a status changes.

    Conditions that no finding speaks of are kept as they are.

    Args:
        known: the conditions of the object's status.
        findings: what holds now.
        generation: `metadata.generation` of the object that was looked at.
        now: the time, RFC 3339.
    """
    before = {condition.type: condition for condition in known}
    for found in findings:
        old = before.get(found.type)
        kept = old is not None and old.status == found.status
        before[found.type] = Condition(
            type=found.type,
            status=found.status,
            reason=found.reason,
            message=shorten(found.message),
            last_transition_time=old.last_transition_time if old is not None and kept else now,
            observed_generation=generation,
        )
    return list(before.values())


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition of this type is there and True."""
    return any(condition.type == type_ and condition.status == "True" for condition in conditions)


def shorten(message: str) -> str:
    """The message, cut to the limit."""
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"


WARNINGS = frozenset(
    {
        "AmountTooSmall",
        "CacheClusterDeleting",
        "CacheClusterNotFound",
        "CacheUnavailable",
        "CertificatesNotReady",
        "ChildRefused",
        "CopiesWrong",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "DatasetNotFound",
        "ErrImagePull",
        "FailedCreate",
        "FailedMount",
        "FolderNotAllowed",
        "ImagePullBackOff",
        "InvalidImageName",
        "InvalidSpec",
        "JobFailed",
        "KeysDiffer",
        "LimitExceeded",
        "LoadFailed",
        "MountConflict",
        "MountLost",
        "NameTaken",
        "NoCacheNode",
        "NoNodeIsLargeEnough",
        "NodesDoNotFit",
        "NotAllFits",
        "NotAllPodsPlaced",
        "PathNotFound",
        "PinnedBeyondQuota",
        "PodFailed",
        "PriorityClassNotFound",
        "ScheduleNeverFires",
        "SecretForbidden",
        "SecretIncomplete",
        "SecretNotFound",
        "SecretNotNamed",
        "SourceEmpty",
        "SourceRefused",
        "TooFewNodes",
        "TtlShorterThanLoad",
        "VerifyFailed",
        "Unschedulable",
        "WorkerLost",
        "WrongNamespace",
    }
)
"""Reasons that call for a person: their events are of type Warning."""
