"""What is loaded into the cache ahead of its readers, in which order and how fast.

The rules:

- Never collapse: of a dataset that does not fit, exactly the part that fits is loaded and kept.
- Loading may not starve the jobs that run: it takes what they leave of the store's bandwidth, and
  at least a fixed share of it, because a byte that is loaded once saves every later read.
- Within loading, bandwidth goes first to the dataset whose bytes save most (demand over size, see
  :mod:`tdcs.policy.allocation`), up to its own limit. A part of it is shared over all datasets by
  the number of their waiting jobs, so that no job waits for ever behind more valuable ones.

Limits: the value of a byte counts the jobs that are known now; how long they will still run is not
known to the cluster, and is not guessed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Share of the store that loading gets even when running jobs ask for all of it.
LOAD_FLOOR = 0.5
#: Part of the loading bandwidth that is shared by waiting jobs whatever their dataset's worth.
WAITING_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """A dataset that is being loaded.

    Attributes:
        name: a stable name; ties are broken by it.
        missing_bytes: bytes that shall be cached and are not yet.
        worth: store bandwidth saved per byte cached (`allocation.saved_per_byte`).
        waiting_jobs: jobs that wait for it or stall on it.
        limit: its own bandwidth limit (`spec.preload.bandwidth`), in the caller's unit.
    """

    name: str
    missing_bytes: float
    worth: float
    waiting_jobs: int = 0
    limit: float = math.inf


def what_fits(*, missing_bytes: float, free_bytes: float) -> float:
    """Bytes to load into what is free: all, or exactly the part that fits."""
    return max(min(missing_bytes, free_bytes), 0.0)


def budget(*, capacity: float, reading: float, floor: float = LOAD_FLOOR) -> float:
    """The part of the store's capacity that loading may take beside jobs that read at `reading`."""
    return max(capacity - reading, capacity * floor, 0.0)


def share(
    *, loads: Sequence[Load], capacity: float, waiting_share: float = WAITING_SHARE
) -> dict[str, float]:
    """The bandwidth of each load, in the unit of `capacity`; the sum never exceeds it.

    Every load with a waiting job gets something, and nothing is left over while a load could take it.
    """
    rates = {load.name: 0.0 for load in loads}
    open_loads = [load for load in loads if load.missing_bytes > 0]
    waiting = sum(load.waiting_jobs for load in open_loads)
    left = max(capacity, 0.0)
    if waiting:
        common = left * waiting_share
        for load in open_loads:
            rates[load.name] = min(common * load.waiting_jobs / waiting, load.limit)
            left -= rates[load.name]
    for load in sorted(open_loads, key=lambda one: (-one.worth, one.missing_bytes, one.name)):
        more = max(min(left, load.limit - rates[load.name]), 0.0)
        rates[load.name] += more
        left -= more
    return rates
