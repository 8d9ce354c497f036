"""How many reads a thread may ask for ahead of what it stands still for, and which of them begin. Decisions only."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

_PART: Final = 8
_MOST_BEGUN: Final = 32
"""Reads of one thread that are fetched at a time, so that reads of others do not wait behind hundreds of them."""

_Asking = tuple[int | str, ...]
"""A version; with a pod; with its thread."""


class Asker(NamedTuple):
    """A thread that reads a version; `thread` 0 and an empty `pod`: it is not known which."""

    version: int
    pod: str
    thread: int


class Share(Enum):
    BEGINS = 1
    WAITS_ITS_TURN = 2


class PlaceShares:
    """Counts the reads that wait, by version, pod and thread.

    A source may be slow for as long as it likes, and its reads wait for as long. A thread that has no other read stands
    still for it: that one begins, and never fails for want of a place. What a thread reads next to another read of its
    own it has asked for ahead. Of such reads 32 begin at a time, and they may have another place only while the pod has
    fewer than its version may still have, which is an eighth of those that are free, less what the version has: 3,855
    of 65,536, and fewer next to others. So what one program asks for ahead leaves room to all others.

    Attributes:
        bounded: whether a read may wait its turn.
    """

    def __init__(self, free: Callable[[], int]) -> None:
        self._free: Final = free
        self.bounded = True
        # No Counter: it takes three times as long for each read.
        self._used: Final[dict[_Asking, int]] = {}
        self._begun: Final[dict[_Asking, int]] = {}

    def take(self, asker: Asker) -> Share:
        share = self._share(asker) if self.bounded else Share.BEGINS
        used, version, pod = self._used, asker[:1], asker[:2]
        used[version] = used.get(version, 0) + 1
        used[pod] = used.get(pod, 0) + 1
        if share is Share.BEGINS:
            self.begin(asker)
        return share

    def begin(self, asker: Asker) -> None:
        self._begun[asker] = self._begun.get(asker, 0) + 1

    def give_back(self, asker: Asker, *, begun: bool = True) -> None:
        """A read has its answer, before or after it has begun."""
        _take_one(self._used, asker[:1])
        _take_one(self._used, asker[:2])
        if begun:
            _take_one(self._begun, asker)

    def is_crowded(self, asker: Asker) -> bool:
        """Whether the asker's pod has all that it may ask for ahead."""
        return self._used.get(asker[:2], 0) >= self._left(asker.version)

    def _left(self, version: int) -> int:
        return -(-self._free() // _PART) - self._used.get((version,), 0)

    def _share(self, asker: Asker) -> Share:
        begun = self._begun.get(asker, 0) if asker.thread else 0
        if begun >= _MOST_BEGUN or (begun and self.is_crowded(asker)):
            return Share.WAITS_ITS_TURN
        return Share.BEGINS


def _take_one(counts: dict[_Asking, int], key: _Asking) -> None:
    """Count one less; a key of which none is left is not kept."""
    count = counts.get(key, 0) - 1
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
