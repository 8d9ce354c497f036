"""What leaves the cache when room is needed.

Never: a pinned dataset, one that a job reads now, and a timed one before its time. First: timed
ones that are due. The others leave in the order of the policy:

- LRU: the one whose last use is longest ago.
- LRFU (Lee and others, "LRFU: a spectrum of policies", IEEE Trans. Computers 2001): the one with the least
  combined recency and frequency, each use counting half as much every half-life.
- NEXT_USE: the one whose next use lies farthest ahead in the queue of waiting jobs, those that no
  job waits for before all others (Belady's rule with the queue as the known future, as Meta's
  Tectonic-Shift reads it from job specs); ties by LRU.

A dataset leaves as a whole, except the last one, of which no more leaves than is needed: what
is left of it still saves reads. Limits: bytes are counted over the cluster; whether they free the
node that needs room is for the caller to ask for by giving that node's bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Policy(StrEnum):
    """The order in which idle datasets leave."""

    LRU = "LRU"
    LRFU = "LRFU"
    NEXT_USE = "NextUse"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A dataset in the cache. Times are seconds on any one clock.

    Attributes:
        name: a stable name; ties are broken by it.
        held_bytes: bytes that can be freed.
        active_jobs: jobs that read it now.
        pinned: whether its owner wants it to stay whatever happens.
        expires_at: for a timed dataset, when it is due; None for others.
        last_used: when a job last read it.
        uses: when jobs started to read it, for LRFU; may be a recent part.
        next_use: its place among the waiting jobs (0 is the first), None when none waits for it.
    """

    name: str
    held_bytes: float
    active_jobs: int = 0
    pinned: bool = False
    expires_at: float | None = None
    last_used: float = 0.0
    uses: Sequence[float] = ()
    next_use: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Eviction:
    """Bytes of a dataset that shall leave."""

    name: str
    freed_bytes: float


def lrfu_value(*, uses: Sequence[float], now: float, half_life: float) -> float:
    """Combined recency and frequency: every use counts 1 at first and half after each half-life."""
    return sum(math.pow(0.5, max(now - use, 0.0) / half_life) for use in uses)


def protected(*, candidate: Candidate, now: float) -> bool:
    """Whether a dataset must not be evicted."""
    if candidate.pinned or candidate.active_jobs > 0:
        return True
    return candidate.expires_at is not None and candidate.expires_at > now


def due(*, candidates: Sequence[Candidate], now: float) -> tuple[Eviction, ...]:
    """Timed datasets whose time has come; they leave whether or not room is needed."""
    return tuple(
        Eviction(name=one.name, freed_bytes=one.held_bytes)
        for one in sorted(candidates, key=lambda one: one.name)
        if one.expires_at is not None and not protected(candidate=one, now=now) and one.held_bytes > 0
    )


def choose(
    *,
    candidates: Sequence[Candidate],
    needed_bytes: float,
    now: float,
    policy: Policy = Policy.LRU,
    half_life: float = 86_400.0,
) -> tuple[Eviction, ...]:
    """What to evict so that `needed_bytes` become free, in order; less when no more may leave."""
    order = sorted(
        (one for one in candidates if one.held_bytes > 0 and not protected(candidate=one, now=now)),
        key=lambda one: _rank(candidate=one, now=now, policy=policy, half_life=half_life),
    )
    chosen: list[Eviction] = []
    for one in order:
        if needed_bytes <= 0:
            break
        freed = min(one.held_bytes, needed_bytes)
        chosen.append(Eviction(name=one.name, freed_bytes=freed))
        needed_bytes -= freed
    return tuple(chosen)


def _rank(
    *, candidate: Candidate, now: float, policy: Policy, half_life: float
) -> tuple[bool, float, float, str]:
    """Sorts what leaves first to the front."""
    not_due = candidate.expires_at is None
    match policy:
        case Policy.LRU:
            first = candidate.last_used
        case Policy.LRFU:
            first = lrfu_value(uses=candidate.uses, now=now, half_life=half_life)
        case Policy.NEXT_USE:
            first = -math.inf if candidate.next_use is None else -candidate.next_use
    return (not_due, first, candidate.last_used, candidate.name)
