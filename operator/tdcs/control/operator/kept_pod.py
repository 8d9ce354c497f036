"""What the operator keeps of a job's pod: under 1 KB of the 30 KB that the API server sends.

The shape is that of a pod, so that whoever reads one need not know whether it was kept or read. What pods of a job have
in common (labels, owner, node, scheduler) is one object for all of them.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from tdcs.api import names
from tdcs.control.node_usage import addresses_of_pod, claims_of, takes_of
from tdcs.model.job_pods import QUOTE_LIMIT
from tdcs.model.kube_objects import Object

METADATA: Final = (
    *("name", "namespace", "uid", "resourceVersion"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
)
LABELS: Final = (names.LABEL_TRAINING_JOB, names.LABEL_ROLE)
CONDITIONS: Final = frozenset({"PodScheduled", "Ready", "DisruptionTarget"})
CONDITION: Final = ("type", "status", "reason", "lastTransitionTime")


def kept_pod(pod: Object) -> Object:
    """A pod of a job without what no decision reads: its environment, volumes, images and managers."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    index = (metadata.get("annotations") or {}).get(names.ANNOTATION_COMPLETION_INDEX)
    slim_metadata: dict[str, Any] = {field: metadata[field] for field in METADATA if field in metadata}
    slim_metadata["labels"] = _labels(*(str(labels.get(label) or "") for label in LABELS))
    if index is not None:
        slim_metadata["annotations"] = _annotations(str(index))
    owners = metadata.get("ownerReferences") or ()
    slim_metadata["ownerReferences"] = _owners(
        tuple((str(owner.get("uid")), bool(owner.get("controller"))) for owner in owners)
    )
    return {
        "metadata": slim_metadata,
        "spec": _spec(str(spec.get("nodeName") or ""), str(spec.get("schedulerName") or "")),
        "status": _status(status),
        "takes": takes_of(pod),
        "claims": claims_of(pod),
        "addresses": addresses_of_pod(pod),
    }


def _status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    phase = str(status.get("phase") or "Pending")
    conditions = [
        condition for condition in status.get("conditions") or () if condition.get("type") in CONDITIONS
    ]
    quiet = tuple(
        tuple(str(condition.get(field) or "") for field in CONDITION)
        for condition in conditions
        if not condition.get("message")
    )
    slim_status: dict[str, Any] = {
        "phase": _one(phase),
        "conditions": [_condition(condition) for condition in conditions],
    }
    for field in ("reason", "message"):
        if status.get(field):
            slim_status[field] = _text(status[field])
    for field in ("initContainerStatuses", "containerStatuses"):
        if containers := _containers(status.get(field) or ()):
            slim_status[field] = containers
    says_no_more = len(slim_status) == len(_quiet_status("", ())) and len(quiet) == len(conditions)
    return _quiet_status(phase, quiet) if says_no_more else slim_status


def _condition(condition: Mapping[str, Any]) -> Mapping[str, str]:
    if condition.get("message"):
        short = {field: _one(str(condition[field])) for field in CONDITION if condition.get(field)}
        return {**short, "message": _text(condition["message"])}
    return _quiet_condition(*(str(condition.get(field) or "") for field in CONDITION))


def _containers(statuses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The containers that wait or have ended; those that run say nothing."""
    containers = []
    for container in statuses:
        state = container.get("state") or {}
        states = {
            kind: {
                field: _text(value) if isinstance(value, str) else value
                for field in ("reason", "message", "exitCode", "finishedAt")
                if (value := state[kind].get(field)) is not None
            }
            for kind in ("waiting", "terminated")
            if state.get(kind)
        }
        if states:
            containers.append({"name": container.get("name", ""), "state": states})
    return containers


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= 2 * QUOTE_LIMIT else text[: 2 * QUOTE_LIMIT]


@lru_cache(maxsize=1 << 16)
def _one(text: str) -> str:
    """The same string for all that are equal."""
    return text


@lru_cache(maxsize=1 << 16)
def _labels(job: str, role: str) -> Mapping[str, str]:
    return {label: value for label, value in zip(LABELS, (job, role), strict=True) if value}


@lru_cache(maxsize=1 << 12)
def _annotations(index: str) -> Mapping[str, str]:
    return {names.ANNOTATION_COMPLETION_INDEX: index}


@lru_cache(maxsize=1 << 16)
def _owners(owners: tuple[tuple[str, bool], ...]) -> Sequence[Mapping[str, Any]]:
    return [{"uid": uid, "controller": controller} for uid, controller in owners]


@lru_cache(maxsize=1 << 16)
def _spec(node: str, scheduler: str) -> Mapping[str, str]:
    return {**({"nodeName": node} if node else {}), **({"schedulerName": scheduler} if scheduler else {})}


@lru_cache(maxsize=1 << 14)
def _quiet_status(phase: str, conditions: tuple[tuple[str, ...], ...]) -> Mapping[str, Any]:
    return {"phase": _one(phase), "conditions": [_quiet_condition(*condition) for condition in conditions]}


@lru_cache(maxsize=1 << 16)
def _quiet_condition(*values: str) -> Mapping[str, str]:
    return {field: value for field, value in zip(CONDITION, values, strict=True) if value}
