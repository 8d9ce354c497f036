"""Lengths of time as users write them (``90s``, ``10m``, ``1h30m``: `metav1.Duration`) and between two times of day."""

import datetime
import math
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from tdcs.api.base import rule, rules, worded

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$"

NOT_A_DURATION = "must be a duration of hours, minutes and seconds, such as 90s, 10m or 1h30m; a day is 24h"

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def to_seconds(duration: str) -> float:
    """Seconds of a duration such as ``1h30m``.

    Raises:
        ValueError: it is not a duration.
    """
    if re.fullmatch(DURATION_PATTERN, duration) is None:
        raise ValueError(f"{duration!r}: {NOT_A_DURATION}")
    parts = re.findall(r"([0-9.]+)(ms|[hms])", duration)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one time (RFC 3339) to another; negative when they are the other way round."""
    return (datetime.datetime.fromisoformat(later) - datetime.datetime.fromisoformat(earlier)).total_seconds()


def seconds_from_1970(time: object) -> float | None:
    """Seconds from 1970 to a time (RFC 3339) that somebody else wrote; None when it is no such time, or has no zone."""
    try:
        moment = datetime.datetime.fromisoformat(str(time))
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()


SKEW_SECONDS = 60.0
"""The clocks of two machines of a cluster may differ by so much."""


def seconds_since(time: str, *, now: str) -> float:
    """Seconds since a time (RFC 3339) that is over: at least 0, and infinite for one that is still to come.

    Whoever wrote such a time had a clock that was wrong, or this one is: nobody knows how long ago it was. What waits
    until something is old enough goes on then, for it would wait for as long as the clock was wrong.
    """
    age = seconds_between(time, now)
    return max(age, 0.0) if age >= -SKEW_SECONDS else math.inf


def past(time: str, *, now: str) -> str:
    """The time (RFC 3339), or now when it is still to come: what is written so counts from now on."""
    return time if seconds_between(time, now) >= -SKEW_SECONDS else now


def time_after(time: str, *, seconds: float) -> str:
    """The time (RFC 3339) so many seconds after another, to the second."""
    later = datetime.datetime.fromisoformat(time) + datetime.timedelta(seconds=seconds)
    return later.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _checked(value: str) -> str:
    to_seconds(value)
    return value


IS_DURATION = f"self.matches('{DURATION_PATTERN}')".replace("\\", "\\\\")
"""CEL: a string is such a duration. Other rules ask it first, since ``duration()`` fails on what is none."""

DURATION_RULE = rule(IS_DURATION, NOT_A_DURATION)

Duration = Annotated[
    str, Field(max_length=32, json_schema_extra=rules(DURATION_RULE)), AfterValidator(_checked)
]
"""A length of time: hours, minutes and seconds, as in 1h30m."""


TIME_PATTERN = (
    r"^(?:20[0-9]{2}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))|20(?:[02468][048]|[13579][26])-02-29)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)
"""Times of RFC 3339 in this century. A schema's format date-time lets the 30th of February and small letters pass."""

NOT_A_TIME = "must be a day that there is, with a time and its zone, such as 2030-01-31T20:00:00Z"


def is_time(text: str) -> bool:
    """Whether a text is such a time, of a day that there is."""
    return re.fullmatch(TIME_PATTERN, text) is not None


def _checked_time(text: str) -> str:
    if not is_time(text):
        raise ValueError(f"{text!r} {NOT_A_TIME}")
    return text


Time = Annotated[str, AfterValidator(_checked_time), Field(max_length=40, **worded(TIME_PATTERN, NOT_A_TIME))]
"""A time of day on a day, with its zone."""
