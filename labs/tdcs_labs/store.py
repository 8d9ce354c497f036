"""The object store of the simulation: what it gives per second, and how its readers share that.

A store limits bytes and requests at once. Each reader's need is therefore measured in its dominant
share (Ghodsi and others, "Dominant Resource Fairness", NSDI 2011): the larger of its part of the
bytes and its part of the requests. No limit can be exceeded, at the price of leaving some of
the other resource unused. Bandwidth is filled like water: everyone gets what they ask for up to one
common level (max-min fairness), as TCP's streams come to share a link.
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


def fair_level(*, demands: Sequence[float], capacity: float) -> float:
    """The water level: everyone who asks for less gets all, everyone else gets this much.

    Infinite when there is enough for all.
    """
    remaining, waiting = capacity, len(demands)
    for demand in sorted(demands):
        if demand * waiting > remaining:
            return max(remaining, 0.0) / waiting
        remaining -= demand
        waiting -= 1
    return math.inf
