"""What may still be written: bounds of the cache's capacity and of the disk.

The worker must never evict by itself (it would take blocks that were placed), so room is reserved before each block.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

SLACK_BYTES: Final = 32 << 20
"""What stays free on the disk: for folders that grow, manifests, and the worker's own files."""

_LOOK_SECONDS: Final = 0.5


class Room:
    """Bytes that blocks may take. Thread-safe.

    Args:
        free: bytes that the file system has left.
    """

    def __init__(
        self, *, capacity: int, free: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.capacity: Final = capacity
        self._free = free
        self._clock = clock
        self._lock = threading.Lock()
        self._used = 0
        self._reserved = 0
        self._looked_at = float("-inf")
        self._free_bytes = 0

    @property
    def used(self) -> int:
        return self._used

    def reserve(self, length: int) -> str:
        """Reserve room for a block; why not, or an empty text."""
        with self._lock:
            total = self._used + self._reserved + length
            if total > self.capacity:
                over = total - self.capacity
                return f"the cache's capacity of {self.capacity} bytes would be exceeded by {over} bytes"
            now = self._clock()
            if now - self._looked_at > _LOOK_SECONDS:
                self._looked_at, self._free_bytes = now, self._free() - self._reserved
            if self._free_bytes < length + SLACK_BYTES:
                return f"the disk has {max(0, self._free_bytes)} bytes left, and the block needs {length}"
            self._free_bytes -= length
            self._reserved += length
            return ""

    def keep(self, length: int) -> None:
        with self._lock:
            self._reserved -= length
            self._used += length

    def cancel(self, length: int) -> None:
        with self._lock:
            self._reserved -= length
            self._free_bytes += length

    def observe(self, used: int) -> None:
        with self._lock:
            self._used = used

    def removed(self, length: int) -> None:
        with self._lock:
            self._used = max(0, self._used - length)
            self._looked_at = float("-inf")
