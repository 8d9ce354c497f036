"""A limit on the bytes that a load takes from its source."""

import asyncio
from collections.abc import Callable

BURST_SECONDS = 0.25
"""How much of an unused second may be made up for at once: little, or a quiet moment would end in a flood."""


class Throttle:
    """Lets callers pass so that the bytes of all of them together keep to a rate.

    A caller that asks for more than there is goes ahead and leaves a debt, which the next one waits for: blocks
    are not cut.

    Args:
        rate: bytes a second; None for no limit.
        clock: seconds that only grow.
    """

    def __init__(self, *, rate: int | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._rate: int | None = None
        self._free = 0.0
        self._at = clock()
        self._changed = asyncio.Event()
        self.set_rate(rate)

    @property
    def rate(self) -> int | None:
        """Bytes a second; None for no limit."""
        return self._rate

    def set_rate(self, rate: int | None) -> None:
        """Another limit, from now on: also for those that wait.

        Raises:
            ValueError: The rate is not positive.
        """
        if rate is not None and rate <= 0:
            raise ValueError(f"bandwidth must be at least 1 byte a second, got {rate}")
        self._refill()
        self._rate = rate
        self._changed.set()

    async def take(self, size: int) -> None:
        """Wait until so many bytes may be read."""
        async with self._turn:  # first come, first served
            while self._rate is not None:
                self._refill()
                if self._free >= 0:
                    self._free -= size
                    return
                self._changed.clear()
                waiting = asyncio.create_task(self._changed.wait())
                await asyncio.wait({waiting}, timeout=-self._free / self._rate)
                waiting.cancel()

    def _refill(self) -> None:
        now = self._clock()
        if self._rate is not None:
            most = self._rate * BURST_SECONDS
            self._free = min(self._free + (now - self._at) * self._rate, most)
        else:
            self._free = 0.0
        self._at = now
