"""A PersistentVolumeClaim as a source: whether it can be one, when a pod has to serve it, and how that pod stands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import SOURCE_CLAIM_NOT_FOUND, SOURCE_CLAIM_NOT_SERVED, SOURCE_CLAIM_NOT_USABLE
from tdcs.decide.cache.wants import Want
from tdcs.decide.problem import RETRY_LATER, RETRY_SOON, Problem
from tdcs.model.claim_source import ClaimFolder
from tdcs.model.kube_objects import Object

_LONGEST: Final = 500
_WAITING_IS_USUAL: Final = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class Starting:
    """The pod cannot be asked yet. `text`: what it waits for, as a clause; empty while that is not known."""

    text: str = ""


def claim_problem(claim: Object | None, *, where: ClaimFolder) -> Problem | None:
    """Why a claim is no source; None when it can be one."""
    if claim is None:
        return Problem(
            reason=SOURCE_CLAIM_NOT_FOUND,
            message=f"{where} does not exist: create it in the namespace, or create the Dataset again with the name of "
            "one that exists",
            retry_after=RETRY_SOON,
        )
    if claim["metadata"].get("deletionTimestamp"):
        return _unusable(
            f"{where} is being deleted, and is not read any more: what is cached stays readable. Create the claim "
            "again, or create the Dataset again with the name of another one"
        )
    labels = claim["metadata"].get("labels") or {}
    if names.LABEL_DATASET_NAME in labels or names.LABEL_DATASET_UID in labels:
        return _unusable(
            f"{where} is the claim of a Dataset itself, whose pods read from the cache: name the Dataset's own source"
        )
    if (claim.get("spec") or {}).get("volumeMode") == "Block":
        return _unusable(f"{where} has the volumeMode Block, and has no files: name one with a file system")
    if (claim.get("status") or {}).get("phase") == "Lost":
        return _unusable(
            f"{where} has lost its volume (phase Lost): restore the PersistentVolume, or create the claim again"
        )
    return None


def address_of(pods: Iterable[Object]) -> str:
    """The address of the first ready pod; empty when none is ready."""
    for pod in pods:
        status = pod.get("status") or {}
        ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
        if ready and status.get("podIP") and not pod["metadata"].get("deletionTimestamp"):
            return str(status["podIP"])
    return ""


def waits_for(pods: Sequence[Object], *, warnings: Sequence[Object]) -> Starting:
    """What the pod waits for until it is ready, or why there is no pod.

    Args:
        warnings: events of the pod or of its Job, the newest last.
    """
    for pod in pods:
        status = pod.get("status") or {}
        for condition in status.get("conditions") or ():
            if (
                condition.get("type") == "PodScheduled"
                and condition.get("status") == "False"
                and condition.get("message")
            ):
                return Starting(f"no node takes its pod: {_short(condition['message'])}")
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") and waiting["reason"] not in _WAITING_IS_USUAL:
                message = _short(waiting.get("message") or "")
                return Starting(
                    f"its pod does not start: {waiting['reason']}" + (f" ({message})" if message else "")
                )
    if warnings:
        newest = warnings[-1]
        subject = "its pod does not start" if pods else "no pod is made"
        return Starting(f"{subject}: {newest.get('reason')}: {_short(newest.get('message') or '')}")
    return Starting()


def not_served(where: ClaimFolder, why: str) -> Problem:
    """The problem of a claim whose pod does not run."""
    return Problem(
        reason=SOURCE_CLAIM_NOT_SERVED,
        message=f"the pod that serves {where} to the cache does not run yet"
        + (f": {why}" if why else "")
        + ". See kubectl get pods,events -n "
        + f"{where.namespace} -l {names.LABEL_COMPONENT}={names.COMPONENT_CLAIM_SERVER}",
        retry_after=RETRY_SOON,
    )


def needs_source(*, missing: int, wants: Iterable[Want], is_read: bool) -> bool:
    """Whether the source of a mount is to be at hand.

    Args:
        missing: bytes that are still to be brought.
        wants: those of the mount.
        is_read: whether pods read it: what nobody wants to have cached comes from the source then.
    """
    return missing > 0 or (is_read and not any(want.load and want.subset.whole for want in wants))


def is_made_for(pod: Object, *, job: Object) -> bool:
    """Whether a Job owns a pod. Labels do not prove it, as anybody can write them."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == job["metadata"]["uid"] for owner in owners)


def _unusable(message: str) -> Problem:
    return Problem(reason=SOURCE_CLAIM_NOT_USABLE, message=message, retry_after=RETRY_LATER)


def _short(text: str) -> str:
    plain = " ".join(str(text).split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
