"""Starts a process that goes on with this one's memory, and ends with it."""

import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from tdcs.reader.fuse.session import SessionEndedError

_log: Final = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


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
