"""A Workload of Kueue as its check on data sees it, whichever kind of job it stands for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tdcs.kube.api import Object
from tdcs.kube.objects import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedWorkload:
    """A Workload with a check of ours.

    Attributes:
        key: its namespace and name.
        uid: of this incarnation of it.
        created: when it was created.
        priority: larger is admitted first.
        claims: the claims that its pods mount, each once; that of a Dataset has the Dataset's name.
        reserved_since: when its quota was reserved; None while it is not.
        closed: whether there is nothing to say about it: it is admitted, evicted, ended, not active, or being deleted.
        state: of the check, as it stands there; empty before anything was said.
        message: the same of its sentence.
        since: when that state was entered.
    """

    key: Key
    uid: str
    created: str
    priority: int = 0
    claims: tuple[str, ...] = ()
    reserved_since: str | None = None
    closed: bool = False
    state: str = ""
    message: str = ""
    since: str = ""

    @property
    def order(self) -> tuple[int, str, str]:
        """Sorts those that wait, the first first: by priority, then by age."""
        return -self.priority, self.created, self.uid


def checked_workload(obj: Object, *, check: str) -> CheckedWorkload | None:
    """A Workload that has the check of this name; None for others."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    own = next((each for each in status.get("admissionChecks") or () if each.get("name") == check), None)
    if own is None:
        return None
    metadata = obj["metadata"]
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    true = {kind for kind, each in conditions.items() if each.get("status") == "True"}
    reserved = conditions["QuotaReserved"] if "QuotaReserved" in true else None
    return CheckedWorkload(
        key=(metadata["namespace"], metadata["name"]),
        uid=str(metadata.get("uid", "")),
        created=str(metadata.get("creationTimestamp", "")),
        priority=int(spec.get("priority") or 0),
        claims=_claims(spec),
        reserved_since=None if reserved is None else str(reserved.get("lastTransitionTime", "")),
        closed=bool(true & {"Admitted", "Evicted", "Finished"})
        or spec.get("active") is False
        or bool(metadata.get("deletionTimestamp")),
        state=str(own.get("state", "")),
        message=str(own.get("message", "")),
        since=str(own.get("lastTransitionTime", "")),
    )


def _claims(spec: Mapping[str, Any]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for pods in spec.get("podSets") or ():
        pod = (pods.get("template") or {}).get("spec") or {}
        for volume in pod.get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name:
                found[str(name)] = None
    return tuple(found)
