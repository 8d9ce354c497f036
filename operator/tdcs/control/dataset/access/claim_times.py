"""When the claims of Datasets were lost and made: how soon a Dataset without its claim is looked at again."""

from collections import deque
from collections.abc import Callable
from typing import Final

from tdcs.control.context import WorkKey

QUICK_RETRY: Final = 0.2
"""Seconds between looks at what the volume controller does within about a second."""

QUICK_SECONDS: Final = 5.0
"""So long it is looked for so often; then the controller is away."""

SLOW_RETRY: Final = 10.0
"""Seconds between looks while the volume controller is away, and between the claims of a Dataset that loses them again
and again: each costs the operator a whole pass, a volume and a claim."""

RECENT_SECONDS: Final = 60.0
"""A Dataset that had two claims made within this time loses them again and again."""


class ClaimTimes:
    """Remembers them by Dataset."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._lost: Final[dict[WorkKey, float]] = {}
        self._made: Final[dict[WorkKey, deque[float]]] = {}

    def until_released(self, key: WorkKey, *, lost: bool) -> float:
        """Seconds until the next look at a volume that has lost its claim and is not released yet; 0 when it has not:
        then the next loss is looked at quickly again.
        """
        if not lost:
            self._lost.pop(key, None)
            return 0.0
        now = self._clock()
        return QUICK_RETRY if now - self._lost.setdefault(key, now) < QUICK_SECONDS else SLOW_RETRY

    def until_next(self, key: WorkKey) -> float:
        """Seconds until another claim may be made; 0 for now. The first one that is lost is made anew at once."""
        made, now = self._made.get(key), self._clock()
        if made is None or len(made) < 2 or now - made[0] > RECENT_SECONDS:
            return 0.0
        return max(made[-1] + SLOW_RETRY - now, 0.0)

    def made(self, key: WorkKey) -> None:
        self._made.setdefault(key, deque(maxlen=2)).append(self._clock())

    def forget(self, key: WorkKey) -> None:
        self._lost.pop(key, None)
        self._made.pop(key, None)
