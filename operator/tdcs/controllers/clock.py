"""Time as Kubernetes writes it: UTC, RFC 3339, whole seconds."""

import datetime


def utc_now() -> str:
    """The time now."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
