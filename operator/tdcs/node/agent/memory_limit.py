"""How much memory of its own the process may have."""

from __future__ import annotations

import resource
import threading
from typing import Final

_STACK_BYTES: Final = 1 << 20
"""Room for the stack of a thread. All of it counts as allocated, and the usual 8 MiB, for each of 256 connections,
would be half of what an agent may have. JSON as deep as the interpreter lets it be takes more than 256 KiB."""


def limit_memory(limit: int) -> None:
    """Have what goes beyond so many bytes fail, which ends the process, and it is started again.

    Call it before the first thread is started: stacks of earlier ones stay as large as they are.

    A store may answer with a failure of which the text never ends, and the client library keeps all of that text.
    A limit of the container would count the pages of the blocks that the process writes, too, and so slow loads down;
    this one counts what the process allocates (RLIMIT_DATA).
    """
    threading.stack_size(_STACK_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
