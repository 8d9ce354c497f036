"""Looks at the disks of this node by threads, a few for each disk: a disk that does not answer keeps nobody waiting but
those threads. The loop never opens a file of a cache's disk itself.
"""

import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

_log: Final = logging.getLogger(__name__)

THREADS: Final = 8
"""Of each disk."""
LATE_SECONDS: Final = 1.0
"""Who has waited for a disk for so long goes on without it."""

T = TypeVar("T")


class _Look(Generic[T]):
    """Something that is looked up on a disk, and who waits for it."""

    __slots__ = ("answer", "begun", "disk", "done", "late", "work")

    def __init__(
        self,
        disk: str,
        *,
        work: Callable[[], T],
        done: Callable[[T | None], None],
        late: Callable[[], None],
        begun: float,
    ) -> None:
        self.disk, self.work, self.done, self.late, self.begun = disk, work, done, late, begun
        self.answer: T | None = None


class LocalDisks:
    """The disks. Its methods are for one thread, that of the loop, which calls `ready` when `fd` can be read.

    Args:
        threads: of each disk.
        clock: seconds that only grow.
    """

    def __init__(self, *, threads: int = THREADS, clock: Callable[[], float] = time.monotonic) -> None:
        self.fd: Final = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threads: Final = threads
        self._clock: Final = clock
        self._pools: Final[dict[str, ThreadPoolExecutor]] = {}
        self._waiting: Final[dict[_Look[Any], None]] = {}
        self._unanswered: Final[dict[str, set[_Look[Any]]]] = {}
        self._ended: Final = deque[_Look[Any]]()

    def hangs(self, disk: str) -> bool:
        """Whether somebody has given up waiting for a disk, which has not answered since."""
        return bool(self._unanswered.get(disk))

    def look(
        self,
        disk: str,
        work: Callable[[], T],
        done: Callable[[T | None], None],
        *,
        late: Callable[[], None] = lambda: None,
    ) -> None:
        """Have a thread of a disk do this, and then the loop go on with what came of it.

        Args:
            disk: any name that is the same for what hangs together.
            work: its OSErrors count as None.
            done: is called in the loop, once, however late.
            late: is called in the loop before that when the disk does not answer in time.

        Raises:
            MemoryError: the process has no memory for a thread.
        """
        look = _Look(disk, work=work, done=done, late=late, begun=self._clock())
        self._waiting[look] = None
        if disk not in self._pools:
            self._pools[disk] = ThreadPoolExecutor(self._threads, thread_name_prefix="disk")
        try:
            self._pools[disk].submit(self._work, look)
        except RuntimeError as error:  # no thread can be started
            raise MemoryError from error

    def ready(self) -> None:
        """Go on with what has come."""
        os.eventfd_read(self.fd)
        while self._ended:
            look = self._ended.popleft()
            self._waiting.pop(look, None)
            self._answers(look)
            look.done(look.answer)

    def wait(self, seconds: float) -> None:
        """Go on with what comes within so many seconds: for who has no loop."""
        if select.select([self.fd], [], [], seconds)[0]:
            self.ready()
        self.tick()

    def tick(self) -> None:
        """Go on without the disks that are late. A few times a second."""
        until = self._clock() - LATE_SECONDS
        late = []
        for look in self._waiting:  # in the order in which they began
            if look.begun > until:
                break
            late.append(look)
        for look in late:
            del self._waiting[look]
            if not self._unanswered.get(look.disk):
                _log.warning("disk %s does not answer: what is there is read from other nodes", look.disk)
            self._unanswered.setdefault(look.disk, set()).add(look)
            look.late()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _answers(self, look: "_Look[Any]") -> None:
        unanswered = self._unanswered.get(look.disk)
        if unanswered is None or look not in unanswered:
            return
        unanswered.remove(look)
        if not unanswered:
            del self._unanswered[look.disk]
            _log.info("disk %s answers again", look.disk)

    def _work(self, look: "_Look[Any]") -> None:
        try:
            look.answer = look.work()
        except OSError as error:
            _log.warning("disk %s: %s", look.disk, error)
        except Exception:
            _log.exception("looking at disk %s failed by a defect of the reader", look.disk)
        self._ended.append(look)
        os.eventfd_write(self.fd, 1)
