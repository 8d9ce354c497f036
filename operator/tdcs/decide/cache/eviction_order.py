"""What idle datasets are worth to the cache: when room is needed, the least worth leaves first.

A policy is a function that gives the worth of a dataset as a time: when it was last used, or as if it had been used
then. So datasets with different policies can be compared. It must not depend on the present, so that an order holds
until something is used:

- LRU: when the dataset was last used.
- LRFU (Lee and others, "LRFU: a spectrum of policies", IEEE Trans. Computers 2001): combined recency and
  frequency, each use counting half as much every half-life; as a time: when a single use would count as much now.
- NEXT_USE: what waiting jobs will read before all others, the sooner the more worth (Belady's rule with the queue as
  the known future, as Meta's Tectonic-Shift reads it from job specs); the rest by LRU.

Further policies are entry points of the group `tdcs.eviction_policies`.

Which datasets are idle, and how much of each leaves, is for `tdcs.decide.cache.grants`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

ENTRY_POINTS: Final = "tdcs.eviction_policies"
"""Group of the entry points that are policies."""

HALF_LIFE: Final = 86_400.0
"""Seconds after which a use counts half, for LRFU."""

FUTURE: Final = 1e12
"""Later than any last use, in seconds: the worth of a dataset that the next job in the queue reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvictionCandidate:
    """A dataset in the cache. Times are seconds on any one clock.

    Attributes:
        name: for messages of a policy; ties are broken by the mount's path, in `mount_standing`.
        held_bytes: bytes that can be freed.
        last_used: when a job last read it.
        uses: when jobs started to read it, for LRFU; may be a recent part.
        next_use: its place among the waiting jobs (0 is the first), None when none waits for it.
    """

    name: str
    held_bytes: float
    last_used: float = 0.0
    uses: Sequence[float] = ()
    next_use: float | None = None


Policy = Callable[[EvictionCandidate], float]
"""Gives the worth of a dataset: a time in seconds. What has least leaves first."""


def lru(candidate: EvictionCandidate) -> float:
    return candidate.last_used


def lrfu(candidate: EvictionCandidate) -> float:
    """When a single use would count as much as all of its uses do, each half as much after a half-life."""
    uses = candidate.uses or (candidate.last_used,)
    latest = max(uses)
    # Relative to the latest use: powers of times since 1970 would be infinite.
    return latest + HALF_LIFE * math.log2(sum(math.pow(0.5, (latest - use) / HALF_LIFE) for use in uses))


def next_use(candidate: EvictionCandidate) -> float:
    """What a waiting job will read, by its place in the queue; else when it was last used."""
    return candidate.last_used if candidate.next_use is None else FUTURE - candidate.next_use
