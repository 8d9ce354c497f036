"""How the bandwidth of a store is shared over the loads that read from it, by what the jobs lose that wait for them.

The rule is `tdcs.policy.preload.share`. The loads of all cache clusters count that read from one store.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tdcs.api.dataset import SourceSpec
from tdcs.policy.preload import Load, share

STEPS = 256
"""Shares are whole parts of the bandwidth, so that they stay while a load goes on; none is less than one part: a load
that nobody waits for goes on, too."""

Place = tuple[str, str]
"""Cache cluster and engine path of a mount."""


def store_of(source: SourceSpec) -> str:
    """The store that a source lies in: its endpoint, or the file system."""
    if source.uri.startswith("file:"):
        return "file"
    return source.options.endpoint or "s3"


def worth(*, waiting: int, reading: int, missing: float) -> float:
    """What a byte of a load saves: the fewer bytes a waiting job waits for, the sooner it runs; and what is read
    already is read from the source until it is here, which counts a tenth."""
    return (waiting + 0.1 * reading) / max(missing, 1.0)


@dataclass(slots=True, kw_only=True)
class _Store:
    """The loads from one store, the bandwidth that Datasets name for it, and what each load was given."""

    loads: dict[Place, Load] = field(default_factory=dict)
    declared: dict[Place, int] = field(default_factory=dict)
    given: dict[Place, int] = field(default_factory=dict)


class SourceBandwidth:
    """Shares the bandwidth of stores.

    Args:
        on_change: called with cluster and path of a mount that gets another share.
    """

    def __init__(self, *, on_change: Callable[[str, str], None]) -> None:
        self._on_change = on_change
        self._stores: dict[str, _Store] = {}
        self._store_of: dict[Place, str] = {}
        self._changes: dict[Place, int] = {}

    def share(self, *, place: Place, store: str, declared: int | None, load: Load) -> int | None:
        """The bytes a second that a mount may read from its store; None when no Dataset limits that.

        Args:
            place: the mount.
            store: see `store_of`.
            declared: the least `spec.source.bandwidth` of its Datasets; None when none has one.
            load: what it lacks, and what that is worth.
        """
        if self._store_of.get(place, store) != store:
            self.forget(place)
        self._store_of[place] = store
        found = self._stores.setdefault(store, _Store())
        found.loads[place] = load
        found.declared.pop(place, None)
        if declared is not None:
            found.declared[place] = declared
        self._divide(found, but=place)
        return found.given.get(place)

    def changes(self, place: Place) -> int:
        """How often a mount got another share by what others lack."""
        return self._changes.get(place, 0)

    def forget(self, place: Place) -> None:
        """A mount is gone."""
        self._changes.pop(place, None)
        found = self._stores.get(self._store_of.pop(place, ""))
        if found is not None:
            for known in (found.loads, found.declared, found.given):
                known.pop(place, None)
            self._divide(found, but=place)

    def _divide(self, store: _Store, *, but: Place) -> None:
        before = store.given
        store.given = divided(store.loads, capacity=min(store.declared.values(), default=None))
        for place in store.loads:
            if place != but and before.get(place) != store.given.get(place):
                self._changes[place] = self._changes.get(place, 0) + 1
                self._on_change(*place)


def divided(loads: dict[Place, Load], *, capacity: int | None) -> dict[Place, int]:
    """The share of each mount of a store in bytes a second; empty without a limit.

    Mounts that lack nothing may take all of it: what they read is for pods, or begins in a moment.
    """
    if capacity is None:
        return {}
    step = max(capacity // STEPS, 1)
    rates = share(loads=list(loads.values()), capacity=float(capacity))
    return {
        place: max(int(rates[load.name]) // step * step, step) if load.missing_bytes > 0 else capacity
        for place, load in loads.items()
    }
