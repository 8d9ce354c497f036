"""Whether a thread that waits for a read is being killed."""

import re
import signal
from typing import Final

_SETS: Final = re.compile(rb"^(S(?:ig|hd)(?:Pnd|Blk|Ign|Cgt)):\t([0-9a-f]+)$", re.MULTILINE)
_HARMLESS: Final = (
    *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH),
    *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
_HARMLESS_SET: Final = sum(1 << number - 1 for number in _HARMLESS)
_KILL: Final = 1 << signal.SIGKILL - 1
"""The kernel gives it to all threads of a process that any signal ends, but for one that comes behind another."""


def is_being_killed(thread: int, *, proc: str = "/proc") -> bool:
    """Whether a thread is; also when it is not to be seen, as one of another namespace that this process does not see
    into: it would hang for as long as its read waits."""
    if not thread:
        return True
    try:
        with open(f"{proc}/{thread}/status", "rb") as file:
            sets = {name: int(value, 16) for name, value in _SETS.findall(file.read())}
    except OSError:
        return True
    pending = sets.get(b"SigPnd", 0) | sets.get(b"ShdPnd", 0)
    handled = sets.get(b"SigBlk", 0) | sets.get(b"SigIgn", 0) | sets.get(b"SigCgt", 0) | _HARMLESS_SET
    return bool(pending & (_KILL | ~handled))
