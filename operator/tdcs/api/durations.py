"""Lengths of time as users write them (``90s``, ``10m``, ``1h30m``, ``2d``) and between two times of day."""

import datetime
import re
from typing import Annotated

from pydantic import AfterValidator, Field

DURATION_PATTERN = r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def to_seconds(duration: str) -> int:
    """Seconds of a duration such as ``1h30m``.

    Raises:
        ValueError: it is not a duration.
    """
    if not duration or re.match(DURATION_PATTERN, duration) is None:
        raise ValueError(f"{duration!r} is not a duration; write days, hours, minutes, seconds, as in 1h30m")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", duration))


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one time (RFC 3339) to another; negative when they are the other way round."""
    return (datetime.datetime.fromisoformat(later) - datetime.datetime.fromisoformat(earlier)).total_seconds()


def _checked(value: str) -> str:
    to_seconds(value)
    return value


Duration = Annotated[
    str, Field(pattern=DURATION_PATTERN, min_length=2, max_length=32), AfterValidator(_checked)
]
"""A length of time: days, hours, minutes and seconds, as in 1h30m."""
