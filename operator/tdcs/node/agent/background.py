"""Work that an agent does outside its loop, one piece of each kind at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

_log: Final = logging.getLogger(__name__)

FAILED_PAUSE_SECONDS: Final = 5.0
"""Work that has failed is not started again for so long."""


class BackgroundWork:
    """What runs now, by name. All in one event loop.

    Args:
        ended: called when something has ended that found something to do, or that failed.
    """

    def __init__(self, *, ended: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._ended: Final = ended
        self._clock: Final = clock
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._resting_until: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> bool:
        """Run something unless it runs already, or failed a moment ago; whether it runs now. Work that gives 0 found
        nothing to do: the next look has time until the next tick, or the loop would never rest.
        """
        if name in self._tasks or self._clock() < self._resting_until.get(name, 0.0):
            work.close()
            return False
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task

        def done(ended: asyncio.Task[Any]) -> None:
            self._tasks.pop(name, None)
            if not ended.cancelled() and (error := ended.exception()) is not None:
                _log.error("%s failed: %s", name, error, exc_info=error)
                self._rest(name)
            elif not ended.cancelled() and ended.result() == 0:
                return
            self._ended()

        task.add_done_callback(done)
        return True

    def _rest(self, name: str) -> None:
        now = self._clock()
        self._resting_until = {task: until for task, until in self._resting_until.items() if now < until}
        self._resting_until[name] = now + FAILED_PAUSE_SECONDS

    async def wait(self, name: str) -> None:
        while name in self._tasks:
            await asyncio.wait([self._tasks[name]])

    async def cancel(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
