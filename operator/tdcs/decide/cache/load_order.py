"""What is loaded into the cache ahead of its readers, in which order and how fast.

The rules:

- Never collapse: of a dataset that does not fit, exactly the part that fits is loaded and kept.
- A part of a dataset is a beginning of the fixed order of slots (:mod:`tdcs.model.slots`). So the same request always
  names the same blocks, and more of it adds blocks and exchanges none.
- Loading may not starve the jobs that run: it takes what they leave of the store's bandwidth, and
  at least a fixed share of it, because a byte that is loaded once saves every later read.
- Within loading, bandwidth goes first to the dataset whose bytes save most (demand over size, see
  :func:`saved_per_byte`), up to its own limit. A part of it is shared over all datasets by
  the number of their waiting jobs, so that no job waits forever behind more valuable ones.

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
        worth: store bandwidth saved per byte cached (`saved_per_byte`).
        waiting_jobs: jobs that wait for it or stall on it.
        limit: its own bandwidth limit (`spec.preload.bandwidth`), in the caller's unit.
    """

    name: str
    missing_bytes: float
    worth: float
    waiting_jobs: int = 0
    limit: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Which part of a dataset shall be cached.

    Attributes:
        paths: files and folders, relative to the source, of which only what is in them is meant; empty for all.
        fraction: at most this part of the bytes of `paths`, above 0 and up to 1; None for all.
        amount: at most so many bytes; None for all. Not together with `fraction`.
    """

    paths: tuple[str, ...] = ()
    fraction: float | None = None
    amount: int | None = None

    def __post_init__(self) -> None:
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ValueError(
                f"fraction must be above 0 and at most 1, got {self.fraction}: write 0.5 for half"
            )
        if self.amount is not None and self.amount < 0:
            raise ValueError(f"amount must not be negative, got {self.amount}")
        if self.fraction is not None and self.amount is not None:
            raise ValueError("fraction and amount exclude each other: give one of them")
        for path in self.paths:
            if ".." in path.split("/"):
                raise ValueError(f"path {path!r} leads out of the source: leave '..' out")

    @property
    def plain_paths(self) -> tuple[str, ...]:
        """The paths in order, without slashes around them; empty when one of them names the whole source."""
        return tuple(sorted(set(_plain(self.paths))))

    @property
    def whole(self) -> bool:
        return not any(_plain(self.paths)) and self.fraction in {None, 1.0} and self.amount is None

    def limit(self, total: int) -> int:
        """Bytes that are asked for, of so many that are under its paths."""
        if self.fraction is not None:
            return int(total * self.fraction)
        return total if self.amount is None else min(total, self.amount)


def _plain(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths without slashes around them; empty as soon as one of them names the whole source."""
    plain = tuple(path.strip("/") for path in paths)
    return () if "" in plain or "." in plain else plain


def budget(*, capacity: float, reading: float, floor: float = LOAD_FLOOR) -> float:
    """The part of the store's capacity that loading may take next to jobs that read at `reading`."""
    return max(capacity - reading, capacity * floor, 0.0)


def serving_order(load: Load) -> tuple[float, float, str]:
    """Sorts who is served first to the front: what saves most, of equal ones what is done soonest."""
    return (-load.worth, load.missing_bytes, load.name)


def share(
    *, loads: Sequence[Load], capacity: float, waiting_share: float = WAITING_SHARE
) -> dict[str, float]:
    """The bandwidth of each load, in the unit of `capacity`; the sum never exceeds it.

    Every load with a waiting job gets something, and nothing is left over while a load could take it.
    """
    rates = {load.name: 0.0 for load in loads}
    open_loads = [load for load in loads if load.missing_bytes > 0]
    waiting = sum(load.waiting_jobs for load in open_loads)
    bandwidth_left = max(capacity, 0.0)
    if waiting:
        common = bandwidth_left * waiting_share
        for load in open_loads:
            rates[load.name] = min(common * load.waiting_jobs / waiting, load.limit)
            bandwidth_left -= rates[load.name]
    for load in sorted(open_loads, key=serving_order):
        more = max(min(bandwidth_left, load.limit - rates[load.name]), 0.0)
        rates[load.name] += more
        bandwidth_left -= more
    return rates


def saved_per_byte(*, size_bytes: float, demand: float) -> float:
    """What one cached byte of a dataset saves the store, in the unit of the demand.

    A dataset of `d` bytes that is read at `f` bytes per second costs the store ``f (1 - c/d)`` when `c` of them are
    cached: one more saves ``f/d``. So the cache goes to datasets in the order of f/d, each whole before the next (the
    greedy rule of SiloD, EuroSys 2023; it is optimal for a divisible cache).

    Args:
        size_bytes: the whole dataset.
        demand: what its jobs read, such as bytes per second; where that is not known, their number.
    """
    return demand / size_bytes if size_bytes > 0 else 0.0
