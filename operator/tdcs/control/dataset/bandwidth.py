"""How the bandwidth of a store is shared over the loads that read from it, by what the jobs lose that wait for them.

The rules are `tdcs.decide.cache.source_shares`. The loads of all cache clusters count that read from one store. What
there is to share is what Datasets declare (`spec.source.bandwidth`), else what was measured
(`tdcs.decide.cache.source_rate`).

What a Dataset declares holds for the loads of its own namespace: no tenant can slow another one.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tdcs.api.dataset_source import SourceSpec
from tdcs.api.source_uri import CLAIM_SCHEME, is_claim, parse_source_uri
from tdcs.decide.cache.load_order import Load, serving_order
from tdcs.decide.cache.source_rate import Measurement, Timing, measure
from tdcs.decide.cache.source_shares import (
    Place,
    alongside_first,
    divided_by_tenant,
    limiting_namespace,
    tenant_limits,
)

HEADROOM = 1.25
"""Of a measured rate the others share what the load that is served first leaves, and it may need so much more than it
reads now: what it reads grows when the others give way."""

V = TypeVar("V")


def store_of(source: SourceSpec, *, namespace: str = "") -> str:
    """The store that a source is in: its endpoint, the file system, or the claim of a namespace."""
    if source.uri.startswith("file:"):
        return "file"
    if is_claim(source.uri):
        return f"{CLAIM_SCHEME}://{namespace}/{parse_source_uri(source.uri).bucket}"
    return source.endpoint or "s3"


def worth(*, waiting: int, reading: int, missing: float) -> float:
    """What a byte of a load saves: the fewer bytes a waiting job waits for, the sooner it runs; and what is read
    already is read from the source until it is here, which counts a tenth."""
    return (waiting + 0.1 * reading) / max(missing, 1.0)


@dataclass(slots=True, kw_only=True)
class _Store:
    """The loads from one store, those that lack something, what they read, for which namespaces, the bandwidth that
    Datasets name for it, and what was measured; the load that is served first, and what it may come to read; and what
    each load was given."""

    loads: dict[Place, Load] = field(default_factory=dict)
    pending: dict[Place, Load] = field(default_factory=dict)
    rates: dict[Place, float] = field(default_factory=dict)
    readers: dict[Place, tuple[str, ...]] = field(default_factory=dict)
    declared: dict[Place, Mapping[str, int | None]] = field(default_factory=dict)
    measured: Measurement = field(default_factory=Measurement)
    first: tuple[Place, float] | None = None
    shares: dict[Place, int] = field(default_factory=dict)


class SourceBandwidth:
    """Shares the bandwidth of stores.

    Args:
        on_change: called with cluster and path of a mount that gets another share.

    Attributes:
        timing: when stores are measured.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timing = Timing()
        self._on_change = on_change
        self._clock = clock
        self._stores: dict[str, _Store] = {}
        self._store_of: dict[Place, str] = {}

    def share(
        self, *, place: Place, store: str, declared: Mapping[str, int | None], load: Load, rate: float = 0.0
    ) -> int | None:
        """The bytes a second that a mount may read from its store; None when nothing limits it.

        Args:
            store: see `store_of`.
            declared: of each namespace with Datasets that read the mount, the least `spec.source.bandwidth` of these;
                None when none of them has one.
            load: what it lacks, and what that is worth.
            rate: bytes a second that it reads from the store now.
        """
        if self._store_of.get(place, store) != store:
            self.drop_mount(place)
        self._store_of[place] = store
        state = self._stores.setdefault(store, _Store())
        state.loads[place], state.rates[place] = load, rate
        state.readers[place] = tuple(declared)
        _keep(state.pending, place, load if load.missing_bytes > 0 else None)
        _keep(
            state.declared, place, declared if any(limit is not None for limit in declared.values()) else None
        )
        self._divide(state, but=place)
        return state.shares.get(place)

    def drop_mount(self, place: Place) -> None:
        state = self._stores.get(self._store_of.pop(place, ""))
        if state is not None:
            for by_place in (
                state.loads,
                state.pending,
                state.rates,
                state.readers,
                state.declared,
                state.shares,
            ):
                by_place.pop(place, None)
            self._divide(state, but=place)

    def measured(self) -> Mapping[str, float]:
        """The measured rates, in bytes a second, by store."""
        return {
            name: store.measured.rate
            for name, store in list(self._stores.items())
            if store.measured.rate is not None
        }

    def _divide(self, store: _Store, *, but: Place) -> None:
        before, limits = store.shares, tenant_limits(store.declared.values())
        tenants: dict[str, dict[Place, Load]] = {}
        undeclared, pending = store.loads, store.pending
        if limits:
            undeclared = {}
            for place, load in store.loads.items():
                tenant = limiting_namespace(store.readers[place], limits=limits)
                (undeclared if tenant is None else tenants.setdefault(tenant, {}))[place] = load
            pending = {place: load for place, load in pending.items() if place in undeclared}
        if not undeclared:
            store.measured = Measurement()  # what is read now says nothing of the store
        store.shares = divided_by_tenant(tenants, limits=limits) | self._divide_measured(store, pending)
        for place in before.keys() | store.shares.keys():
            if place != but and place in store.loads and before.get(place) != store.shares.get(place):
                self._on_change(*place)

    def _divide_measured(self, store: _Store, pending: Mapping[Place, Load]) -> dict[Place, int]:
        store.measured = measure(
            store.measured,
            now=self._clock(),
            rate=sum(store.rates.get(place, 0.0) for place in pending),
            loads=[load.name for load in pending.values() if load.limit == math.inf],
            timing=self.timing,
        )
        capacity = store.measured.shared
        if capacity is None or len(pending) < 2:
            store.first = None
            return {}
        (first, _), *_ = sorted(pending.items(), key=lambda entry: serving_order(entry[1]))
        store.first = (first, _ceiling(store.first, first, rate=store.rates.get(first, 0.0)))
        return alongside_first(pending, first=first, ceiling=store.first[1], capacity=int(capacity))


def _keep(values: dict[Place, V], place: Place, value: V | None) -> None:
    """Note a value of a place; None: it has none any more."""
    if value is None:
        values.pop(place, None)
    else:
        values[place] = value


def _ceiling(previous: tuple[Place, float] | None, first: Place, *, rate: float) -> float:
    """What the load that is served first may come to read; it stays while what it reads varies only."""
    if (
        previous is not None
        and previous[0] == first
        and previous[1] / (2 * HEADROOM) <= rate <= previous[1] * 0.95
    ):
        return previous[1]
    return max(rate * HEADROOM, 1.0)
