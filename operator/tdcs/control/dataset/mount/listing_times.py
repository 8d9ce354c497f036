"""When the source itself is to be listed for changes. Pure, but for the clock that is given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.durations import seconds_since, to_seconds
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.source_versions import LISTING_SHARE, ManifestView

WRITTEN_AGAIN = 3600.0
"""Seconds after which the time of a check that changed nothing is written: many Datasets that rest are no stream of
writes."""

CHECK_TIME = "lastSourceCheckTime"


def unwritten(written: str | None, *, now: str) -> tuple[str, ...]:
    """The fields of a status that are no reason to write it, when the time of a check was last written at `written`."""
    recent = written is not None and seconds_since(written, now=now) < WRITTEN_AGAIN
    return (CHECK_TIME,) if recent else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCheck:
    """Whether the source is to be listed now.

    Attributes:
        seconds_left: seconds until the one after that.
        asked: the value of the annotation tdcs.io/refresh, None without one.
        answered: the value that was acted upon before.
    """

    due: bool
    seconds_left: float
    asked: str | None = None
    answered: str | None = None


def next_check(
    *,
    me: Reader,
    users: Sequence[Reader],
    versions: ManifestView,
    answered: str | None,
    clock: float,
    now: str,
) -> SourceCheck:
    """By the shortest interval of all who read the mount, and at once for a new value of the annotation.

    Args:
        users: all that read the mount.
        versions: what is known of its versions.
        answered: the annotation's value at the last listing by this process; None when it had none.
        now: the time of day.
    """
    status = me.dataset.status
    asked = asked_of(me)
    acted = answered if answered is not None else status.refreshed if status else None
    every = min(
        (seconds for user in users if (seconds := to_seconds(user.dataset.spec.source.check_interval)) > 0),
        default=math.inf,
    )
    every = max(every, LISTING_SHARE * versions.took)
    age = math.inf
    if versions.checked_at is not None:
        age = clock - versions.checked_at
    elif status is not None and status.last_source_check_time is not None:
        age = seconds_since(status.last_source_check_time, now=now)
    due = age >= every or (asked is not None and asked != acted) or math.isinf(age)
    return SourceCheck(due=due, seconds_left=every if due else every - age, asked=asked, answered=acted)


def asked_of(user: Reader) -> str | None:
    """The value with which a user asks for a look at the source."""
    value = (user.obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_REFRESH)
    return None if value is None else str(value)
