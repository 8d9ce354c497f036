"""What becomes of a process that has lost its Lease: the same command line starts again in its place.

`execve` ends in one moment whatever the process was doing: threads, requests half sent, timers, what it remembers.
Nothing has to be stopped in order for that, so nothing that hangs can delay it. Its id stays the same: kubelet sees no
container that ended, and does not wait longer each time before it starts the next one.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

_log: Final = logging.getLogger(__name__)

VARIABLE: Final = "TDCS_LEASE_LOSSES"
"""The environment variable by which a process tells the next one how often the Lease was lost."""

FAILURES: Final = "TDCS_FAILURES"
"""The environment variable by which it tells what it has counted: rates would begin at 0 again."""

_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def lease_losses(environment: Mapping[str, str]) -> int:
    """How often the processes before this one lost the Lease, since the container started."""
    text = environment.get(VARIABLE, "")
    return int(text) if text.isdecimal() else 0


def earlier_failures(environment: Mapping[str, str]) -> dict[str, int]:
    """What the processes before this one counted, by what failed; nothing where that cannot be understood."""
    try:
        failures = json.loads(environment.get(FAILURES, "{}"))
    except ValueError:
        return {}
    counts = failures.items() if isinstance(failures, dict) else ()
    return {str(kind): count for kind, count in counts if isinstance(count, int) and count > 0}


def hear_signals() -> None:
    """End in order when asked to from now on, also if that was while the process before gave way to this one.

    Until there is a handler, the first process of a container hears no SIGTERM at all.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def replace_process(*, losses: int, failures: Mapping[str, int] | None = None) -> NoReturn:
    """Start again in the same process, at once. `losses` are those so far, this one included; `failures`: what was
    counted, by what failed."""
    os.environ[VARIABLE] = str(losses)
    os.environ[FAILURES] = json.dumps(dict(failures or {}))
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # kept for the next one: see `hear_signals`
    _kill_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    try:
        # Every descriptor that Python or gRPC opened is closed by it (O_CLOEXEC), so ports are free again.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  no shell is wanted
    except OSError as error:
        _log.critical("this process cannot start again, and ends: %s", error)
        os._exit(1)


def _kill_children() -> None:
    """Kill what works for this process. Where the kernel does not tell who that is, they end with their pipes."""
    children: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has ended, or the kernel does not say
            children += map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for child in children:
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
