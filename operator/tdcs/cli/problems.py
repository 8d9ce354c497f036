"""Which objects need a person, and why: from what their statuses say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tdcs.api import names
from tdcs.api.conditions import CACHE_STARTING, POD_FAILED, WARNINGS
from tdcs.api.durations import seconds_between
from tdcs.model.kube_objects import Object

_BY_ITSELF: Final = frozenset({"", "PodsStarting", POD_FAILED, "EarlierJobGoing"})
"""Reasons of jobs that start, or start again, without anybody's help."""

_NEEDS_A_PERSON: Final = WARNINGS - _BY_ITSELF
"""Reasons of jobs and Preloads that wait until somebody mends something."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectProblem:
    """What is wrong with an object, and what to do."""

    kind: str
    namespace: str
    name: str
    message: str


LASTS_SECONDS: Final = 300.0
"""An object that is still there so long after it was deleted waits for something that a person may want to end."""


def problems(objects: Mapping[str, Sequence[Object]], *, now: str) -> Iterator[ObjectProblem]:
    """What needs a person, in the objects of each kind; `now`: the time."""
    for kind, objects_of_kind in objects.items():
        for obj in objects_of_kind:
            metadata = obj["metadata"]
            for message in dict.fromkeys((*_complaints(obj), *_hindrances(kind, obj), *_remains(obj, now))):
                yield ObjectProblem(
                    kind=kind,
                    namespace=str(metadata.get("namespace", "")),
                    name=str(metadata["name"]),
                    message=message,
                )


REPEATED_CHARACTERS: Final = 40
"""A shorter message is written again where it is part of another one: a reference would not be shorter."""

NAMED_TOGETHER: Final = 4
"""So many objects with the same problem are named; the others are counted."""


def once(problems_of_objects: Iterable[ObjectProblem]) -> Iterator[str]:
    """A line for each problem, with every message once: objects of a kind with the same problem share a line, and what
    another one's message repeats of an earlier one's (a job says what its Dataset lacks) becomes a reference."""
    groups: dict[tuple[str, str], list[str]] = {}
    for problem in problems_of_objects:
        title = f"{problem.namespace}/{problem.name}" if problem.namespace else problem.name
        groups.setdefault((problem.kind, problem.message), []).append(title)
    groups_before: list[tuple[str, str]] = []
    for (kind, message), titles in groups.items():
        text = message
        for earlier, where in groups_before:
            if earlier in text:
                text = text.replace(earlier, "as above" if where == f"{kind} {titles[0]}" else f"see {where}")
        if len(message) >= REPEATED_CHARACTERS:
            groups_before.append((message, f"{kind} {titles[0]}"))
        more = f" and {len(titles) - NAMED_TOGETHER} more" if len(titles) > NAMED_TOGETHER else ""
        yield f"{kind} {', '.join(titles[:NAMED_TOGETHER])}{more}: {text}"


def _complaints(obj: Object) -> list[str]:
    """The messages of conditions that are not as they should be, each once."""
    state = _status(obj).get("state", "")
    if state == "Deleting":
        return []  # see `_remains`: what it lacked does not matter any more
    bad: dict[str, None] = {}
    for condition in _status(obj).get("conditions") or ():
        kind, status = condition.get("type"), condition.get("status")
        wrong = (
            (kind in {names.SOURCE_REACHABLE, names.NETWORK_ISOLATED} and status == "False")
            or (kind in {names.PLACED, names.GRANTED} and status == "False" and state != "Evicted")
            or (kind == names.GRANTED and status == "True" and condition.get("reason") in WARNINGS)
            or (kind == names.PROGRESSING and status == "False" and condition.get("reason") in WARNINGS)
            or (kind == names.FAILED and status == "True")
            or (
                kind == names.READY
                and status == "False"
                and state in {"Failed", "Pending", ""}
                and condition.get("reason") != CACHE_STARTING
            )
        )
        if wrong and condition.get("message"):
            bad[str(condition["message"])] = None
    return list(bad)


def _hindrances(kind: str, obj: Object) -> list[str]:
    """Why a job or a Preload does not go on, when that does not pass by itself."""
    status = _status(obj)
    state = status.get("state")
    if kind == "Preload":
        source = _condition(obj, names.COMPLETE)
        needed = state == "Pending" and source.get("reason") in _NEEDS_A_PERSON
    elif kind == "TrainingJob":
        source = status
        needed = state == "Failed" or (state != "Succeeded" and _holds_up(state, status.get("reason", "")))
    else:
        return []
    return [str(source.get("message") or source.get("reason") or state)] if needed else []


def _remains(obj: Object, now: str) -> list[str]:
    """Why an object is still there that was deleted a while ago."""
    metadata = obj["metadata"]
    since = metadata.get("deletionTimestamp")
    if not since or seconds_between(str(since), now) < LASTS_SECONDS:
        return []
    ready = _condition(obj, names.READY)
    if _status(obj).get("state") == "Deleting" and ready.get("message"):
        why = str(ready["message"])
    else:
        finalizers = ", ".join(metadata.get("finalizers") or ()) or "none"
        why = f"its finalizers ({finalizers}) are not removed: see its events, and whether the operator runs"
    return [f"deleted at {since}, and still there: {why}"]


def _holds_up(state: str | None, reason: str) -> bool:
    # A job with pods otherwise quotes whatever holds them up, with reasons of the scheduler and the kubelet.
    return reason not in _BY_ITSELF if state in {"Starting", "Restarting"} else reason in _NEEDS_A_PERSON


def _status(obj: Object) -> Mapping[str, Any]:
    return obj.get("status") or {}


def _condition(obj: Object, kind: str) -> Mapping[str, Any]:
    conditions = _status(obj).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})
