"""When is a source listed for changes?

By the interval that its Datasets set, and at once for a new value of the annotation. Where agents find a source
changed and each listing finds it the same, later and later: an agent and a listing may differ for good on one file (a
store with two answers, a cache of attributes in between), and each listing of the whole source costs as much as the
first one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tdcs.api.dataset import DatasetStatus
from tdcs.api.durations import seconds_since, to_seconds

LISTING_SHARE: Final = 20.0
"""A source that rests is listed for at most one part in so many of the time."""

WRITTEN_AGAIN: Final = 3600.0
"""Seconds after which the time of a check that changed nothing is written: many Datasets that rest are no stream of
writes."""

CHECK_TIME: Final = "lastSourceCheckTime"

_MOST_DOUBLINGS: Final = 60


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
    status: DatasetStatus | None,
    intervals: Iterable[str],
    asked: str | None,
    answered: str | None,
    checked_at: float | None,
    took: float,
    clock: float,
    now: str,
) -> SourceCheck:
    """By the shortest interval of all who read the mount, and at once for a new value of the annotation.

    Args:
        status: of the Dataset that is looked at.
        intervals: `spec.source.checkInterval` of all that read the mount.
        asked: the value of its annotation tdcs.io/refresh; None without one.
        answered: that value at the last listing by this process; None when it had none.
        checked_at: when this process last listed the source, by `clock`; None before it did.
        took: seconds that the last listing took.
    """
    acted = answered if answered is not None else status.refreshed if status else None
    every = min((seconds for text in intervals if (seconds := to_seconds(text)) > 0), default=math.inf)
    every = max(every, LISTING_SHARE * took)
    age = math.inf
    if checked_at is not None:
        age = clock - checked_at
    elif status is not None and status.last_source_check_time is not None:
        age = seconds_since(status.last_source_check_time, now=now)
    due = age >= every or (asked is not None and asked != acted) or math.isinf(age)
    return SourceCheck(due=due, seconds_left=every if due else every - age, asked=asked, answered=acted)


def relisting_pause(unchanged: int, *, first: float, most: float) -> float:
    """Seconds after a listing until the next one, of a source that agents find changed.

    Args:
        unchanged: how many listings in turn found the source as it was.
        first: seconds after the first listing; each further one doubles them.
        most: of the seconds.
    """
    return min(first * 2.0 ** min(unchanged, _MOST_DOUBLINGS), max(first, most))


def unwritten_check(written: str | None, *, now: str) -> tuple[str, ...]:
    """The fields of a status that are no reason to write it, when the time of a check was last written at `written`."""
    recent = written is not None and seconds_since(written, now=now) < WRITTEN_AGAIN
    return (CHECK_TIME,) if recent else ()
