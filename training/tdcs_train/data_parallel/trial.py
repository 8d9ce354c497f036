"""Which of two ways to average gradients is faster here: both in turns, by the time from step to step."""

import statistics
import time
from collections.abc import Callable


class Trial:
    """Plain, by priority, and plain again: what else the machine does more and more then counts for both alike.

    The iteration after a change is left out: the updates of the way before end in it.

    Args:
        steps: iterations that are measured in each of the three parts, twice as many in the second; none ends the
            trial at once, by priority.
        clock: seconds that only grow.
    """

    def __init__(self, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        parts = [(False, steps), (True, 2 * steps), (False, steps)] if steps else []
        self._planned = [(way, number > 0) for way, count in parts for number in range(count + 1)]
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        self._last = 0.0
        self._done = 0

    @property
    def by_priority(self) -> bool:
        """The way of the next iteration; by priority when the trial has ended."""
        return self._planned[self._done][0] if not self.ended else True

    @property
    def ended(self) -> bool:
        """Whether both ways have been measured."""
        return self._done >= len(self._planned)

    def begin(self) -> None:
        """The first iteration begins."""
        self._last = self._clock()

    def step(self) -> None:
        """An iteration has ended."""
        now = self._clock()
        way, counts = self._planned[self._done]
        if counts:
            self._seconds[way].append(now - self._last)
        self._last = now
        self._done += 1

    @property
    def has_measured(self) -> bool:
        """Whether there was a trial at all."""
        return bool(self._seconds[True])

    @property
    def gain(self) -> float:
        """Seconds of a plain iteration over those of one by priority; 1 where nothing was measured."""
        if not self._seconds[True]:
            return 1.0
        plain, priority = (statistics.median(self._seconds[way]) for way in (False, True))
        return plain / priority
