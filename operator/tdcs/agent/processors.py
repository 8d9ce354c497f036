"""How busy the machine's processors are, from the kernel's counters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_IDLE: Final = (3, 4)
"""Columns of /proc/stat's first line: idle, and waiting for a disk."""


class Processors:
    """Share of all processors that had nothing to do, over the time between two looks."""

    def __init__(self, *, statistics: Path = Path("/proc/stat")) -> None:
        self._statistics: Final = statistics
        self._before = self._read()

    def idle(self) -> float:
        """Processors that were idle since the last call, as a number of them; 0 where that cannot be known."""
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
