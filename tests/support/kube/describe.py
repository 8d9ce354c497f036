"""What a person would look at after a failed wait: objects with their conditions, and events."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.kube import Kube, KubeRequestError, Object, UnknownKindError

MAX_OBJECTS = 20
MAX_EVENTS = 25


def describe(kube: Kube, *, namespace: str, kinds: Sequence[str] = ("Job", "Pod")) -> str:
    """One line an object of ``kinds`` in ``namespace`` (cluster-wide kinds too), then the newest events.

    For ``eventually(..., describe=lambda: describe(kube, namespace=...))``.
    """
    lines: list[str] = []
    for kind in kinds:
        try:
            objects = kube.list(kind, namespace=namespace)
        except (KubeRequestError, UnknownKindError) as error:
            lines.append(f"{kind}: cannot be listed: {error}")
            continue
        lines.append(f"{kind}: {len(objects)} in {namespace}")
        # What has not got where it should is the interesting part, and usually the shorter one.
        objects.sort(key=_settled)
        lines += [f"  {object_line(item)}" for item in objects[:MAX_OBJECTS]]
        if len(objects) > MAX_OBJECTS:
            lines.append(f"  … and {len(objects) - MAX_OBJECTS} more")
    events = sorted(kube.list("Event", namespace=namespace), key=_when)
    lines.append(f"Events: {len(events)}")
    lines += [f"  {event_line(event)}" for event in events[-MAX_EVENTS:]]
    return "\n".join(lines)


def object_line(obj: Object) -> str:
    """Name, phase, node and conditions of an object, in one line."""
    status = obj.get("status") or {}
    parts = [obj["metadata"]["name"]]
    if phase := status.get("phase"):
        parts.append(phase)
    if node := (obj.get("spec") or {}).get("nodeName"):
        parts.append(f"on {node}")
    for cond in status.get("conditions") or ():
        text = f"{cond['type']}={cond['status']}"
        if cond["status"] != "True" and (why := cond.get("message") or cond.get("reason")):
            text += f" ({why})"
        parts.append(text)
    return " ".join(parts)


def event_line(event: Object) -> str:
    """Type, reason, object, message and count of an event, in one line."""
    about = event.get("involvedObject") or {}
    times = f" (x{event['count']})" if (event.get("count") or 1) > 1 else ""
    return (
        f"{event.get('type')} {event.get('reason')} {about.get('kind')}/{about.get('name')}: "
        f"{event.get('message')}{times}"
    )


def _settled(obj: Object) -> tuple[bool, str]:
    placed = bool((obj.get("spec") or {}).get("nodeName"))
    return placed, obj["metadata"]["name"]


def _when(event: Object) -> str:
    created = event["metadata"].get("creationTimestamp")
    return event.get("lastTimestamp") or event.get("eventTime") or created or ""
