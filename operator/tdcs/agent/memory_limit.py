"""How much memory of its own the process may have."""

from __future__ import annotations

import resource


def limit_memory(limit: int) -> None:
    """Have what goes beyond so many bytes fail, which ends the process, and it is started again.

    A store may answer with a failure of which the text never ends, and the client library keeps all of that text.
    A limit of the container would count the pages of the blocks that the process writes, too, and so slow loads down;
    this one counts what the process allocates (RLIMIT_DATA).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
