"""Times of a cron line (`spec.eviction.schedule`), in UTC. Pure."""

import datetime

from cronsim import CronSim, CronSimError


def next_time(line: str, *, after: float) -> float | None:
    """The first time of a cron line after a moment, both in seconds since 1970; None when it has none.

    Args:
        line: minute, hour, day of the month, month, day of the week, as in `man 5 crontab`.
        after: the moment.
    """
    try:
        begin = datetime.datetime.fromtimestamp(after, tz=datetime.UTC)
        return next(CronSim(line, begin)).timestamp()
    except (CronSimError, StopIteration, ValueError, OverflowError):
        return None


def mistake(line: str) -> str:
    """What is wrong with a cron line that never fires; empty when it does."""
    try:
        next(CronSim(line, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)))
    except CronSimError as error:
        return str(error)[:1].lower() + str(error)[1:]
    except StopIteration:
        return "no day has all that it asks for"
    return ""
