"""Starts a process that goes on with this one's memory, and ends with it."""

import ctypes
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tdcs.api import names
from tdcs.node.reader.session import SessionEndedError

_log: Final = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
_libc: Final = ctypes.CDLL(None, use_errno=True)


class StartRate:
    """Bounds how often processes are started again: at once after one was killed, with pauses when all end at once."""

    def __init__(self, most: int = 10, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._started: Final = deque[float](maxlen=most)
        self._clock: Final = clock

    def left(self) -> float:
        if len(self._started) < (self._started.maxlen or 0):
            return 0.0
        return max(0.0, self._started[0] + 1.0 - self._clock())

    def note(self) -> None:
        self._started.append(self._clock())


def give_up_root(user: int) -> None:
    """Go on as a user that is not root, for good: without capabilities, and no program that is executed gets any.

    What the cache keeps for its own users' group can be read on.
    """
    parent = os.getppid()
    os.setgroups([user, names.CACHE_USER])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "no_new_privs")
    # The kernel forgets it with every change of the user.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def start(work: Callable[[], None]) -> int:
    """Run something in a process of its own, which SIGTERM and the end of this process end; its number."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            work()
        status = 0
    except SessionEndedError as error:
        _log.error("%s", error)
    except Exception:
        _log.exception("a process of the reader broke down; it is started again")
    finally:
        sys.stderr.flush()
        os._exit(status)
