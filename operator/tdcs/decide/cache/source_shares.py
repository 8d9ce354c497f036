"""What each load may read of a store a second, where Datasets declare a bandwidth or one was measured."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tdcs.decide.cache.load_order import Load, share

STEPS = 256
"""Shares are whole parts of the bandwidth, so that they stay while a load goes on; none is less than one part: a load
that nobody waits for goes on, too."""

Place = tuple[str, str]
"""Cache cluster and engine path of a mount."""


def divided(loads: Mapping[Place, Load], *, capacity: int | None) -> dict[Place, int]:
    """The bytes a second of each load, of so many in all: empty when nothing limits them.

    One that lacks nothing may have all of it: it reads nothing.
    """
    if capacity is None:
        return {}
    step = max(capacity // STEPS, 1)
    rates = share(loads=list(loads.values()), capacity=float(capacity))
    return {
        place: max(int(rates[load.name]) // step * step, step) if load.missing_bytes > 0 else capacity
        for place, load in loads.items()
    }


def tenant_limits(declared: Iterable[Mapping[str, int | None]]) -> dict[str, int]:
    """The least that each namespace declares for a store, of those that declare anything."""
    limits: dict[str, int] = {}
    for mount in declared:
        for namespace, limit in mount.items():
            if limit is not None:
                limits[namespace] = min(limit, limits.get(namespace, limit))
    return limits


def limiting_namespace(readers: Iterable[str], *, limits: Mapping[str, int]) -> str | None:
    """The namespace with the limit that a mount has: of several that read it the highest counts, for a lower one would
    slow others. None: one of them declares nothing.
    """
    found = sorted(readers)
    if not found or any(namespace not in limits for namespace in found):
        return None
    return max(found, key=lambda namespace: limits[namespace])


def divided_by_tenant(
    tenants: Mapping[str, Mapping[Place, Load]], *, limits: Mapping[str, int]
) -> dict[Place, int]:
    """The bytes a second of each load where namespaces have limits: together they read no more than the highest limit,
    and those of each no more than its own.
    """
    given: dict[Place, int] = {}
    left = dict(tenants)
    capacity = max((limits[namespace] for namespace in tenants), default=0)
    while left:
        together = {place: load for loads in left.values() for place, load in loads.items()}
        shares = divided(together, capacity=max(capacity, 1))
        beyond = [
            namespace
            for namespace, loads in left.items()
            if sum(shares[place] for place, load in loads.items() if load.missing_bytes > 0)
            > limits[namespace]
        ]
        if not beyond:
            given |= shares
            break
        for namespace in beyond:
            given |= divided(left.pop(namespace), capacity=limits[namespace])
            capacity -= limits[namespace]
    idle = {
        place: limits[namespace]
        for namespace, loads in tenants.items()
        for place, load in loads.items()
        if load.missing_bytes <= 0
    }
    return given | idle


def beside_first(
    loads: Mapping[Place, Load], *, first: Place, ceiling: float, capacity: int
) -> dict[Place, int]:
    """The bytes a second of each load beside the one that is served first, of a measured rate.

    That one has no limit: the measurement may be too low. The others get what it leaves.

    Args:
        first: the load that is served first.
        ceiling: what it may come to read, in bytes a second.
    """
    bounded = {
        place: replace(load, limit=min(load.limit, ceiling)) if place == first else load
        for place, load in loads.items()
    }
    found = divided(bounded, capacity=capacity)
    return {place: rate for place, rate in found.items() if place != first}
