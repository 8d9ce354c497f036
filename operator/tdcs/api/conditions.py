"""Conditions: what is true of an object now, why, and since when."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tdcs.api import names
from tdcs.api.base import Model, list_map
from tdcs.api.durations import past

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
    *,
    previous: Sequence[Condition],
    findings: Iterable[Finding],
    generation: int,
    now: str,
    dropped: Collection[str] = (),
) -> list[Condition]:
    """The conditions after `findings`: the transition time moves only when a status changes.

    One that is still to come becomes now, so that what waits for it waits no longer than a clock was wrong. Conditions
    that no finding speaks of are kept as they are, but for those that do not apply to the object any more.

    Args:
        previous: the conditions of the object's status.
        findings: what holds now.
        generation: `metadata.generation` of the object that was looked at.
        now: the time, RFC 3339.
        dropped: the types that do not apply any more.
    """
    before = {condition.type: condition for condition in previous if condition.type not in dropped}
    for finding in findings:
        old = before.get(finding.type)
        is_same_status = old is not None and old.status == finding.status
        before[finding.type] = Condition(
            type=finding.type,
            status=finding.status,
            reason=finding.reason,
            message=shorten(finding.message),
            last_transition_time=past(old.last_transition_time, now=now)
            if old is not None and is_same_status
            else now,
            observed_generation=generation,
        )
    return list(before.values())


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    return any(condition.type == type_ and condition.status == "True" for condition in conditions)


def is_loaded(conditions: Iterable[Condition]) -> bool:
    """Whether a Dataset is loaded, and nothing of it is loaded again just now."""
    return any(
        condition.type == names.LOADED and condition.status == "True" and condition.reason != RELOADING
        for condition in conditions
    )


def shorten(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"


CACHE_STARTING = "CacheStarting"
"""A cache is new, and has not answered yet."""

CACHE_UNAVAILABLE = "CacheUnavailable"
"""A cache does not answer, for longer than a restart of it takes where something was ready."""

CLAIM_LOST = "ClaimLost"
"""The claim of a Dataset has lost its volume, which is made again: no new pod can mount it until the two are bound."""

CLAIM_REFUSED = "ClaimRefused"
"""The API server refuses the claim of a Dataset, such as by a quota: the data is there, and no pod can mount it."""

COPIES_ABOVE_MAXIMUM = "CopiesAboveMaximum"
"""A Dataset has more copies than spec.access.maxCopies allows."""

COPIES_WRONG = "CopiesWrong"
"""A comparison found copies that differ from the source, which were dropped."""

EVICTED = "Evicted"
"""A Dataset has left the cache because others need its room."""

EXPIRED = "Expired"
"""A Dataset has left the cache because its time is over."""

EXPORTING = "Exporting"
"""Alluxio is told of what is cached."""

FILES_FAILED = "FilesFailed"
"""All of a Dataset is there but files that cannot be had."""

KEPT_BY_TWIN = "KeptByTwin"
"""A Dataset's time in the cache is over, and another Dataset of the same source keeps its blocks there."""

LISTING_WAITS = "ListingWaits"
"""A source waits to be listed until others have been."""

LOAD_FAILED = "LoadFailed"
"""Data that is to be loaded does not come just now, and is tried again; a Preload with it may have failed."""

MASTER_AWAY = "MasterAway"
"""Alluxio's master does not answer, for longer than its restart takes: only Alluxio's own clients need it."""

MASTER_FULL = "MasterFull"
"""The heap of Alluxio's master has room for no more files: Alluxio's own clients see part of what is cached."""

NO_CACHE_NODE = "NoCacheNode"
"""No node that may hold the data has a live cache worker with free space."""

NO_RETRY_LEFT = "NoRetryLeft"
"""A pod of a job failed, and the job is about to fail by it."""

NO_ROOM_FOR_CLONE = "NoRoomForClone"
"""A clone finds no nodes, or no room on them."""

NOT_ALL_FITS = "NotAllFits"
"""The caches have no room for all that is wanted."""

PINNED_BEYOND_QUOTA = "PinnedBeyondQuota"
"""Pinned data that is there takes more than a quota allows."""

POD_FAILED = "PodFailed"
"""A pod of a job failed, and is made again."""

POD_LOST = "PodLost"
"""A pod of a job was evicted, or is gone, and all pods are restarted, as the others cannot go on without it."""

PRELOAD_DISABLED = "PreloadDisabled"
"""A Dataset is cached as jobs read it."""

QUOTA_EXCEEDED = "QuotaExceeded"
"""A quota allows less than is wanted."""

RELOADING = "Reloading"
"""A Dataset served, and some of it is loaded again, as its nodes, its source or its share of the cache have changed."""

SCHEDULE_NEVER_FIRES = "ScheduleNeverFires"
"""A cron line has no time to come."""

IDENTITY_UNANSWERED = "IdentityUnanswered"
"""What gives a ServiceAccount of a Dataset its keys does not answer."""

SOURCE_CLAIM_NOT_FOUND = "SourceClaimNotFound"
"""The PersistentVolumeClaim that is the source of a Dataset does not exist."""

SOURCE_CLAIM_NOT_SERVED = "SourceClaimNotServed"
"""The pod that gives the files of a claim to the cache does not run: no node takes it, or it is refused, say."""

SOURCE_CLAIM_NOT_USABLE = "SourceClaimNotUsable"
"""The claim that is the source of a Dataset has no files that could be read: it is being deleted, or lost its volume,
say."""

SOURCE_SHRUNK = "SourceShrunk"
"""A source has far less than the version that is served, and is not believed yet."""

TTL_SHORTER_THAN_LOAD = "TtlShorterThanLoad"
"""A Dataset leaves after a shorter time than its load takes."""

UNKNOWN_POLICY = "UnknownPolicy"
"""A Dataset names an eviction policy that is not installed."""

HOLDING_UP_PODS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "FailedAttachVolume",
        "FailedCreate",
        "FailedCreatePodSandBox",
        "FailedMapVolume",
        "FailedMount",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "PostStartHookError",
        "RegistryUnavailable",
        "RunContainerError",
        "SidecarRunning",
        "SignatureValidationFailed",
        "Unschedulable",
    }
)
"""Reasons of the scheduler, the kubelet and the Job controller: what keeps pods of a job from running."""

WARNINGS = HOLDING_UP_PODS | frozenset(
    {
        CACHE_UNAVAILABLE,
        CLAIM_LOST,
        CLAIM_REFUSED,
        COPIES_ABOVE_MAXIMUM,
        COPIES_WRONG,
        FILES_FAILED,
        MASTER_AWAY,
        MASTER_FULL,
        NOT_ALL_FITS,
        NO_CACHE_NODE,
        NO_RETRY_LEFT,
        NO_ROOM_FOR_CLONE,
        PINNED_BEYOND_QUOTA,
        POD_FAILED,
        POD_LOST,
        QUOTA_EXCEEDED,
        SCHEDULE_NEVER_FIRES,
        SOURCE_SHRUNK,
        TTL_SHORTER_THAN_LOAD,
        UNKNOWN_POLICY,
        "AmountTooSmall",
        "BucketNotAllowed",
        "CacheClusterDeleting",
        "CacheClusterNotFound",
        "CacheError",
        "CertificatesNotReady",
        "ChildNotMade",
        "ChildRefused",
        "DatasetBeingDeleted",
        "DatasetNotFound",
        "EndpointNotAllowed",
        "EndpointUnknown",
        "EngineCannotMount",
        "FolderNotAllowed",
        IDENTITY_UNANSWERED,
        "IdentityForbidden",
        "IdentityNotConfigured",
        "IdentityNotFound",
        "IdentityNotNamed",
        "IdentityRefused",
        "InUse",
        "InvalidCacheCluster",
        "InvalidSpec",
        "JobFailed",
        "KeysDiffer",
        "KeysRevoked",
        "KeysUnchecked",
        "LimitExceeded",
        LOAD_FAILED,
        "MountConflict",
        "MountLost",
        "NameTaken",
        "NetworksUnknown",
        "NoNodeIsLargeEnough",
        "NoNodeMatches",
        "NoPriorityClass",
        "NodesDidNotCome",
        "NodesDoNotFit",
        "NotAllPodsPlaced",
        "NotShared",
        "Preempted",
        "RecoveryTimeout",
        "StartTimeout",
        "PathNotFound",
        "PersistentVolumeClaimNotFound",
        "PortsReachable",
        "PriorityClassNotFound",
        "QuotaTooSmall",
        "SecretForbidden",
        "SecretIncomplete",
        "SecretNotFound",
        SOURCE_CLAIM_NOT_FOUND,
        SOURCE_CLAIM_NOT_SERVED,
        SOURCE_CLAIM_NOT_USABLE,
        "SourceEmpty",
        "SourceNotAllowed",
        "SourceRefused",
        "TooFewNodes",
        "VerifyFailed",
        "WorkerLost",
        "WrongNamespace",
    }
)
"""Reasons that call for a person: their events are of type Warning, and so are their lines in the log."""
