"""Times of a cron line (`spec.eviction.schedule`), in UTC."""

import datetime
from typing import Final

from cronsim import CronSim, CronSimError

_RANGES: Final = {
    "bad minute": "0-59",
    "bad hour": "0-23",
    "bad day-of-month": "1-31, a day that the month has, or L for the last",
    "bad month": "1-12, or JAN-DEC",
    "bad day-of-week": "0-7, or SUN-SAT",
}
"""What each field of a line may be, by what the parser says of it."""


def next_time(line: str, *, after: float) -> float | None:
    """The first time of a cron line after a moment, both in seconds since 1970; None when it has none.

    Args:
        line: minute, hour, day of the month, month, day of the week, as in `man 5 crontab`.
    """
    try:
        begin = datetime.datetime.fromtimestamp(after, tz=datetime.UTC)
        return next(CronSim(line, begin)).timestamp()
    except (CronSimError, StopIteration, ValueError, OverflowError):
        return None


def mistake(line: str) -> str:
    """What is wrong with a cron line that never fires, such as `bad minute: must be 0-59`; empty when it does."""
    try:
        next(CronSim(line, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)))
    except CronSimError as error:
        text = str(error)[:1].lower() + str(error)[1:]
        return f"{text}: must be {_RANGES[text]}" if text in _RANGES else text
    except StopIteration:
        return "no day has all that it asks for"
    return ""
