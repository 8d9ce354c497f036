"""Work that may take long: a pass begins it, and a later one takes what came of it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """One piece of work: it begins at once, goes on in the background, and calls `on_done` however it ends.

    No pass waits for it, so that a source or a cache that hangs holds up its own Datasets only.

    Args:
        on_done: called once.
    """

    def __init__(self, work: Coroutine[Any, Any, T], *, name: str, on_done: Callable[[], None]) -> None:
        self._task = asyncio.create_task(work, name=name)
        self._task.add_done_callback(lambda task: self._ended(task, on_done))

    @property
    def running(self) -> bool:
        return not self._task.done()

    @property
    def succeeded(self) -> bool:
        """Whether it has ended with a result."""
        return not self.running and not self._task.cancelled() and self._task.exception() is None

    def result(self) -> T:
        """What came of it; raises what ended it. Only once it has ended."""
        return self._task.result()

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @staticmethod
    def _ended(task: asyncio.Task[T], on_done: Callable[[], None]) -> None:
        if not task.cancelled():
            task.exception()  # the pass that takes the result reports it
        on_done()
