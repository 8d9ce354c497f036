"""A read of a program, until it is answered."""

import time
from typing import NamedTuple

from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.serving.place_shares import Asker
from tdcs.node.reader.serving.pod_clock import Wait


class Key(NamedTuple):
    """A piece: of the block with this number in the manifest of a version, `length` bytes from `offset`."""

    version: int
    block: int
    offset: int
    length: int


class Read:
    """A read that waits for pieces.

    Attributes:
        place, unique: of the request.
        pieces: what has come of it so far, in order.
        ranges: for each piece its key, and the bytes of it that are asked for.
        began: when the request was taken, in seconds of the monotonic clock.
        thread: that asks.
        wait: counts the waiting for its pod; None when it does not wait, or is of no known pod.
        asker: for whom it counts among those that wait; None: it does not.
        in_turn: whether it waits for another read of its thread to end, before it begins.
    """

    __slots__ = (
        "asker",
        "began",
        "file",
        "in_turn",
        "missing",
        "pieces",
        "place",
        "ranges",
        "thread",
        "unique",
        "version",
        "wait",
    )

    def __init__(
        self,
        *,
        place: int,
        unique: int,
        thread: int,
        version: OpenVersion,
        file: int,
        ranges: list[tuple[Key, int, int]],
    ) -> None:
        self.place, self.unique, self.thread, self.version, self.file = place, unique, thread, version, file
        self.ranges = ranges
        self.pieces: list[bytes | memoryview | None] = [None] * len(ranges)
        self.missing = len(ranges)
        self.began = time.monotonic()
        self.wait: Wait | None = None
        self.asker: Asker | None = None
        self.in_turn = False
