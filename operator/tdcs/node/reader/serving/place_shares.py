"""How many places of the requests' memory the reads of a version may have, and which of them begin. Decisions only."""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

_PART: Final = 8
_POD_PARTS: Final = 4
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
    REFUSED = 3


class PlaceShares:
    """Counts the reads that wait, by version, pod and thread.

    A source may be slow for as long as it likes, and its reads wait for as long, so a version may have another place
    only while it has fewer than an eighth of those that are free: 911 of 8192, which is more than the threads of a
    node's pods ask for. Each that takes all it can leaves eight ninths to those that come later: beside ten such ones
    another version has 280 places, beside thirty 26, and one place at least is free at any time.

    Pods may read the same version, so one may have another place only while it has fewer than four times what the
    version may still have: 745 of 911. What a thread reads beside another read of its own it has asked for ahead: the
    thread does not stand still for what it asked for before. Such reads may have half of the version's places only,
    those that remain are for threads that have none.

    Attributes:
        bounded: whether a read may be refused, or wait its turn.
    """

    def __init__(self, free: Callable[[], int]) -> None:
        self._free: Final = free
        self.bounded = True
        self._taken: Final = Counter[_Asking]()
        self._begun: Final = Counter[_Asking]()

    def take(self, asker: Asker) -> Share:
        share = self._share(asker) if self.bounded else Share.BEGINS
        if share is not Share.REFUSED:
            self._taken[asker[:1]] += 1
            self._taken[asker[:2]] += 1
        if share is Share.BEGINS:
            self.begin(asker)
        return share

    def begin(self, asker: Asker) -> None:
        self._begun[asker] += 1

    def give_back(self, asker: Asker) -> None:
        for counts, key in ((self._taken, asker[:1]), (self._taken, asker[:2]), (self._begun, asker)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def taken(self, version: int) -> int:
        return self._taken[version,]

    def is_crowded(self, asker: Asker) -> bool:
        """Whether the asker's pod has all that it may ask for ahead."""
        return self._taken[asker[:2]] >= self._left(asker.version)

    def _left(self, version: int) -> int:
        return -(-self._free() // _PART) - self.taken(version)

    def _share(self, asker: Asker) -> Share:
        if self._taken[asker[:2]] >= _POD_PARTS * self._left(asker.version):
            return Share.REFUSED
        begun = self._begun[asker] if asker.thread else 0
        if begun >= _MOST_BEGUN or (begun and self.is_crowded(asker)):
            return Share.WAITS_ITS_TURN
        return Share.BEGINS
