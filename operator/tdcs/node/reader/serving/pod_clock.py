"""Whose pod waits, and for how long: the time in which at least one read of a pod waits, shared out among its reads.

The sum over a pod's reads is the time in which any of them waited, however many waited at once. It is more than what
the pod stood still when its program reads ahead of what it works on.
"""

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tdcs.engine.pod_wait_table import PodWaitTable, WaitOrigin

_log: Final = logging.getLogger(__name__)

_POD: Final = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_KNOWN_NANOSECONDS: Final = 10_000_000_000
"""How long it is known which pod a thread is of: numbers of threads come again."""
_MOST_THREADS: Final = 4096


class _Pod:
    """A pod with reads: how many wait, and how much of its waiting each of them has had since the process began."""

    __slots__ = ("at", "row", "share", "uid", "waiting")

    def __init__(self, uid: str, row: int) -> None:
        self.uid, self.row = uid, row
        self.at = self.share = self.waiting = 0

    def advance(self, now: int) -> None:
        if self.waiting:
            self.share += (now - self.at) // self.waiting
        self.at = now


class Wait(NamedTuple):
    pod: _Pod
    share: int


class PodClock:
    """Counts for the process that serves.

    Args:
        proc: the /proc in which the pods' processes are.
        clock: nanoseconds that only grow.
    """

    def __init__(
        self,
        table: PodWaitTable,
        *,
        proc: Path = Path("/proc"),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._table: Final = table
        self._proc: Final = str(proc)
        self._clock: Final = clock
        self._threads: Final[dict[int, tuple[int, _Pod | None]]] = {}
        self._pods: Final[dict[str, _Pod]] = {}

    def begin(self, thread: int) -> Wait | None:
        """A read of a thread begins to wait; None when the thread is of no pod that can be seen."""
        now = self._clock()
        pod = self._pod(thread, now)
        if pod is None:
            return None
        pod.advance(now)
        pod.waiting += 1
        return Wait(pod, pod.share)

    def uid(self, thread: int) -> str:
        """Of the pod that a thread is of; empty when it is of none that can be seen."""
        pod = self._pod(thread, self._clock())
        return pod.uid if pod is not None else ""

    def end(self, wait: Wait, origin: WaitOrigin) -> None:
        pod = wait.pod
        pod.advance(self._clock())
        pod.waiting -= 1
        if not self._table.holds(pod.row, pod.uid):
            pod.row = self._table.row(pod.uid)
        self._table.add(pod.row, origin, pod.share - wait.share)

    def _pod(self, thread: int, now: int) -> _Pod | None:
        until, pod = self._threads.get(thread, (0, None))
        return pod if now < until else self._find(thread, now)

    def _find(self, thread: int, now: int) -> _Pod | None:
        if len(self._threads) >= _MOST_THREADS:
            self._threads.clear()
            for uid in [uid for uid, pod in self._pods.items() if not pod.waiting]:
                del self._pods[uid]
        uid = pod_of(thread, proc=self._proc)
        pod = None
        if uid:
            pod = self._pods.get(uid)
            if pod is None:
                pod = self._pods[uid] = _Pod(uid, self._table.row(uid))
        self._threads[thread] = (now + _KNOWN_NANOSECONDS, pod)
        return pod


def open_pod_clock(path: Path) -> PodClock | None:
    """What counts into the table in a file; None when the table cannot be made, as on a full disk: reads go on."""
    try:
        return PodClock(PodWaitTable(path))
    except OSError as error:
        _log.warning("how long pods wait is not counted: the table %s cannot be made: %s", path, error)
        return None


def pod_of(thread: int, *, proc: str = "/proc") -> str:
    """Uid of the pod that a thread is of, by its control group; empty when it is of none, or not to be seen."""
    if not thread:
        return ""
    try:
        with open(f"{proc}/{thread}/cgroup", encoding="ascii", errors="replace") as file:
            pod = _POD.search(file.read())
    except OSError:
        return ""
    return pod[1].replace("_", "-") if pod else ""
