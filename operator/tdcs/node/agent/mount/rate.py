"""How fast bytes come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

_RATE_SECONDS: Final = 5.0


class Rate:
    """Bytes a second over the last seconds. Thread-safe enough: lost updates of a reader do not matter."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, length: int) -> None:
        self.total += length

    def sample(self) -> int:
        """Bytes a second since the oldest sample of the last seconds; takes a sample."""
        now = self._clock()
        self._seen.append((now, self.total))
        while len(self._seen) > 1 and self._seen[0][0] < now - _RATE_SECONDS:
            self._seen.popleft()
        begin, before = self._seen[0]
        return int((self.total - before) / (now - begin)) if now > begin else 0
