"""Runs calls that may hang forever, so that only their own caller notices.

A thread that waits for a dead file server cannot be ended. So every such call gets a thread of its own, the
caller stops waiting after a while, and the number of threads per file server is bounded: when all are
stuck, further callers wait for a free one no longer than they would have waited for an answer.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final


class HangGuard:
    """Bounded threads for blocking calls, kept apart by a key (the name of the file server)."""

    def __init__(self, *, threads_per_key: int) -> None:
        self._threads_per_key: Final = threads_per_key
        self._slots: Final[dict[str, asyncio.Semaphore]] = {}

    async def run(self, *, key: str, call: Callable[[], object], timeout_seconds: float) -> None:
        """Make `call` in a thread; raises what it raises, or TimeoutError after so long, and then the call goes on."""
        slots = self._slots.setdefault(key, asyncio.Semaphore(self._threads_per_key))
        async with asyncio.timeout(timeout_seconds):
            await slots.acquire()
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            _start(call=call, answer=answer, slots=slots)
            await answer


def _start(*, call: Callable[[], object], answer: "asyncio.Future[None]", slots: asyncio.Semaphore) -> None:
    loop = answer.get_loop()

    def end(error: BaseException | None) -> None:
        slots.release()
        if answer.done():
            return  # the caller has given up
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    def work() -> None:
        failure: BaseException | None = None
        try:
            call()
        except BaseException as error:  # the caller's to judge, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is ending
            loop.call_soon_threadsafe(end, failure)

    # A daemon thread: one that is stuck does not keep the process from ending.
    threading.Thread(target=work, daemon=True, name="guarded-call").start()
