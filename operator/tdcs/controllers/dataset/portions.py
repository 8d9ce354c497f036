"""How much of a load is given to a worker at once: enough to keep it busy, little enough to see progress. Pure."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

MIB = 1024 * 1024

TARGET_SECONDS = 2.0
"""A portion shall take about this long, so that the status moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """How much is given to a worker at once: at most so many bytes, and so many blocks."""

    size: int
    count: int


FIRST = Portion(size=4 * MIB, count=100)
"""Small: nothing is known of the source yet, and the status shall move soon."""

SMALLEST = Portion(size=MIB, count=10)
LARGEST = Portion(size=256 * MIB, count=1000)


def next_portion(portion: Portion, *, seconds: float) -> Portion:
    """The portion after one that took this long: doubled when it was quick, halved when it was slow."""
    if seconds < TARGET_SECONDS / 2:
        return Portion(size=min(portion.size * 2, LARGEST.size), count=min(portion.count * 2, LARGEST.count))
    if seconds > TARGET_SECONDS * 2:
        return Portion(
            size=max(portion.size // 2, SMALLEST.size), count=max(portion.count // 2, SMALLEST.count)
        )
    return portion


class Portions:
    """Blocks by number, handed out first come, first served, in portions that adapt to how long they take.

    Args:
        length: bytes of a block.
    """

    def __init__(self, *, length: Callable[[int], int]) -> None:
        self._length = length
        self._blocks = array("I")
        self._start = 0
        self._portion = FIRST

    def __len__(self) -> int:
        """How many blocks wait."""
        return len(self._blocks) - self._start

    def add(self, block: int) -> None:
        """One more."""
        self._blocks.append(block)

    def take(self, *, most: int | None = None) -> list[int]:
        """The next blocks, at least one; empty when none waits.

        Args:
            most: bytes that the portion shall not exceed, whatever was learnt.
        """
        size = self._portion.size if most is None else min(self._portion.size, most)
        end, total = self._start, 0
        while end < len(self._blocks) and end - self._start < self._portion.count:
            total += self._length(self._blocks[end])
            if end > self._start and total > size:
                break
            end += 1
        blocks = self._blocks[self._start : end].tolist()
        self._start = end
        return blocks

    def took(self, *, seconds: float) -> None:
        """Learn from a portion that is done."""
        self._portion = next_portion(self._portion, seconds=seconds)

    def drain(self) -> list[int]:
        """All that wait: they are not handed out any more."""
        blocks = self._blocks[self._start :].tolist()
        self._start = len(self._blocks)
        return blocks
