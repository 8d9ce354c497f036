"""Time as Kubernetes writes it: UTC, RFC 3339, whole seconds."""

import datetime


def utc_now() -> str:
    """The time now."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one time to another; negative when they are the other way round."""
    return (datetime.datetime.fromisoformat(later) - datetime.datetime.fromisoformat(earlier)).total_seconds()
