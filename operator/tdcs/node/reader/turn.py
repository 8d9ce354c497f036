"""Whose turn it is to serve a node's session: one process's at a time.

The one that has the lock of the file `serving` serves, and the kernel gives that to the next one when it is dead. But
the lock of a process that was killed stays where one of its threads waits for a disk. So a process that stands by also
takes its turn when the one that serves has said nothing for so long, or its main thread has ended
(`RequestMemory.is_served`). Two that serve for a moment harm nobody: the kernel gives a request to one of them.
"""

import fcntl
import time
from typing import Final

from tdcs.node.reader.request_memory import RequestMemory

_LOOK_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 2.0
"""How long nobody may serve while some process has the lock: it only begins to serve."""


def wait_for_turn(lock: int, memory: RequestMemory, *, is_reserve: bool = False) -> None:
    """Return when it is this process's turn. The lock may be another's still: see `hold`.

    Args:
        lock: descriptor of the file.
        is_reserve: whether it gives way to whoever waits.
    """
    unserved = time.monotonic()
    while True:
        if not is_reserve:
            memory.wait()
        now = time.monotonic()
        if memory.is_served():
            unserved = now
        locked = hold(lock)
        if (locked or memory.is_left() or now - unserved > _PATIENCE_SECONDS) and memory.take_turn():
            return
        if locked:
            fcntl.flock(lock, fcntl.LOCK_UN)  # another one serves, which could not have it before
        time.sleep(_LOOK_SECONDS)


def hold(lock: int) -> bool:
    """Have the lock if nobody else has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
