"""How many files and connections the process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_all() -> None:
    """Raise the soft limit of open descriptors to the hard one.

    Many systems start processes with a soft limit of 1024, for the sake of programs that use select(2). An agent has
    several descriptors for each of hundreds of connections. Where the system refuses the limit stays as it is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # a hard limit above the kernel's own
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
