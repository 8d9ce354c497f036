"""How many places of the requests' memory the reads of a version may have. Decisions only. Pure."""

from collections.abc import Callable
from typing import Final

_PART: Final = 8


class PlaceShares:
    """Counts the reads that wait, by version.

    A source may be slow for as long as it likes, and its reads wait for as long, so a version may have another place
    only while it has fewer than an eighth of those that are free: 911 of 8192, which is more than the threads of a
    node's pods ask for. Each that takes all it can leaves eight ninths to those that come later: beside ten such ones
    another version has 280 places, beside thirty 26, and one place at least is free at any time.

    Args:
        free: how many places are free now.

    Attributes:
        bounded: whether a read may be refused.
    """

    def __init__(self, free: Callable[[], int]) -> None:
        self._free: Final = free
        self.bounded = True
        self._taken: Final[dict[int, int]] = {}

    def take(self, version: int) -> bool:
        """A read begins to wait, in its place, if it may."""
        taken = self._taken.get(version, 0)
        if self.bounded and taken * _PART >= self._free():
            return False
        self._taken[version] = taken + 1
        return True

    def give_back(self, version: int) -> None:
        """A read that waited has its answer."""
        if self._taken[version] == 1:
            del self._taken[version]
        else:
            self._taken[version] -= 1

    def taken(self, version: int) -> int:
        """How many reads of a version wait."""
        return self._taken.get(version, 0)
