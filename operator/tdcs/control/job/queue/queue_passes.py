"""When the next pass over the queue of jobs is: soon after a change, one for a burst; again after one that failed."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

from tdcs.control.operator_metrics import OperatorMetrics
from tdcs.kube.informer import backoff

_log = logging.getLogger(__name__)

PAUSE = 0.05
"""Seconds between a change and the next pass over the queue, so that a burst of changes is one pass."""

LONGEST_GAP = 10.0
"""The same at most, also after a pass that took long as the machine did something else."""

RETRY_FIRST, RETRY_MAX = 1.0, 30.0
"""Seconds until a pass that failed is tried again: the first time, and at most."""

CLOCK_STEP = 1.0
"""The times that passes compare are whole seconds."""

T = TypeVar("T")


class QueuePasses:
    """One pass at a time; none before `start`.

    Args:
        run: one pass.
        metrics: which measure the passes; None: nobody does.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        run: Callable[[], Awaitable[None]],
        *,
        metrics: OperatorMetrics | None,
        clock: Callable[[], float],
    ) -> None:
        self._run_one = run
        self._metrics = metrics
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._pass: asyncio.Task[None] | None = None
        self._again = False
        self._due_since: float | None = None
        self._later: asyncio.TimerHandle | None = None
        self._failures = 0
        self._cost = 0.0
        self._started = False

    @property
    def is_running(self) -> bool:
        """Whether a pass is under way."""
        return self._pass is not None

    def start(self) -> None:
        self._started = True
        self.ask()

    def close(self) -> None:
        self._started = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pass is not None:
            self._pass.cancel()
            self._pass = None

    def ask(self) -> None:
        """Something changed: have a pass."""
        if not self._started:
            return
        if self._due_since is None:
            self._due_since = self._clock()
        self._again = True
        if self._timer is None and self._pass is None:
            self._set_timer(self._pause())

    def ask_in(self, seconds: float) -> None:
        """Have a pass after so long, if nothing has changed before; infinite: none for that."""
        if self._later is not None:
            self._later.cancel()
        loop = asyncio.get_running_loop()
        self._later = None if math.isinf(seconds) else loop.call_later(seconds + CLOCK_STEP, self.ask)

    def repeat(self) -> None:
        """Have another pass after the one that is under way."""
        self._again = True

    async def measure(self, work: Awaitable[T]) -> T:
        """The part of a pass that grows with the cluster: the pause until the next pass grows with what it takes."""
        started = self._clock()
        result = await work
        self._cost = self._clock() - started
        return result

    def overdue_seconds(self) -> float:
        """How long changes have waited for a pass that succeeds; 0 when none waits."""
        return 0.0 if self._due_since is None else self._clock() - self._due_since

    def _pause(self) -> float:
        """Seconds until the next pass: one over a large cluster takes its time, and may have a fifth of it."""
        return min(max(PAUSE, 4 * self._cost), LONGEST_GAP)

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._again = False
        self._pass = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """One guarded pass: whatever it fails by, the queue does not stand still forever."""
        pause = None
        try:
            with self._metrics.timed_schedule() if self._metrics is not None else nullcontext():
                await self._run_one()
        except Exception:
            self._failures += 1
            pause = backoff(failures=self._failures, first=RETRY_FIRST, most=RETRY_MAX)
            _log.exception(
                "the pass over the queue of jobs failed by a defect of the operator; again in %.0f s", pause
            )
        self._pass = None
        if pause is not None:
            self._set_timer(pause)
            return
        self._failures = 0
        if self._again:
            self._set_timer(self._pause())
        else:
            self._due_since = None
