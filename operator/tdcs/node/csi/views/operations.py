"""Changes of one view: one at a time, each to its end, whoever waits for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final


class Operations:
    """Runs operations one after the other, each in a task of its own.

    A caller that is cancelled (kubelet gives up a call after two minutes) leaves the operation running: its threads
    would go on anyway, and no other operation may change the same tree meanwhile. The next call for the same operation
    joins it.
    """

    def __init__(self) -> None:
        self._turn: Final = asyncio.Lock()
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}

    @property
    def busy(self) -> bool:
        """Whether an operation is running or waiting for its turn."""
        return bool(self._tasks)

    async def run(self, *, name: str, operation: Callable[[], Awaitable[None]]) -> None:
        """Run `operation` when it is its turn, or join the one of this `name` that has not ended; raises what it
        raises.
        """
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.create_task(self._take_turn(operation))
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._end(name, done))
        await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_turn(self, operation: Callable[[], Awaitable[None]]) -> None:
        async with self._turn:
            await operation()

    def _end(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # a failure that no caller waits for any more is found again by the next one
