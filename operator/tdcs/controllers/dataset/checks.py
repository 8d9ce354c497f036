"""When the source itself is to be listed for changes. Pure, but for the clock that is given."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.durations import to_seconds
from tdcs.controllers.clock import seconds_between
from tdcs.controllers.context import Stores
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.sharing import Reader, preloads_of

LISTING_SHARE = 20.0
"""A dataset that rests is listed for at most one part in so many of the time."""


TOLD_AGAIN = 3600.0
"""Seconds after which the time of a check that changed nothing is told: many Datasets that rest are no stream of
writes."""

CHECK_TIME = "lastSourceCheckTime"


def untold(told: str | None, *, now: str) -> tuple[str, ...]:
    """The fields of a status that are no reason to write it, when the time of a check was last told at `told`."""
    recent = told is not None and seconds_between(told, now) < TOLD_AGAIN
    return (CHECK_TIME,) if recent else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether the source is to be listed now.

    Attributes:
        due: list it with this pass.
        seconds_left: seconds until the one after that.
        asked: the value of the annotation tdcs.io/refresh, None without one.
        answered: the value that was acted upon before.
    """

    due: bool
    seconds_left: float
    asked: str | None = None
    answered: str | None = None


def next_check(
    *, me: Reader, users: Sequence[Reader], data: MountedData, clock: Callable[[], float], now: str
) -> Check:
    """By the shortest interval of all who read the mount.

    At once for a new value of the annotation, and when a load has met files that have changed or may have kept some
    (`MountedData.outdated`).
    """
    status = me.dataset.status
    asked = (me.obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_REFRESH)
    answered = data.answered.get(me.key, status.refreshed if status else None)
    every = min(
        (seconds for user in users if (seconds := to_seconds(user.dataset.spec.source.check_interval)) > 0),
        default=math.inf,
    )
    every = max(every, LISTING_SHARE * data.survey_took)
    age = _age(me, data=data, clock=clock, now=now)
    due = data.outdated or age >= every or (asked is not None and asked != answered) or math.isinf(age)
    return Check(due=due, seconds_left=every if due else every - age, asked=asked, answered=answered)


def broken_off(*, stores: Stores, users: Iterable[Reader], data: MountedData) -> bool:
    """Whether an operator before this one may have ended in the middle of a load, of a Dataset or of a Preload, and
    before it compared what it had read."""
    if data.checked_at is not None:
        return False
    return any(
        (user.dataset.status is not None and user.dataset.status.state == "Loading")
        or any(
            preload.status is not None and preload.status.state == "Loading"
            for _, preload in preloads_of(stores=stores, namespace=user.key.namespace, dataset=user.key.name)
        )
        for user in users
    )


def _age(me: Reader, *, data: MountedData, clock: Callable[[], float], now: str) -> float:
    if data.checked_at is not None:
        return clock() - data.checked_at
    status = me.dataset.status
    if status is None or status.last_source_check_time is None:
        return math.inf
    return max(seconds_between(status.last_source_check_time, now), 0.0)
