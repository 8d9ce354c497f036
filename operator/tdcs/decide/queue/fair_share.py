"""In which turn the waiting jobs of several namespaces come: by the share of the cluster that each namespace has.

The share of a namespace is the largest part that its jobs take of any resource of all nodes (dominant resource
fairness, Ghodsi et al., NSDI 2011), over its weight. The next turn is always that of the namespace with the smallest
share, and counts as taken then: of a team that queues a thousand jobs none but the first goes before those of others.
Inside a namespace the order is priority, then age.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tdcs.model.pod_resources import PODS, Amounts

W = TypeVar("W", bound="WaitingJob")
T = TypeVar("T", bound=Hashable)


class WaitingJob(Protocol):
    """A job that waits, as far as its share goes."""

    @property
    def owner(self) -> str:
        """Whose share it takes of."""

    @property
    def asks(self) -> Amounts:
        """What all of its pods take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Between whom turns are shared out (:func:`turns`).

    Attributes:
        used: what the jobs of each namespace that run take, or of all namespaces that have one share.
        weights: of each; 1 where none is named.
    """

    used: Mapping[str, Amounts]
    weights: Mapping[str, float] = field(default_factory=dict)


def sum_of(parts: Iterable[Amounts]) -> dict[str, int]:
    """The amounts of all parts together."""
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def dominant_share(amounts: Amounts, *, total: Amounts) -> float:
    """The largest part of any resource; 0 of nothing. The number of pods is nobody's concern."""
    largest = 0.0
    for name, value in amounts.items():
        if name != PODS and value > 0 and (all_ := total.get(name, 0)) > 0:
            largest = max(largest, value / all_)
    return largest


def turns(
    waiting: Iterable[W],
    *,
    order: Callable[[W], Any],
    used: Mapping[str, Amounts],
    total: Amounts,
    weights: Mapping[str, float],
) -> list[W]:
    """The waiting jobs, the first turn first.

    Args:
        waiting: in any order.
        order: sorts the jobs of one namespace.
        used: what the jobs of each namespace that run take.
        total: what all nodes have together.
        weights: of each namespace; 1 where none is named. One of weight 0 comes after all others.
    """
    queues: dict[str, list[tuple[Any, W]]] = {}
    keyed = sorted(((order(job), job) for job in waiting), key=lambda pair: pair[0], reverse=True)
    for pair in keyed:
        queues.setdefault(pair[1].owner, []).append(pair)  # the first one last, to be popped
    if len(queues) < 2:
        return [job for _, job in reversed(keyed)]
    used_amounts = {owner: dict(used.get(owner, {})) for owner in queues}

    def entry(owner: str) -> tuple[bool, float, Any, str]:
        """What sorts a namespace: its share; of equal ones the order of their first jobs."""
        weight, share = weights.get(owner, 1.0), dominant_share(used_amounts[owner], total=total)
        return (weight <= 0, share / weight if weight > 0 else share, queues[owner][-1][0], owner)

    heap = [entry(owner) for owner in queues]
    heapq.heapify(heap)
    ordered = []
    while heap:
        owner = heapq.heappop(heap)[-1]
        job = queues[owner].pop()[1]
        ordered.append(job)
        mine = used_amounts[owner]
        for name, value in job.asks.items():
            mine[name] = mine.get(name, 0) + value
        if queues[owner]:
            heapq.heappush(heap, entry(owner))
    return ordered
