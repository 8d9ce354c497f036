"""Bandwidth limit of each load of a store, from the bandwidths that Datasets declare or from a measurement."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tdcs.decide.cache.load_order import Load, share

STEPS = 256
"""Shares are multiples of this part of the bandwidth, so that they are stable during a load. Each is at least one part,
so that a load without waiting jobs continues too."""

Place = tuple[str, str]
"""Cache cluster and engine path of a mount."""


def divided(loads: Mapping[Place, Load], *, capacity: int | None) -> dict[Place, int]:
    """The bytes a second of each load, out of `capacity`; empty without a limit.

    A load that lacks nothing gets the whole capacity, as it reads nothing.
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
    """The lowest limit that each namespace declares for a store; namespaces without one are left out."""
    limits: dict[str, int] = {}
    for mount in declared:
        for namespace, limit in mount.items():
            if limit is not None:
                limits[namespace] = min(limit, limits.get(namespace, limit))
    return limits


def limiting_namespace(readers: Iterable[str], *, limits: Mapping[str, int]) -> str | None:
    """The namespace whose limit applies to a mount: the highest of its readers, as a lower one would slow the others.
    None when one of them declares no limit.
    """
    namespaces = sorted(readers)
    if not namespaces or any(namespace not in limits for namespace in namespaces):
        return None
    return max(namespaces, key=lambda namespace: limits[namespace])


def divided_by_tenant(
    tenants: Mapping[str, Mapping[Place, Load]], *, limits: Mapping[str, int]
) -> dict[Place, int]:
    """The bytes a second of each load if namespaces have limits: all loads together stay within the highest limit, and
    the loads of a namespace within its own.
    """
    rates: dict[Place, int] = {}
    remaining = dict(tenants)
    capacity = max((limits[namespace] for namespace in tenants), default=0)
    while remaining:
        together = {place: load for loads in remaining.values() for place, load in loads.items()}
        shares = divided(together, capacity=max(capacity, 1))
        beyond = [
            namespace
            for namespace, loads in remaining.items()
            if sum(shares[place] for place, load in loads.items() if load.missing_bytes > 0)
            > limits[namespace]
        ]
        if not beyond:
            rates |= shares
            break
        for namespace in beyond:
            rates |= divided(remaining.pop(namespace), capacity=limits[namespace])
            capacity -= limits[namespace]
    idle = {
        place: limits[namespace]
        for namespace, loads in tenants.items()
        for place, load in loads.items()
        if load.missing_bytes <= 0
    }
    return rates | idle


def alongside_first(
    loads: Mapping[Place, Load], *, first: Place, ceiling: float, capacity: int
) -> dict[Place, int]:
    """The bytes a second of each load except the one that is served first, out of a measured rate.

    The first load has no limit, as the measurement may be too low. The others share the rest.

    Args:
        first: the load that is served first.
        ceiling: the most that it is expected to read, in bytes a second.
    """
    bounded = {
        place: replace(load, limit=min(load.limit, ceiling)) if place == first else load
        for place, load in loads.items()
    }
    rates = divided(bounded, capacity=capacity)
    return {place: rate for place, rate in rates.items() if place != first}
