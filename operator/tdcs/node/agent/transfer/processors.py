"""How busy the machine's processors are, from the kernel's counters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 1.0
_IDLE: Final = (3, 4)
"""Columns of /proc/stat's first line: idle, and waiting for a disk."""


class Processors:
    """How many processors had nothing to do lately; looked at once a second."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, statistics: Path = Path("/proc/stat")
    ) -> None:
        self._clock: Final = clock
        self._statistics: Final = statistics
        self._before = self._read()
        self._due = 0.0
        self._idle = 0.0

    def idle(self) -> float:
        """Processors that were idle between the last two looks; 0 where that cannot be known."""
        if self._clock() >= self._due:
            self._due = self._clock() + _LOOK_SECONDS
            self._idle = self._look()
        return self._idle

    def _look(self) -> float:
        now, before = self._read(), self._before
        passed = now[1] - before[1]
        if passed <= 0:
            return 0.0
        self._before = now
        return (now[0] - before[0]) / passed * (os.cpu_count() or 1)

    def _read(self) -> tuple[int, int]:
        try:
            fields = self._statistics.read_text().split("\n", 1)[0].split()[1:9]
            values = [int(field) for field in fields]
            return sum(values[column] for column in _IDLE), sum(values)
        except (OSError, ValueError, IndexError):
            return 0, 0
