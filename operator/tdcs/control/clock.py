"""Time as Kubernetes writes it: UTC, RFC 3339, whole seconds."""

import datetime
import functools
import time


def utc_now() -> str:
    return _written(int(time.time()))


@functools.lru_cache(maxsize=4)
def _written(seconds: int) -> str:
    """A time: passes ask for the same second again and again."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
