"""Runs calls that may hang for ever, so that only their own caller notices.

A thread that waits for a dead file server cannot be ended. So every such call gets a thread of its own, the
caller stops waiting after a while, and the number of threads per file server is bounded: when all are
stuck, further callers wait for a free one no longer than they would have waited for an answer.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")


class HangGuard:
    """Bounded threads for blocking calls, kept apart by a key (the name of the file server)."""

    def __init__(self, *, threads_per_key: int) -> None:
        self._threads_per_key: Final = threads_per_key
        self._slots: Final[dict[str, asyncio.Semaphore]] = {}

    async def run(
        self, *, key: str, call: Callable[[], T], timeout_seconds: float, discard: Callable[[T], None]
    ) -> T:
        """The result of `call`, made in a thread; raises what it raises, or TimeoutError after
        `timeout_seconds`.

        A result that no caller waits for any more goes to `discard`.
        """
        slots = self._slots.setdefault(key, asyncio.Semaphore(self._threads_per_key))
        async with asyncio.timeout(timeout_seconds):
            await slots.acquire()
            answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            _start(call=call, answer=answer, slots=slots, discard=discard)
            try:
                return await answer
            except asyncio.CancelledError:
                # It came in the same moment as the end of the wait.
                if answer.done() and not answer.cancelled() and answer.exception() is None:
                    discard(answer.result())
                raise


def _start(
    *,
    call: Callable[[], T],
    answer: "asyncio.Future[T]",
    slots: asyncio.Semaphore,
    discard: Callable[[T], None],
) -> None:
    loop = answer.get_loop()

    def deliver(result: T) -> None:
        slots.release()
        if answer.done():
            discard(result)
        else:
            answer.set_result(result)

    def fail(error: BaseException) -> None:
        slots.release()
        if not answer.done():
            answer.set_exception(error)

    def work() -> None:
        try:
            result = call()
        except BaseException as error:  # the caller's to judge, whatever it is
            _hand_over(loop, fail, error)
        else:
            if not _hand_over(loop, deliver, result):
                discard(result)

    # A daemon thread: one that is stuck does not keep the process from ending.
    threading.Thread(target=work, daemon=True, name="guarded-call").start()


def _hand_over(loop: asyncio.AbstractEventLoop, function: Callable[[T], None], value: T) -> bool:
    try:
        loop.call_soon_threadsafe(function, value)
    except RuntimeError:  # the loop is closed: the process is ending
        return False
    return True
