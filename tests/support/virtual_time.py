"""An event loop on which waits take no time: how long something waits is then the same on every machine."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _SkippingSelector(selectors.DefaultSelector):
    """Counts a wait for the next timer as passed, instead of waiting for it.

    Args:
        skipped: gets the seconds of each such wait.
    """

    def __init__(self, skipped: Callable[[float], None]) -> None:
        super().__init__()
        self._skipped = skipped

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; without a timer, as soon as something is."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._skipped(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is work, and goes on to the next timer when there is none.

    So seconds on it are those that the code waits by its own will: pauses, polls, retries. What it computes costs
    nothing, but for what the test says (`spend`). What is asked of a thread is done at once. For code without sockets.
    """

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_SkippingSelector(self.spend))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call it now."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def spend(self, seconds: float) -> None:
        """Count so much as computed now."""
        self._now += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
