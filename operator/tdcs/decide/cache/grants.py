"""What each dataset is granted of a cache: one pass over all mounts of a cache cluster.

The mounts choose one after the other, each from what those before it have left: pinned ones first, then those that are
in use, those that jobs wait for, timed ones before their time, and the idle ones in the order of their eviction
policies. What finds no room, or no quota, is not granted; a mount that was granted more before gives up the end of the
order of its slots. So what leaves the cache is what has least worth, and nothing is promised twice.

Equal input gives equal grants, and each mount keeps its nodes where it can, so that the grants of a cache at rest stay.
A pass that follows another one places only those mounts anew that ask for something else, or find no more the room that
they had.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from tdcs.decide.cache.room_change import RoomChange
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.copy_nodes import CopyPlan, Mode, NodeBudget, node_bytes
from tdcs.decide.place.slot_nodes import (
    Candidate,
    PlacementInput,
    ReadingNodes,
    WantPlacement,
    matches,
    occupied,
    place,
)
from tdcs.model.manifest_format import Totals


class GrantTier(IntEnum):
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
        manifest: digest of the version.
        wants: what it is wanted for; clones last.
        totals: sums over the files under the paths of each want.
        candidates: nodes that may hold some of it; their free bytes are worked out here.
        tier: who chooses first.
        value: within a tier the largest chooses first.
        held_before: nodes that each copy of a want was given before, by its id.
        payers: by the key of a want the quotas that its bytes count to.
        filled: bytes on each node that reads have brought there; only of a mount that no Dataset preloads.
        readers: where each Dataset is read whose data follows its jobs, by the key of its own want.
    """

    path: str
    manifest: str
    wants: tuple[Want, ...]
    totals: Mapping[tuple[str, ...], Totals]
    candidates: tuple[Candidate, ...]
    tier: GrantTier = GrantTier.IDLE
    value: float = 0.0
    held_before: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    payers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    readers: Mapping[str, ReadingNodes] = field(default_factory=dict)

    @property
    def quotas(self) -> list[str]:
        return sorted({quota for want in self.wants for quota in self.payers.get(want.key, ())})

    @property
    def order(self) -> tuple[int, bool, float, str]:
        """Sorts who chooses first to the front. Of those that jobs need, who has a grant keeps it: two that do not fit
        together would else push each other out."""
        needed = self.tier in (GrantTier.ACTIVE, GrantTier.WAITING)
        has_some = any(nodes for copies in self.held_before.values() for nodes in copies.values())
        return (self.tier, needed and not has_some, -self.value, self.path)


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
        placements: what each want comes to.
        node_bytes: bytes that it may take on each node.
        evicted: whether it has to leave the cache as a whole.
        largest_cache: bytes of the largest cache among its candidates.
    """

    tier: GrantTier
    placements: tuple[WantPlacement, ...] = ()
    node_bytes: Mapping[str, int] = field(default_factory=dict)
    evicted: bool = False
    largest_cache: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A grant with placements, and what it was made from.

    Attributes:
        room: what was free on the candidates, and left of the quotas; only of a grant that more room would change:
            it is not all that was asked for, or it is cramped.
    """

    demand: MountDemand
    grant: MountGrant
    room: object = None


FreeNodes = dict[str, tuple[Candidate, Candidate]]
"""Candidates by name, and the same with the bytes that were free on them: most mounts choose from nearly the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What all mounts of a cache cluster are granted, by their paths, and what is left of nodes and quotas.

    Attributes:
        placed: the same grants with what they were made from, for the next pass.
        needed: bytes that a cache needs for each mount (`_needed`).
        usable: bytes that all mounts together could take on each node.
        nodes: the candidates that mounts chose from last, for the next pass.
    """

    mounts: Mapping[str, MountGrant]
    free: Mapping[str, int]
    quotas: Mapping[str, int]
    placed: Mapping[str, Placed] = field(default_factory=dict)
    needed: Mapping[str, int] = field(default_factory=dict)
    usable: Mapping[str, int] = field(default_factory=dict)
    nodes: FreeNodes = field(default_factory=dict, compare=False)


def grant(given: GrantInput, *, before: Grants | None = None) -> Grants:
    """Let the mounts of a cache cluster choose, one after the other.

    Args:
        given: the mounts and the room.
        before: the grants that are in force: who finds the room for these keeps them, although others might lie
            better: what moves has to be read again.
    """
    before = before if before is not None else Grants(mounts={}, free={}, quotas={})
    free, quotas = dict(given.usable), dict(given.quotas)
    found: dict[str, Placed] = {}
    needed: dict[str, int] = {}
    taken = {path: one.grant.node_bytes for path, one in before.placed.items()}
    change = RoomChange(usable=given.usable, before=before.usable, taken=taken)
    for mount in sorted(given.mounts, key=lambda one: one.order):
        mount = _with_known_quotas(mount, quotas)
        known, comparable = before.placed.get(mount.path), change.reach(mount.path)
        if known is not None and comparable and _finds_the_same(mount, known, change):
            chosen = known
        else:
            chosen = _chosen(mount, free=free, quotas=quotas, before=known, nodes=before.nodes)
            change.take(chosen.grant.node_bytes, before=taken[mount.path] if comparable else {})
        for node, size in chosen.grant.node_bytes.items():
            free[node] = free.get(node, 0) - size
        for one in chosen.grant.placements:
            for quota, cost in one.charges.items():
                quotas[quota] -= cost
        found[mount.path] = chosen
        if not mount.payers:
            needed[mount.path] = before.needed[mount.path] if chosen is known else _needed(chosen).size
    needed |= _needed_within(given.quotas, [one for path, one in found.items() if path not in needed])
    grants = {path: one.grant for path, one in found.items()}
    return Grants(
        mounts=grants,
        free=free,
        quotas=quotas,
        placed=found,
        needed=needed,
        usable=given.usable,
        nodes=before.nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """Bytes that a cache needs for a mount, and those of them that count to each quota."""

    size: int = 0
    charged: Mapping[str, int] = field(default_factory=dict)


def _needed_within(quotas: Mapping[str, int], mounts: Iterable[Placed]) -> dict[str, int]:
    """Bytes that a cache needs for each of the mounts that quotas count, by its path.

    What quotas keep out is not needed. How much that is follows from what is asked for, never from what was granted:
    with fewer nodes a dataset that lies on every node leaves more of a quota to others, so a worker that is to leave
    would be needed again as soon as it drains.
    """
    left, found = dict(quotas), {}
    for one in sorted(mounts, key=lambda one: (one.demand.tier, -one.demand.value, one.demand.path)):
        limits = {quota: _quota_left(one.demand, left[quota]) for quota in one.demand.quotas}
        needed = _needed(one, limits)
        found[one.demand.path] = needed.size
        left |= {quota: left[quota] - size for quota, size in needed.charged.items()}
    return found


def _needed(placed: Placed, limits: Mapping[str, int] | None = None) -> _Needed:
    """Bytes that a cache needs for a mount, each copy that is asked for counted; none while it is idle or due.

    It does not depend on how many nodes there are: a copy on every node counts as one.
    """
    grant = placed.grant
    if grant.tier not in (GrantTier.PINNED, GrantTier.ACTIVE, GrantTier.WAITING, GrantTier.KEPT):
        return _Needed()
    if not grant.placements:
        return _Needed(size=max(grant.node_bytes.values(), default=0))
    left = dict(limits or {})
    # What Datasets and Preloads want of the same files lies on the same nodes; each quota pays for it once.
    own: dict[tuple[str, ...], int] = {}
    paid: dict[tuple[str, tuple[str, ...]], int] = {}
    further = 0
    for one in grant.placements:
        want = one.want
        copy = one.subset_bytes
        if want.mode == "Replicate":
            copy *= len(want.nodes) or want.node_count or 1
        payers = placed.demand.payers.get(want.key, ())
        before = {quota: 0 if want.beside else paid.get((quota, want.paths), 0) for quota in payers}
        allowed = max(min([copy * want.copies, *(before[quota] + left[quota] for quota in payers)]), 0)
        if want.beside:
            allowed -= allowed % max(copy, 1)  # a part of a further copy is of no use to anybody
            further += allowed
        else:
            own[want.paths] = max(own.get(want.paths, 0), allowed)
        for quota in payers:
            cost = max(allowed - before[quota], 0)
            left[quota] -= cost
            if not want.beside:
                paid[quota, want.paths] = before[quota] + cost
    charged = {quota: limit - left[quota] for quota, limit in (limits or {}).items()}
    return _Needed(size=sum(own.values()) + further, charged=charged)


def _finds_the_same(mount: MountDemand, known: Placed, change: RoomChange) -> bool:
    """Whether a mount asks for what it asked for, and finds the room that it was granted: then it is granted the same.

    What more room would change, and what quotas leave to one of all their mounts, is looked at each time.
    """
    return (
        known.demand is mount
        and known.room is None
        and bool(known.grant.placements)
        and not mount.payers
        and not change.concerns(known.grant.node_bytes)
    )


def _with_known_quotas(mount: MountDemand, quotas: Mapping[str, int]) -> MountDemand:
    """The mount without quotas that were removed since it was looked at."""
    if all(quota in quotas for names in mount.payers.values() for quota in names):
        return mount
    known = {key: tuple(quota for quota in names if quota in quotas) for key, names in mount.payers.items()}
    return replace(mount, payers=known)


def _chosen(
    mount: MountDemand,
    *,
    free: Mapping[str, int],
    quotas: Mapping[str, int],
    before: Placed | None,
    nodes: FreeNodes,
) -> Placed:
    if mount.tier is GrantTier.DUE:
        return Placed(demand=mount, grant=MountGrant(tier=mount.tier, evicted=True))
    if not mount.wants:
        # Reads have filled it. It stays as it is, or leaves as a whole: what is read most is not known here.
        stays = mount.tier in (GrantTier.PINNED, GrantTier.ACTIVE) or all(
            size <= free.get(node, 0) for node, size in mount.filled.items()
        )
        kept = mount.filled if stays else {}
        return Placed(demand=mount, grant=MountGrant(tier=mount.tier, node_bytes=kept, evicted=not stays))
    left = {quota: _quota_left(mount, quotas[quota]) for quota in mount.quotas}
    if before is not None and before.grant.placements and same_placement(before.demand, mount):
        known = before.grant
        same_room = before.room is not None and before.room == _room(mount, free, left)
        fits = before.room is None and still_fits(
            mount, known.placements, known.node_bytes, free=free, quotas=left
        )
        if same_room or (fits and not is_cramped(mount, known.placements, free=free)):
            if before.demand is mount:
                return before
            if known.tier is not mount.tier:
                known = replace(known, tier=mount.tier)
            return Placed(demand=mount, grant=known, room=before.room)
    inputs = PlacementInput(
        mount=mount.path,
        manifest=mount.manifest,
        wants=mount.wants,
        totals=mount.totals,
        candidates=tuple(_with_room(mount.candidates, free, known=nodes)),
        held_before={**mount.held_before, **(_held(before.grant.placements) if before is not None else {})},
        payers=mount.payers,
        quotas=left,
        readers=mount.readers,
    )
    placements = place(inputs)
    made = MountGrant(
        tier=mount.tier,
        placements=placements,
        node_bytes=occupied(placements),
        largest_cache=max((one.node.capacity_bytes for one in mount.candidates), default=0),
    )
    whole = all(_has_all(one) for one in placements) and not is_cramped(mount, placements, free=free)
    return Placed(demand=mount, grant=made, room=None if whole else _room(mount, free, left))


def _held(placements: Iterable[WantPlacement]) -> dict[str, dict[str, frozenset[str]]]:
    """The nodes of each copy: what was granted last is newer than what statuses say."""
    return {one.want.key: one.holders for one in placements if one.copies}


def _room(mount: MountDemand, free: Mapping[str, int], quotas: Mapping[str, int]) -> object:
    return [free.get(one.node.name, 0) for one in mount.candidates], dict(quotas)


def _has_all(placement: WantPlacement) -> bool:
    """Whether more room would change nothing of a placement."""
    want = placement.want
    grows = want.mode == "Replicate" and want.node_count is None and not want.nodes
    return not placement.unplaced_bytes and len(placement.copies) >= want.copies and not grows


def is_cramped(mount: MountDemand, placements: Sequence[WantPlacement], *, free: Mapping[str, int]) -> bool:
    """Whether more room would have a partition lie otherwise: on fewer nodes, whole on each, or in other shares."""
    capacities = {one.node.name: one.node.capacity_bytes for one in mount.candidates}
    for one in placements:
        size, want = one.subset_bytes, one.want
        for copy in one.copies:
            if copy.mode is not Mode.PARTITION or len(copy.nodes) < 2:
                continue
            sizes = sorted(capacities.get(node, 0) for node in copy.nodes)
            if want.node_count is None and sum(sizes[1:]) >= size:
                return True
            if want.mode == "Auto" and sizes[0] >= size:
                return True
            budgets = tuple(
                NodeBudget(name=node, weight=capacities.get(node, 0), limit_bytes=max(free.get(node, 0), 0))
                for node in copy.nodes
            )
            shares = node_bytes(CopyPlan(mode=Mode.PARTITION, nodes=budgets, dataset_bytes=size, fits=True))
            if any(budget.limit_bytes <= shares[budget.name] for budget in budgets):
                return True
    return False


def still_fits(
    mount: MountDemand,
    placements: Sequence[WantPlacement],
    node_bytes: Mapping[str, int],
    *,
    free: Mapping[str, int],
    quotas: Mapping[str, int],
) -> bool:
    """Whether a placement that has all that was asked for finds its room also in what is free now."""
    if not all(_has_all(one) for one in placements):
        return False
    if any(size > free.get(node, 0) for node, size in node_bytes.items()):
        return False
    charged: dict[str, int] = {}
    for one in placements:
        for quota, cost in one.charges.items():
            charged[quota] = charged.get(quota, 0) + cost
    return all(size <= quotas[quota] for quota, size in charged.items())


def same_placement(one: MountDemand, other: MountDemand) -> bool:
    """Whether two demands of a mount call for the same placement, given the same room: but for what has arrived by now
    of what was granted, and for a limit of bandwidth, a start or a comparison."""
    return one is other or (
        one.manifest == other.manifest
        and lasting(one.wants) == lasting(other.wants)
        and one.payers == other.payers
        and one.readers == other.readers
        and _same_candidates(one, other)
    )


def lasting(wants: Iterable[Want]) -> tuple[Want, ...]:
    """Wants without what is no matter of place."""
    return tuple(replace(want, bandwidth=None, load=True, verify="None", check="") for want in wants)


def _same_candidates(one: MountDemand, other: MountDemand) -> bool:
    if one.candidates is other.candidates:
        return True
    if len(one.candidates) != len(other.candidates):
        return False
    selectors = [want.node_selector for want in other.wants if want.node_selector]
    for mine, theirs in zip(one.candidates, other.candidates, strict=True):
        if mine is theirs:
            continue
        if _lasting_node(mine) != _lasting_node(theirs):
            return False
        if mine.labels is not theirs.labels and any(
            matches(mine.labels, selector) != matches(theirs.labels, selector) for selector in selectors
        ):
            return False
    return True


def _lasting_node(candidate: Candidate) -> object:
    node = candidate.node
    return node.name, node.capacity_bytes


def _with_room(
    candidates: Iterable[Candidate], free: Mapping[str, int], *, known: FreeNodes
) -> Iterable[Candidate]:
    """The candidates with what is free on them. `known`: those of the last mount; most are the same for this one."""
    for one in candidates:
        node, left = one.node, max(free.get(one.node.name, 0), 0)
        before = known.get(node.name)
        if before is None or before[0] is not one or before[1].node.free_bytes != left:
            before = known[node.name] = (one, replace(one, node=replace(node, free_bytes=left)))
        yield before[1]


def _quota_left(mount: MountDemand, left: int) -> int:
    """What of a quota a mount may take. What is pinned and there stays: a quota that is made smaller evicts nothing
    that its owner must not lose."""
    if mount.tier is not GrantTier.PINNED:
        return max(left, 0)
    return max(left, sum(one.node.held_bytes for one in mount.candidates))
