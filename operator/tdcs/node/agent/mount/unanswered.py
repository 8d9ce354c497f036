"""Reads of a source that got no answer: whether the source is away, or a single file cannot be read there.

No I/O and no clock: times are seconds that only grow, given by the caller. A block is known by its id.
"""

from __future__ import annotations

from typing import Final

TRIES: Final = 4
"""A block that gets no answer so often, while the source answers for others, cannot be read."""


class UnansweredReads:
    """What a source did not answer lately. Not thread-safe.

    Args:
        away_seconds: a source that answers nothing for so long is away.
    """

    def __init__(self, *, away_seconds: float) -> None:
        self._away_seconds: Final = away_seconds
        self._tries: dict[int, tuple[int, float]] = {}
        self._answered_at = float("-inf")
        self._silent_since: float | None = None

    def answered(self, *, now: float) -> None:
        if self.away(now=now):
            self._tries.clear()  # what it did not answer while it was away says nothing of single files
        self._answered_at, self._silent_since = now, None

    def note(self, block: int, *, now: float) -> bool:
        """A read of a block got no answer; whether that is for the block alone, by what was answered meanwhile."""
        tries, since = self._tries.get(block, (0, now))
        self._tries[block] = (tries + 1, since)
        if self._silent_since is None:
            self._silent_since = now
        return tries + 1 >= TRIES and self._answered_at >= since

    def doubtful(self, block: int) -> bool:
        """Whether a block was tried again in vain, and nothing was answered since: nothing else may be asked for."""
        return self._silent_since is not None and self._tries.get(block, (0, 0.0))[0] > 1

    def ended(self, block: int) -> None:
        """A block was brought, or is known not to be readable."""
        self._tries.pop(block, None)

    def away(self, *, now: float) -> bool:
        """Whether the source has answered nothing for long enough to say so."""
        return self._silent_since is not None and now - self._silent_since >= self._away_seconds
