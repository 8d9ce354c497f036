"""A Workload of Kueue as its check on data sees it, whichever kind of job it stands for."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tdcs.api import names
from tdcs.decide.kueue.workload_hold import RETRY, is_on_hold
from tdcs.model.kube_objects import Key, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class MountingPodSet:
    """Pods of one kind of a Workload.

    Attributes:
        name: of the pod set.
        claims: that its pods mount, each once.
        by_claims: whether these say what its pods read: their template does not, and leaves it to the claims.
    """

    name: str
    claims: tuple[str, ...]
    by_claims: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedWorkload:
    """A Workload with a check of ours.

    Attributes:
        key: its namespace and name.
        uid: of this incarnation of it.
        version: the resourceVersion of what is seen here of it.
        priority: larger is admitted first.
        pod_sets: its pods.
        reserved_since: when its quota was reserved; None while it is not.
        on_hold: whether it waits outside of the queue for its data, see `tdcs.decide.kueue.workload_hold`.
        may_hold: whether it stays there until it is queued again: Kueue queues those of StatefulSets at once.
        closed: whether there is nothing to say about it: it is admitted, being evicted, ended, not active, or being
            deleted.
        state: of the check, as it stands there; empty before anything was said.
    """

    key: Key
    uid: str
    version: str
    created: str
    priority: int = 0
    pod_sets: tuple[MountingPodSet, ...] = ()
    reserved_since: str | None = None
    on_hold: bool = False
    may_hold: bool = True
    closed: bool = False
    state: str = ""
    message: str = ""
    since: str = ""

    @property
    def retries(self) -> bool:
        """Whether its check says that it is to be tried again."""
        return self.state == RETRY

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims that its pods mount, each once; that of a Dataset has the Dataset's name."""
        return tuple(dict.fromkeys(claim for pods in self.pod_sets for claim in pods.claims))

    @property
    def order(self) -> tuple[int, str, str]:
        """Sorts those that wait, the first first: by priority, then by age."""
        return -self.priority, self.created, self.uid


def checked_workload(obj: Object, *, check: str, ours: Collection[str]) -> CheckedWorkload | None:
    """A Workload that has the check of this name; None for others.

    Args:
        ours: names of all checks that TDCS answers.
    """
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    own_state = next(
        (state for state in status.get("admissionChecks") or () if state.get("name") == check), None
    )
    if own_state is None:
        return None
    metadata = obj["metadata"]
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    true = {kind for kind, condition in conditions.items() if condition.get("status") == "True"}
    reserved = conditions["QuotaReserved"] if "QuotaReserved" in true else None
    return CheckedWorkload(
        key=(metadata["namespace"], metadata["name"]),
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        created=str(metadata.get("creationTimestamp", "")),
        priority=int(spec.get("priority") or 0),
        pod_sets=tuple(map(_pod_set, spec.get("podSets") or ())),
        reserved_since=None if reserved is None else str(reserved.get("lastTransitionTime", "")),
        on_hold=is_on_hold(obj) and (own_state.get("state") == RETRY or not _any_retries(status, ours=ours)),
        may_hold=not any(
            owner.get("kind") == "StatefulSet" for owner in metadata.get("ownerReferences") or ()
        ),
        # Evicted it stays until it has quota again: without quota it waits as any other does.
        closed=bool(true & {"Admitted", "Finished"})
        or {"Evicted", "QuotaReserved"} <= true
        or spec.get("active") is False
        or bool(metadata.get("deletionTimestamp")),
        state=str(own_state.get("state", "")),
        message=str(own_state.get("message", "")),
        since=str(own_state.get("lastTransitionTime", "")),
    )


def _any_retries(status: Mapping[str, Any], *, ours: Collection[str]) -> bool:
    checks = status.get("admissionChecks") or ()
    return any(state.get("state") == RETRY and state.get("name") in ours for state in checks)


def is_finished(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == "Finished" and condition.get("status") == "True" for condition in conditions
    )


def copies_read(obj: Object) -> dict[str, str]:
    """The copies that its checks have handed out to the pods of a Workload, by the names of their Datasets."""
    copy_of: dict[str, str] = {}
    for check in (obj.get("status") or {}).get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            text = (update.get("annotations") or {}).get(names.ANNOTATION_DATASETS)
            copy_of |= _copies(text) if text else {}
    return copy_of


def _copies(text: str) -> dict[str, str]:
    try:
        return {str(entry["dataset"]).partition("/")[2]: str(entry["copy"]) for entry in json.loads(text)}
    except (ValueError, TypeError, KeyError):
        return {}  # another controller's check wrote it


def _pod_set(pods: Mapping[str, Any]) -> MountingPodSet:
    template = pods.get("template") or {}
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    mounted = (
        (volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in pod.get("volumes") or ()
    )
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return MountingPodSet(
        name=str(pods.get("name", "")),
        claims=tuple(dict.fromkeys(str(name) for name in mounted if name)),
        by_claims=names.ANNOTATION_DATASETS not in annotations
        and labels.get(names.LABEL_PLACE_BY_DATA) != "false",
    )
