"""What holds for objects of any kind: their keys, whether they have ended, and their finalizers."""

from collections.abc import Mapping
from typing import Any, Literal

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is the empty string."""

ENDED_POD_PHASES = frozenset({"Succeeded", "Failed"})
"""Phases in which the containers of a pod have ended for good."""

UNENDED_PODS = ",".join(f"status.phase!={phase}" for phase in sorted(ENDED_POD_PHASES, reverse=True))
"""Field selector of the pods that have not ended."""


def object_key(obj: Object) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def pod_has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod takes nothing of its node any more."""
    return (pod.get("status") or {}).get("phase") in ENDED_POD_PHASES


def job_ending(job: Mapping[str, Any]) -> Literal["Complete", "Failed"] | None:
    """How a Job of the Job controller has ended; None while it has not."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in {"Complete", "Failed"}:
            return "Complete" if condition["type"] == "Complete" else "Failed"
    return None


def with_finalizer(obj: Object, *, finalizer: str) -> list[str] | None:
    """The finalizers of an object and this one; None when it is there already."""
    finalizers = list(obj["metadata"].get("finalizers") or ())
    return None if finalizer in finalizers else [*finalizers, finalizer]


def without_finalizer(obj: Object, *, finalizer: str) -> list[str] | None:
    """The finalizers of an object without this one; None when it is not there."""
    finalizers = list(obj["metadata"].get("finalizers") or ())
    return [name for name in finalizers if name != finalizer] if finalizer in finalizers else None
