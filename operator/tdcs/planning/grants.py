"""What each dataset is granted of a cache: one pass over all mounts of a cache cluster. Pure.

The mounts choose one after the other, each from what those before it have left: pinned ones first, then those that are
in use, those that jobs wait for, timed ones before their time, and the idle ones in the order of their eviction
policies. What finds no room, or no quota, is not granted; a mount that was granted more before gives up the end of the
order of its slots. So what leaves the cache is what has least worth, and nothing is promised twice.

Equal input gives equal grants, and each mount keeps its nodes where it can, so that the grants of a cache at rest stay.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from tdcs.planning.manifest_format import Totals
from tdcs.planning.placement import Candidate, PlacementInput, WantPlacement, occupied, place
from tdcs.planning.wants import Want

Place = Callable[[PlacementInput], tuple[WantPlacement, ...]]
"""`place`, or what remembers its results."""


class Tier(IntEnum):
    """Who chooses first."""

    PINNED = 0
    ACTIVE = 1
    WAITING = 2
    KEPT = 3
    """Idle, and its time is not over."""
    IDLE = 4
    DUE = 5
    """Its time is over: it is evicted, whether room is needed or not, until a job asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountDemand:
    """A mount as the pass sees it.

    Attributes:
        path: engine path.
        manifest: digest of the version.
        wants: what it is wanted for; clones last.
        totals: sums over the files under the paths of each want.
        candidates: nodes that may hold some of it; their free bytes are worked out here.
        tier: who chooses first.
        value: within a tier the largest chooses first.
        held_before: nodes that each copy of a want was given before, by its id.
        payers: by the key of a want the quotas that its bytes count to.
        filled: bytes on each node that reads have brought there; only of a mount that no Dataset preloads.
    """

    path: str
    manifest: str
    wants: tuple[Want, ...]
    totals: Mapping[tuple[str, ...], Totals]
    candidates: tuple[Candidate, ...]
    tier: Tier = Tier.IDLE
    value: float = 0.0
    held_before: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    payers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, bool, float, str]:
        """Sorts who chooses first to the front. Of those that jobs need, who has a grant keeps it: two that do not fit
        together would else push each other out."""
        needed = self.tier in (Tier.ACTIVE, Tier.WAITING)
        return (self.tier, needed and not any(self.held_before.values()), -self.value, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantInput:
    """All that the grants of a cache cluster depend on.

    Attributes:
        mounts: its mounts.
        usable: bytes that all of these together may take on each node.
        quotas: bytes of each quota, by its name.
    """

    mounts: tuple[MountDemand, ...]
    usable: Mapping[str, int]
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountGrant:
    """What a mount is granted.

    Attributes:
        tier: in which it chose.
        given: the placement was made from this.
        placements: what each want comes to.
        node_bytes: bytes that it may take on each node.
        evicted: whether it has to leave the cache as a whole.
    """

    tier: Tier
    given: PlacementInput
    placements: tuple[WantPlacement, ...] = ()
    node_bytes: Mapping[str, int] = field(default_factory=dict)
    evicted: bool = False

    @property
    def crowded_out(self) -> tuple[WantPlacement, ...]:
        """The wants of which nothing was granted although there are bytes to hold."""
        return tuple(one for one in self.placements if one.subset_bytes and not one.wanted_bytes)

    @property
    def needed_bytes(self) -> int:
        """Bytes that a cache needs for it, each copy that is asked for counted; none while it is idle or due.

        It does not depend on how many nodes there are: a copy on every node counts as one.
        """
        if self.tier not in (Tier.PINNED, Tier.ACTIVE, Tier.WAITING, Tier.KEPT):
            return 0
        if not self.placements:
            return max(self.node_bytes.values(), default=0)
        # What Datasets and Preloads want of the same files lies on the same nodes.
        own: dict[tuple[str, ...], int] = {}
        further = 0
        for one in self.placements:
            want, copies = one.want, one.want.copies
            if want.mode == "Replicate":
                copies *= len(want.nodes) or want.node_count or 1
            if want.beside:
                further += one.subset_bytes
            else:
                own[want.paths] = max(own.get(want.paths, 0), one.subset_bytes * copies)
        return sum(own.values()) + further


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What all mounts of a cache cluster are granted, by their paths, and what is left of nodes and quotas."""

    mounts: Mapping[str, MountGrant]
    free: Mapping[str, int]
    quotas: Mapping[str, int]


def grant(given: GrantInput, *, place_one: Place = place) -> Grants:
    """Let the mounts of a cache cluster choose, one after the other.

    Args:
        given: the mounts and the room.
        place_one: places the wants of one mount.
    """
    free, quotas = dict(given.usable), dict(given.quotas)
    found: dict[str, MountGrant] = {}
    for mount in sorted(given.mounts, key=lambda one: one.order):
        mount = _with_known_quotas(mount, quotas)
        chosen = _chosen(mount, free=free, quotas=quotas, place_one=place_one)
        for node, size in chosen.node_bytes.items():
            free[node] = free.get(node, 0) - size
        for one in chosen.placements:
            for quota in mount.payers.get(one.want.key, ()):
                quotas[quota] -= one.charged_bytes
        found[mount.path] = chosen
    return Grants(mounts=found, free=free, quotas=quotas)


def _with_known_quotas(mount: MountDemand, quotas: Mapping[str, int]) -> MountDemand:
    """The mount without quotas that were removed since it was looked at."""
    known = {key: tuple(quota for quota in names if quota in quotas) for key, names in mount.payers.items()}
    return mount if known == mount.payers else replace(mount, payers=known)


def _chosen(
    mount: MountDemand, *, free: Mapping[str, int], quotas: Mapping[str, int], place_one: Place
) -> MountGrant:
    wants = () if mount.tier is Tier.DUE else mount.wants
    needed = {quota for want in wants for quota in mount.payers.get(want.key, ())}
    inputs = PlacementInput(
        mount=mount.path,
        manifest=mount.manifest,
        wants=wants,
        totals=mount.totals,
        candidates=tuple(_with_room(mount.candidates, free)),
        held_before=mount.held_before,
        payers=mount.payers,
        quotas={quota: _quota_left(mount, quotas[quota]) for quota in sorted(needed)},
    )
    if mount.tier is Tier.DUE:
        return MountGrant(tier=mount.tier, given=inputs, evicted=True)
    if not wants:
        # Reads have filled it. It stays as it is, or leaves as a whole: what is read most is not known here.
        stays = mount.tier in (Tier.PINNED, Tier.ACTIVE) or all(
            size <= free.get(node, 0) for node, size in mount.filled.items()
        )
        return MountGrant(
            tier=mount.tier, given=inputs, node_bytes=mount.filled if stays else {}, evicted=not stays
        )
    placements = place_one(inputs)
    return MountGrant(
        tier=mount.tier, given=inputs, placements=placements, node_bytes=occupied(inputs, placements)
    )


def _with_room(candidates: Iterable[Candidate], free: Mapping[str, int]) -> Iterable[Candidate]:
    for one in candidates:
        left = max(free.get(one.node.name, 0), 0)
        yield one if one.node.free_bytes == left else replace(one, node=replace(one.node, free_bytes=left))


def _quota_left(mount: MountDemand, left: int) -> int:
    """What of a quota a mount may take. What is pinned and there stays: a quota that is made smaller evicts nothing
    that its owner must not lose."""
    if mount.tier is not Tier.PINNED:
        return max(left, 0)
    return max(left, sum(one.node.held_bytes for one in mount.candidates))
