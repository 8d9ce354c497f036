"""What there is to say of a view: for metrics and logs."""

from dataclasses import dataclass


@dataclass(slots=True)
class Repairs:
    """How often something had to be put right, since the process began."""

    relinked: int = 0
    """Links to a block that had been removed and loaded again."""
    released: int = 0
    """Links given up because their block was."""
    refused: int = 0
    """Blocks that are not as long as their file."""
    rebound: int = 0
    """How often the remote-read client's file system was replaced by another one."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Files of a view by form, and the bytes that only the view still holds."""

    linked: int
    remote: int
    empty: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class ViewReport:
    cluster: str
    path: str
    version: str
    used: bool
    counts: Counts
    repairs: Repairs
    manifest_age_seconds: float | None
