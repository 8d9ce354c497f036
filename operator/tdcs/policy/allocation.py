"""Who gets the cache and who gets the store's bandwidth, decided together.

A dataset of `d` bytes that jobs read at `f` bytes per second costs the store ``f (1 - c/d)`` when `c`
bytes of it are cached, so one more cached byte saves ``f/d`` bytes per second. The cache therefore goes
to the datasets in the order of f/d, each whole before the next (the greedy rule of SiloD, EuroSys
2023; it is optimal for a divisible cache). The bandwidth that is left over is filled like water:
everyone gets what they ask for up to one common level (max-min fairness).

A store limits bytes and requests at once. Each reader's need is therefore measured in its dominant
share (Ghodsi and others, "Dominant Resource Fairness", NSDI 2011): the larger of its part of the
bytes and its part of the requests. No limit can be exceeded, at the price of leaving some of
the other resource unused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreLimits:
    """What an object store gives to the whole cluster, per second."""

    bytes_per_second: float
    requests_per_second: float = math.inf

    def share_per_byte(self, *, object_bytes: float) -> float:
        """The part of the store, per second, that reading one byte of objects of this size takes."""
        per_request = 1.0 / (self.requests_per_second * max(object_bytes, 1.0))
        return max(1.0 / self.bytes_per_second, per_request)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetDemand:
    """A dataset that jobs read, or will read.

    Attributes:
        name: a stable name; ties are broken by it.
        size_bytes: the whole dataset.
        demand: bytes per second that its jobs read when data never lacks, all jobs together.
        held_bytes: bytes of it that the cache holds already.
        floor_bytes: bytes that it gets whatever its demand (a tenant's guarantee or a pin).
    """

    name: str
    size_bytes: float
    demand: float
    held_bytes: float = 0.0
    floor_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Cache bytes of a dataset, and the bandwidth of the store that its jobs get beside it."""

    name: str
    cache_bytes: float
    remote_rate: float


def saved_per_byte(dataset: DatasetDemand) -> float:
    """Bytes per second that one cached byte of the dataset saves the store."""
    return dataset.demand / dataset.size_bytes if dataset.size_bytes > 0 else 0.0


def allocate_cache(
    *, datasets: Sequence[DatasetDemand], cache_bytes: float, margin: float = 0.0
) -> dict[str, float]:
    """Cache bytes of each dataset: floors first, then by saved bandwidth per byte.

    `margin` is hysteresis: bytes that are held count for ``1 + margin`` times as much as bytes that
    would have to be loaded, so that two datasets of about the same worth do not push each other out.
    The grants never exceed the cache nor a dataset's size.
    """
    grants = {dataset.name: 0.0 for dataset in datasets}
    left = max(cache_bytes, 0.0)
    for dataset in sorted(datasets, key=lambda one: (-saved_per_byte(one), one.name)):
        grants[dataset.name] = min(dataset.floor_bytes, dataset.size_bytes, left)
        left -= grants[dataset.name]
    pieces: list[tuple[float, str, float]] = []
    for dataset in datasets:
        worth = saved_per_byte(dataset)
        if worth <= 0.0:
            continue
        held = min(dataset.held_bytes, dataset.size_bytes)
        above_floor = max(held - grants[dataset.name], 0.0)
        pieces.append((-worth * (1.0 + margin), dataset.name, above_floor))
        pieces.append((-worth, dataset.name, dataset.size_bytes - max(held, grants[dataset.name])))
    for _, name, length in sorted(pieces):
        taken = min(length, left)
        grants[name] += taken
        left -= taken
    return grants


def fair_level(*, demands: Sequence[float], capacity: float) -> float:
    """The water level: everyone who asks for less gets all, everyone else gets this much.

    Infinite when there is enough for all.
    """
    left, waiting = capacity, len(demands)
    for demand in sorted(demands):
        if demand * waiting > left:
            return max(left, 0.0) / waiting
        left -= demand
        waiting -= 1
    return math.inf


def water_fill(*, demands: Sequence[float], capacity: float) -> list[float]:
    """The max-min fair shares of a capacity, in the order of the demands."""
    level = fair_level(demands=demands, capacity=capacity)
    return [min(demand, level) for demand in demands]


def allocate(
    *, datasets: Sequence[DatasetDemand], cache_bytes: float, remote_rate: float, margin: float = 0.0
) -> tuple[Grant, ...]:
    """Cache and bandwidth together: the cache by saved bandwidth, the store by water-filling the rest."""
    cache = allocate_cache(datasets=datasets, cache_bytes=cache_bytes, margin=margin)
    needs = [
        one.demand * (1.0 - cache[one.name] / one.size_bytes) if one.size_bytes > 0 else 0.0
        for one in datasets
    ]
    rates = water_fill(demands=needs, capacity=remote_rate)
    return tuple(
        Grant(name=one.name, cache_bytes=cache[one.name], remote_rate=rate)
        for one, rate in zip(datasets, rates, strict=True)
    )
