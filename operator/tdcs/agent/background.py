"""Work that an agent does beside its loop, one piece of each kind at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

_log: Final = logging.getLogger(__name__)


class BackgroundWork:
    """What runs now, by name. All in one event loop.

    Args:
        ended: called when something has ended that found something to do.
    """

    def __init__(self, *, ended: Callable[[], None]) -> None:
        self._ended: Final = ended
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run something unless it runs already. Work that gives 0 found nothing to do: the next look has time until the
        next tick, or the loop would never rest while a worker is away.
        """
        if name in self._tasks:
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task

        def done(ended: asyncio.Task[Any]) -> None:
            self._tasks.pop(name, None)
            if not ended.cancelled() and (error := ended.exception()) is not None:
                _log.error("%s failed: %s", name, error, exc_info=error)
            elif not ended.cancelled() and ended.result() == 0:
                return
            self._ended()

        task.add_done_callback(done)

    async def wait(self, name: str) -> None:
        """Wait until what runs under this name has ended."""
        while name in self._tasks:
            await asyncio.wait([self._tasks[name]])

    async def cancel(self) -> None:
        """End everything."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
