"""The list of blocks of a mount that became readable here, in order, for peers that wait for them."""

from __future__ import annotations

import secrets
import threading
from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np

from tdcs.node.wire import frames
from tdcs.node.wire.frames import News

_LEAST: Final = 4096
"""A list that is this short is left as it is."""


class ReadableBlocks:
    """Ids in the order in which they became readable. Thread-safe.

    A block that was dropped stays in the list: whoever asks for it hears that it is not here. One that comes again and
    again is in the list as often, until half of it are repetitions; then a new list begins, with each block once.
    """

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        self._blocks = array("q")
        self._instance = _instance()
        self._closed = False
        self._most = _LEAST

    def add(self, blocks: Iterable[int]) -> None:
        with self._changed:
            self._blocks.extend(blocks)
            if len(self._blocks) > self._most:
                self._compact()
            self._changed.notify_all()

    def restart(self, blocks: Iterable[int]) -> None:
        """Begin a new list: places in the old one mean nothing any more."""
        with self._changed:
            self._blocks = array("q", blocks)
            self._instance = _instance()
            self._most = max(_LEAST, 2 * len(self._blocks))
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def after(self, *, instance: int, place: int, wait_seconds: float) -> News:
        """The next ids after a place; waits for some when there are none yet."""
        with self._changed:
            if not self._closed and instance == self._instance and place >= len(self._blocks):
                self._changed.wait(wait_seconds)
            if instance != self._instance:
                place = 0
            blocks = self._blocks[place : place + frames.MOST_FEED]
            return News(self._instance, place + len(blocks), blocks)

    def _compact(self) -> None:
        ids = np.array(self._blocks, dtype=np.int64)
        first = np.sort(np.unique(ids, return_index=True)[1])
        if 2 * len(first) <= len(ids):
            self._blocks = array("q", ids[first].tobytes())
            self._instance = _instance()
        self._most = max(_LEAST, 2 * len(first))


def _instance() -> int:
    return secrets.randbits(63) + 1
