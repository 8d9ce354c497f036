"""How fast a training job reads its data, and what holds it back.

The rule: a job whose loader overlaps reading with computing runs at the slowest of five
rates, ``T = min(compute, cache / h, NIC / (1 - h l), remote / (1 - h), CPU / (1 - p))``, where ``h`` is the
share of its bytes that the cache holds, ``l`` the share of those that are on the job's own nodes, and ``p`` the
share of all bytes that are in their page caches. For a cache that keeps what it has this is the estimator of
SiloD (EuroSys 2023), with the terms of the node's links and processors added.

The hit ratios are those of shuffled epochs: every item is read once per epoch, in a new random
order. A cache that keeps a stable part ``x`` of the data hits ``x``. A least-recently-used one hits
``x + (1 - x) ln(1 - x)``: an item is found only when fewer distinct items than fit were read since.

Limits: reading overlaps computing perfectly; rates are means, so stragglers and start-up are not
seen; preprocessing is part of the compute rate.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Bottleneck(StrEnum):
    """What sets the speed of a job."""

    COMPUTE = "compute"
    CACHE = "cache"
    NETWORK = "network"
    REMOTE = "remote"
    CPU = "cpu"
    """The processors of its nodes, which reading takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The rate of a job in bytes per second, and what limits it."""

    rate: float
    bottleneck: Bottleneck


def estimate(
    *,
    compute: float,
    cache: float = math.inf,
    nic: float = math.inf,
    remote: float = math.inf,
    cpu: float = math.inf,
    hit: float = 0.0,
    local: float = 0.0,
    page: float = 0.0,
) -> Estimate:
    """The job's rate, all its GPUs together, in bytes of training data per second.

    Args:
        compute: what its GPUs take when data never lacks.
        cache: what the cache and its clients can hand to the job's nodes.
        nic: what the links of its nodes carry; peers' and the store's bytes share them.
        remote: what the store gives to this job.
        cpu: what the cache's client can read with the processors that its nodes have for this job.
        hit: share of the bytes that the cache holds, 0 to 1.
        local: share of the hit bytes that are on the node that reads them, 0 to 1.
        page: share of the bytes that are in the page cache of the node that reads them, 0 to 1: the kernel gives
            them without the cache's client.
    """
    bounds = (
        (compute, Bottleneck.COMPUTE),
        (limited(ceiling=math.inf, share=cache, part=hit), Bottleneck.CACHE),
        (limited(ceiling=math.inf, share=nic, part=1.0 - hit * local), Bottleneck.NETWORK),
        (limited(ceiling=math.inf, share=remote, part=1.0 - hit), Bottleneck.REMOTE),
        (limited(ceiling=math.inf, share=cpu, part=1.0 - page), Bottleneck.CPU),
    )
    rate, bottleneck = min(bounds, key=lambda bound: bound[0])
    return Estimate(rate=rate, bottleneck=bottleneck)


def limited(*, ceiling: float, share: float, part: float) -> float:
    """The rate when a resource that carries `part` of a job's bytes gives it `share` bytes per second."""
    if part <= 1e-12:
        return ceiling
    rate = share / part
    return rate if rate < ceiling else ceiling


def no_evict_hit_ratio(*, fraction: float) -> float:
    """Hits of a cache that holds a stable `fraction` of the dataset; exactly 1 when only rounding is missing."""
    return 1.0 if fraction > 1.0 - 1e-9 else max(fraction, 0.0)


def lru_hit_ratio(*, fraction: float, share: float = 1.0) -> float:
    """Hits of a least-recently-used cache of `fraction` of the dataset, read in shuffled epochs.

    `share` is the part of the dataset that the cache's readers see in one epoch: 1 for a cache that
    a whole job reads through, 1/N for the page cache of one of the N nodes of a job. With share 1 it
    is ``x + (1 - x) ln(1 - x)``; with a small share items come independently and it tends to ``x``.

    An item read at place u of one epoch and at place w of the g-th epoch after it survives when
    ``(1 - s(1 - u)) (1 - s)^(g-1) (1 - s w) > 1 - x``: the left side is the part of the dataset that
    was not read in between.
    """
    if fraction >= 1.0:
        return 1.0
    if fraction <= 0.0 or share <= 0.0:
        return max(fraction, 0.0)
    if share >= 1.0:
        return fraction + (1.0 - fraction) * math.log1p(-fraction)
    return _found_again(fraction, share)


@lru_cache(maxsize=4096)
def _found_again(fraction: float, share: float) -> float:
    """The sum over the epochs; remembered, because one job asks for it in every epoch and it may be long."""
    low = 1.0 - share
    hits, chance, missing = 0.0, share, 1.0 - fraction
    while missing < 1.0 and chance > 1e-9:
        hits += chance * _product_above(missing, low)
        chance *= low
        missing /= low
    return hits


def page_cache_hit_ratio(*, epoch: int, nodes: int, fraction: float) -> float:
    """Hits of the page caches of a job's nodes in an epoch (the first is 1), without a shared cache.

    Each of the N nodes reads a random 1/N of the dataset per epoch, so what a node has seen before
    epoch k is ``1 - (1 - 1/N)^(k-1)`` of it, and it can hold `fraction` of the dataset.
    """
    if epoch <= 1:
        return 0.0
    read_before = 1.0 - (1.0 - 1.0 / nodes) ** (epoch - 1)
    return min(read_before, lru_hit_ratio(fraction=fraction, share=1.0 / nodes))


def _product_above(bound: float, low: float) -> float:
    """Chance that the product of two independent uniform numbers from [low, 1] exceeds `bound`."""
    if bound >= 1.0:
        return 0.0
    if bound <= low * low:
        return 1.0
    area = (1.0 - low) ** 2
    if bound >= low:
        return (1.0 - bound + bound * math.log(bound)) / area
    return 1.0 - (bound * math.log(bound / (low * low)) - (bound - low * low)) / area
