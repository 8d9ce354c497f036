"""Publishing a status: only when it differs, with an event for each condition that changed."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tdcs.api import names
from tdcs.api.base import Model
from tdcs.api.conditions import WARNINGS, Condition, Finding, merge
from tdcs.control.context import Context
from tdcs.kube.errors import ConflictError, NotFoundError
from tdcs.kube.events import EventType
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource

_log = logging.getLogger(__name__)

QUIET = frozenset(
    {"AllPodsRun", "Finished", "NotAdmitted", "NotQueued", "PodsStarting", "Resumed", "VolumeNotBound"}
)
"""Reasons of conditions that merely follow from another one, which has an event already."""


def current(obj: Object) -> dict[str, Any]:
    """The status as it is on the server."""
    return dict(obj.get("status") or {})


def conditions_of(obj: Object) -> list[Condition]:
    """The conditions of an object's status; those that do not parse are left out."""
    return [
        Condition.model_validate(raw)
        for raw in current(obj).get("conditions") or ()
        if isinstance(raw, Mapping) and {"type", "status", "reason", "lastTransitionTime"} <= raw.keys()
    ]


def changed(*, before: Sequence[Condition], after: Sequence[Condition]) -> list[Condition]:
    """The conditions that get an event: those with a new status or reason, and mistakes of another spec.

    Those that merely started as False get none, nor those that are Unknown (what they wait for has its own event), nor
    those that only follow from another. Of two with one reason the one with the shorter message gets none if the longer
    message contains it, as that of Ready contains the cause of a failure. What calls for a person is told once,
    by the longest message, and not again by a condition that is concluded from it later.
    """
    old_by_type = {condition.type: condition for condition in before}
    told = {(condition.type, condition.reason) for condition in before if condition.reason in WARNINGS}
    changes: list[Condition] = []
    for condition in after:
        old = old_by_type.get(condition.type)
        if old is None:
            fresh = condition.status == "True" or condition.reason in WARNINGS
        else:
            fresh = (old.status, old.reason) != (condition.status, condition.reason) or _is_another_mistake(
                old, condition
            )
        follows = any(type_ != condition.type and reason == condition.reason for type_, reason in told)
        if follows and not _is_worse(old, condition):
            fresh = old is not None and _is_another_mistake(old, condition)
        if not fresh or condition.status == "Unknown" or condition.reason in QUIET:
            continue
        alike = [earlier for earlier in changes if earlier.reason == condition.reason]
        is_warning = condition.reason in WARNINGS
        if any(
            condition.message in earlier.message
            or (is_warning and len(condition.message) <= len(earlier.message))
            for earlier in alike
        ):
            continue
        contained = [earlier for earlier in alike if is_warning or earlier.message in condition.message]
        changes = [*(earlier for earlier in changes if earlier not in contained), condition]
    return changes


def _is_worse(old: Condition | None, new: Condition) -> bool:
    """Whether something holds no more, or it has failed for good: news, also for a reason that was told."""
    if new.type == names.FAILED:
        return new.status == "True" and (old is None or old.status != "True")
    return old is not None and (old.status, new.status) == ("True", "False")


def _is_another_mistake(old: Condition, new: Condition) -> bool:
    """Whether a changed spec is wrong for the same reason in another way, as with a second Secret that is not there."""
    changes = old.observed_generation != new.observed_generation and old.message != new.message
    return changes and new.reason in WARNINGS


def _compared(status: Mapping[str, Any], alongside: Collection[str], *, messages: bool) -> dict[str, Any]:
    """What of a status is a reason to write it."""
    fields = {name: value for name, value in status.items() if name not in alongside}
    if not messages:
        conditions = fields.get("conditions") or ()
        fields["conditions"] = [
            (condition.get("type"), condition.get("status"), condition.get("reason"))
            for condition in conditions
        ]
    return fields


async def publish_status(
    *,
    context: Context,
    resource: Resource,
    obj: Object,
    status: Model,
    findings: Sequence[Finding],
    dropped: Collection[str] = (),
    alongside: Collection[str] = (),
    messages: bool = True,
    unchanged: bool = False,
) -> Object:
    """Write the status if it differs from what `obj` carries, then record an event for each condition that changed.

    Args:
        resource: the kind of `obj`.
        obj: the custom resource as read in this pass.
        status: the wanted status; its conditions and generation are filled in here.
        dropped: types of conditions that do not apply to the object any more.
        alongside: fields that are written next to others only: when nothing else differs, they are no reason to write.
        messages: whether another message of a condition is a reason to write.
        unchanged: write only if nobody has changed the object since it was read.

    Returns:
        The object with its new status. An object that was deleted, or changed, meanwhile is not written.
    """
    metadata = obj["metadata"]
    generation = int(metadata.get("generation", 0))
    previous = conditions_of(obj)
    conditions = merge(
        previous=previous, findings=findings, generation=generation, now=context.now(), dropped=dropped
    )
    new_status = {
        **status.model_dump(by_alias=True, exclude_none=True, mode="json"),
        "observedGeneration": generation,
        "conditions": [condition.model_dump(by_alias=True, mode="json") for condition in conditions],
    }
    if _compared(new_status, alongside, messages=messages) == _compared(
        current(obj), alongside, messages=messages
    ):
        return obj
    known_by = ("name", "namespace", "uid", *(("resourceVersion",) if unchanged else ()))
    identity = {key: metadata[key] for key in known_by if metadata.get(key)}
    try:
        await context.api.apply_status(resource, obj={"metadata": identity, "status": new_status})
    except (NotFoundError, ConflictError):
        return obj  # deleted, or deleted and made again: the next pass sees the new one
    for condition in changed(before=previous, after=conditions):
        warns = condition.reason in WARNINGS
        _log.log(
            logging.WARNING if warns else logging.INFO,
            "%s %s: %s is %s (%s): %s",
            obj["kind"],
            "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part),
            condition.type,
            condition.status,
            condition.reason,
            condition.message,
        )
        type_: EventType = "Warning" if warns else "Normal"
        await context.recorder.record(
            about=obj, reason=condition.reason, message=condition.message or condition.type, type_=type_
        )
    return {**obj, "status": new_status}
