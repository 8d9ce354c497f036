"""How it goes with the agents that blocks come from, and how long they are waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long others are waited for, in seconds.

    Attributes:
        answer: a peer that sends nothing for so long is taken for dead.
        silent: one that was asked and has not answered for so long is passed over: its slots are read from the source.
        stalled: the same for one that answers, but has had nothing new for so long.
        refused: a source that refuses one file after the other is given a pause of so long at most.
        away: a source that answers nothing for so long is reported as away.
    """

    answer: float = 30.0
    silent: float = 30.0
    stalled: float = 120.0
    refused: float = 10.0
    away: float = 10.0


@dataclass
class PeerHealth:
    """How it went with a peer lately. Times are seconds of the monotonic clock."""

    failures: int = 0
    pause_until: float = 0.0
    silent_since: float | None = None
    empty_since: float | None = None
    """Since when it answers, and has nothing of what is missing."""
    progress_at: float = 0.0
    lanes: int = 0
