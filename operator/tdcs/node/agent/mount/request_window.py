"""How many requests a mount's source is asked at the same time, and how one that was not answered is tried again.

A store says by 429, 503 or by silence that it is asked for too much. Each such answer halves the window of its mount,
at most once for the requests of one round; each other answer widens it by half a request, so that it grows by half in
a round. A share of refusals that comes whatever is asked for (S3 has some all the time) hardly narrows it therefore:
1 % of them cost 3 % of the rate, 5 % some 15 %. A store that has a limit is asked for about what it gives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tdcs.node.agent.backoff import pause
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, SourceReader, Write

TRIES: Final = 4
"""A request is made so often before its piece is given back, with pauses that grow."""
_FIRST_PAUSE: Final = 0.05
_MOST_PAUSE: Final = 2.0
_GROWTH: Final = 0.5
_HEADROOM: Final = 2
"""The window is at most so many times what is read at the same time: single refusals do not narrow that at once."""


class RequestWindow:
    """The window of one mount. Thread-safe.

    Attributes:
        refusals: requests that got no answer, or one that asks for patience.

    Args:
        lanes: requests that are made at the same time with profit.
        refusals: of the window before it.
    """

    def __init__(self, lanes: int, *, refusals: int = 0) -> None:
        self._most: Final = float(_HEADROOM * lanes)
        self._size = float(lanes)
        self._round = 0
        self._running = 0
        self.refusals = refusals
        self._changed: Final = threading.Condition()

    @property
    def size(self) -> int:
        """Requests that may be made at the same time: 1 or more."""
        return int(self._size)

    @contextmanager
    def place(self) -> Iterator[int]:
        """Wait until a request may be made; the round that it belongs to."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.size)
            self._running += 1
            number = self._round
        try:
            yield number
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    @property
    def round(self) -> int:
        return self._round

    def answered(self) -> None:
        with self._changed:
            self._size = min(self._most, self._size + _GROWTH)
            self._changed.notify()

    def refused(self, number: int) -> None:
        """A request of this round got no answer, or one that asks for patience."""
        with self._changed:
            self.refusals += 1
            if number == self._round:
                self._size = max(1.0, self._size / 2)
                self._round += 1


class PatientReader:
    """Reads a source as another reader does, no more at a time than its window has, and again where that may help.

    Args:
        demand: whether programs wait for what is read: it takes no place in the window, and narrows it all the same.
    """

    def __init__(
        self,
        reader: SourceReader,
        window: RequestWindow,
        *,
        demand: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader: Final = reader
        self._window: Final = window
        self._demand: Final = demand
        self._sleep: Final = sleep
        self.lanes = reader.lanes

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece, all of it; raises SourceFailureError."""
        failures = 0
        while True:
            try:
                self._try(extent, write)
                return
            except _UnansweredError as unanswered:
                failures += 1
                if failures == TRIES or unanswered.begun or self._window.size == 1:
                    raise unanswered.error from unanswered.error.__cause__
            self._sleep(pause(failures, first=_FIRST_PAUSE, most=_MOST_PAUSE))

    def _try(self, extent: Extent, write: Write) -> None:
        begun = False

        def begin(data: memoryview) -> None:
            nonlocal begun
            begun = True
            write(data)

        if self._demand:
            self._ask(extent, begin, self._window.round, lambda: begun)
            return
        with self._window.place() as number:
            self._ask(extent, begin, number, lambda: begun)

    def _ask(self, extent: Extent, write: Write, number: int, begun: Callable[[], bool]) -> None:
        try:
            self._reader.read(extent, write)
        except SourceFailureError as error:
            if error.code == "SourceAway" and error.common:
                self._window.refused(number)
                raise _UnansweredError(error, begun=begun()) from error
            self._window.answered()
            raise
        self._window.answered()


class _UnansweredError(Exception):
    """A request got no answer. `begun`: some bytes came before that, and were taken."""

    def __init__(self, error: SourceFailureError, *, begun: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.begun = begun
