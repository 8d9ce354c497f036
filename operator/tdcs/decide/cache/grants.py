"""Grants of cache space: one pass over all mounts of a cache cluster.

The mounts choose in turn, each from the space that the earlier ones left: pinned mounts first, then those in use, those
that jobs wait for, timed ones before their time, and idle ones in the order of their eviction policies. Data without
room or quota is not granted. A mount whose grant shrinks gives up the last slots of its order. So the data of least
value leaves the cache, and no byte is promised twice.

Equal input gives equal grants, and each mount keeps its nodes if possible, so the grants of an idle cache are stable. A
pass places a mount again only if its demand changed, or its previous room is no longer free.
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
    """Its time is over: it is evicted even if no room is needed, until a job needs it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountDemand:
    """The demand of a mount in one pass.

    Attributes:
        path: the mount's path in the cache.
        manifest: digest of the version.
        wants: the wants of Datasets and Preloads; clones last.
        totals: sums over the files under the paths of each want.
        candidates: nodes that may hold its data; the pass computes their free bytes.
        tier: lower tiers choose first.
        value: within a tier, the largest value chooses first.
        held_before: the previous nodes of each want's copies, by the copy's id.
        payers: the quotas that count a want's bytes, by the want's key.
        filled: bytes on each node that reads have cached; only of a mount that no Dataset preloads.
        readers: where a Dataset whose data follows its jobs is read, by the key of its own want.
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
        """Sort key: the mount that chooses first is the smallest. Among mounts that jobs need, those with a grant come
        first: otherwise two that do not fit together would evict each other in turn."""
        needed = self.tier in (GrantTier.ACTIVE, GrantTier.WAITING)
        has_some = any(nodes for copies in self.held_before.values() for nodes in copies.values())
        return (self.tier, needed and not has_some, -self.value, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantInput:
    """The complete input of the grants of a cache cluster.

    Attributes:
        mounts: the demand of each mount.
        usable: bytes on each node that all mounts together may use.
        quotas: bytes of each quota, by name.
    """

    mounts: tuple[MountDemand, ...]
    usable: Mapping[str, int]
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountGrant:
    """The grant of one mount.

    Attributes:
        tier: the tier in which it chose.
        placements: the placement of each want.
        node_bytes: bytes that it may use on each node.
        evicted: whether all of it must leave the cache.
        largest_cache: bytes of the largest cache among its candidates.
    """

    tier: GrantTier
    placements: tuple[WantPlacement, ...] = ()
    node_bytes: Mapping[str, int] = field(default_factory=dict)
    evicted: bool = False
    largest_cache: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A grant with the demand that it answers.

    Attributes:
        room: free bytes of the candidates and of the quotas at the time. Set only if more room would change the grant:
            it is incomplete or cramped.
    """

    demand: MountDemand
    grant: MountGrant
    room: object = None


FreeNodes = dict[str, tuple[Candidate, Candidate]]
"""Candidates by name, each also with its free bytes. A cache: most mounts share their candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The grants of all mounts of a cache cluster, by path, and the free bytes of nodes and quotas after them.

    Attributes:
        placed: the grants with their demands, for the next pass.
        needed: bytes that a cache needs for each mount (`_needed`).
        usable: bytes on each node that all mounts together could use.
        nodes: the candidates of the last mounts, for the next pass.
    """

    mounts: Mapping[str, MountGrant]
    free: Mapping[str, int]
    quotas: Mapping[str, int]
    placed: Mapping[str, Placed] = field(default_factory=dict)
    needed: Mapping[str, int] = field(default_factory=dict)
    usable: Mapping[str, int] = field(default_factory=dict)
    nodes: FreeNodes = field(default_factory=dict, compare=False)

    @property
    def pinned(self) -> dict[str, int]:
        """Bytes of pinned data by the quota that counts them, of every quota that this pass knew."""
        sums = dict.fromkeys(self.quotas, 0)
        for mount in self.mounts.values():
            for placement in mount.placements if mount.tier is GrantTier.PINNED else ():
                for quota, size in placement.charges.items():
                    sums[quota] += size
        return sums


def grant(inputs: GrantInput, *, before: Grants | None = None) -> Grants:
    """Let the mounts of a cache cluster choose in turn.

    Args:
        inputs: the mounts and the room.
        before: the present grants. A mount keeps its grant while the room is free, even if another placement would be
            better: moved data must be read again.
    """
    before = before if before is not None else Grants(mounts={}, free={}, quotas={})
    free, quotas = dict(inputs.usable), dict(inputs.quotas)
    placed: dict[str, Placed] = {}
    needed: dict[str, int] = {}
    previous_bytes = {path: placed_mount.grant.node_bytes for path, placed_mount in before.placed.items()}
    change = RoomChange(usable=inputs.usable, before=before.usable, taken_before=previous_bytes)
    for mount in sorted(inputs.mounts, key=lambda demand: demand.order):
        mount = _with_known_quotas(mount, quotas)
        previous, comparable = before.placed.get(mount.path), change.reach(mount.path)
        if previous is not None and comparable and _finds_the_same(mount, previous, change):
            chosen = previous
        else:
            chosen = _chosen(mount, free=free, quotas=quotas, before=previous, nodes=before.nodes)
            change.take(chosen.grant.node_bytes, before=previous_bytes[mount.path] if comparable else {})
        for node, size in chosen.grant.node_bytes.items():
            free[node] = free.get(node, 0) - size
        for placement in chosen.grant.placements:
            for quota, cost in placement.charges.items():
                quotas[quota] -= cost
        placed[mount.path] = chosen
        if not mount.payers:
            needed[mount.path] = before.needed[mount.path] if chosen is previous else _needed(chosen).size
    needed |= _needed_within(inputs.quotas, [mount for path, mount in placed.items() if path not in needed])
    grants = {path: placed_mount.grant for path, placed_mount in placed.items()}
    return Grants(
        mounts=grants,
        free=free,
        quotas=quotas,
        placed=placed,
        needed=needed,
        usable=inputs.usable,
        nodes=before.nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """Bytes that a cache needs for a mount, in all and by quota."""

    size: int = 0
    charged: Mapping[str, int] = field(default_factory=dict)


def _needed_within(quotas: Mapping[str, int], mounts: Iterable[Placed]) -> dict[str, int]:
    """Bytes that a cache needs for each mount that quotas count, by path.

    Data that quotas refuse is not needed. The amount is computed from the demand, never from the grants: with fewer
    nodes, a dataset on every node leaves more of a quota to others, so a leaving worker would be needed again when it
    drains.
    """
    quota_room, sizes = dict(quotas), {}
    for mount in sorted(
        mounts, key=lambda mount: (mount.demand.tier, -mount.demand.value, mount.demand.path)
    ):
        limits = {quota: _quota_left(mount.demand, quota_room[quota]) for quota in mount.demand.quotas}
        needed = _needed(mount, limits)
        sizes[mount.demand.path] = needed.size
        quota_room |= {quota: quota_room[quota] - size for quota, size in needed.charged.items()}
    return sizes


def _needed(placed: Placed, limits: Mapping[str, int] | None = None) -> _Needed:
    """Bytes that a cache needs for a mount, counting each wanted copy; none while it is idle or due.

    The result does not depend on the number of nodes: a copy on every node counts once.
    """
    grant = placed.grant
    if grant.tier not in (GrantTier.PINNED, GrantTier.ACTIVE, GrantTier.WAITING, GrantTier.KEPT):
        return _Needed()
    if not grant.placements:
        return _Needed(size=max(grant.node_bytes.values(), default=0))
    quota_room = dict(limits or {})
    # Datasets and Preloads that want the same files share their nodes; each quota pays for the bytes once.
    bytes_by_paths: dict[tuple[str, ...], int] = {}
    paid: dict[tuple[str, tuple[str, ...]], int] = {}
    further = 0
    for placement in grant.placements:
        want = placement.want
        copy = placement.subset_bytes
        if want.mode == "Replicate":
            copy *= len(want.nodes) or want.node_count or 1
        payers = placed.demand.payers.get(want.key, ())
        before = {quota: 0 if want.alongside else paid.get((quota, want.paths), 0) for quota in payers}
        allowed = max(min([copy * want.copies, *(before[quota] + quota_room[quota] for quota in payers)]), 0)
        if want.alongside:
            allowed -= allowed % max(copy, 1)  # a partial further copy is useless
            further += allowed
        else:
            bytes_by_paths[want.paths] = max(bytes_by_paths.get(want.paths, 0), allowed)
        for quota in payers:
            cost = max(allowed - before[quota], 0)
            quota_room[quota] -= cost
            if not want.alongside:
                paid[quota, want.paths] = before[quota] + cost
    charged = {quota: limit - quota_room[quota] for quota, limit in (limits or {}).items()}
    return _Needed(size=sum(bytes_by_paths.values()) + further, charged=charged)


def _finds_the_same(mount: MountDemand, previous: Placed, change: RoomChange) -> bool:
    """Whether a mount has the same demand and finds its previous room, so that its grant stays.

    A grant that more room would change, or that quotas limit, is computed in every pass.
    """
    return (
        previous.demand is mount
        and previous.room is None
        and bool(previous.grant.placements)
        and not mount.payers
        and not change.concerns(previous.grant.node_bytes)
    )


def _with_known_quotas(mount: MountDemand, quotas: Mapping[str, int]) -> MountDemand:
    """The mount's demand without quotas that have been removed."""
    if all(quota in quotas for names in mount.payers.values() for quota in names):
        return mount
    payers = {key: tuple(quota for quota in names if quota in quotas) for key, names in mount.payers.items()}
    return replace(mount, payers=payers)


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
        # Reads have filled it. It is kept or evicted as a whole: which blocks are read most is unknown here.
        stays = mount.tier in (GrantTier.PINNED, GrantTier.ACTIVE) or all(
            size <= free.get(node, 0) for node, size in mount.filled.items()
        )
        filled = mount.filled if stays else {}
        return Placed(demand=mount, grant=MountGrant(tier=mount.tier, node_bytes=filled, evicted=not stays))
    quota_room = {quota: _quota_left(mount, quotas[quota]) for quota in mount.quotas}
    if before is not None and before.grant.placements and same_placement(before.demand, mount):
        previous_grant = before.grant
        same_room = before.room is not None and before.room == _room(mount, free, quota_room)
        fits = before.room is None and still_fits(
            mount, previous_grant.placements, previous_grant.node_bytes, free=free, quotas=quota_room
        )
        if same_room or (fits and not is_cramped(mount, previous_grant.placements, free=free)):
            if before.demand is mount:
                return before
            if previous_grant.tier is not mount.tier:
                previous_grant = replace(previous_grant, tier=mount.tier)
            return Placed(demand=mount, grant=previous_grant, room=before.room)
    inputs = PlacementInput(
        mount=mount.path,
        manifest=mount.manifest,
        wants=mount.wants,
        totals=mount.totals,
        candidates=tuple(_with_room(mount.candidates, free, previous=nodes)),
        held_before={**mount.held_before, **(_held(before.grant.placements) if before is not None else {})},
        payers=mount.payers,
        quotas=quota_room,
        readers=mount.readers,
    )
    placements = place(inputs)
    new_grant = MountGrant(
        tier=mount.tier,
        placements=placements,
        node_bytes=occupied(placements),
        largest_cache=max((candidate.node.capacity_bytes for candidate in mount.candidates), default=0),
    )
    whole = all(_has_all(placement) for placement in placements) and not is_cramped(
        mount, placements, free=free
    )
    return Placed(demand=mount, grant=new_grant, room=None if whole else _room(mount, free, quota_room))


def _held(placements: Iterable[WantPlacement]) -> dict[str, dict[str, frozenset[str]]]:
    """The nodes of each copy: the last grant is newer than the statuses."""
    return {placement.want.key: placement.holders for placement in placements if placement.copies}


def _room(mount: MountDemand, free: Mapping[str, int], quotas: Mapping[str, int]) -> object:
    return [free.get(candidate.node.name, 0) for candidate in mount.candidates], dict(quotas)


def _has_all(placement: WantPlacement) -> bool:
    """Whether more room would not change a placement."""
    want = placement.want
    grows = want.mode == "Replicate" and want.node_count is None and not want.nodes
    return not placement.unplaced_bytes and len(placement.copies) >= want.copies and not grows


def is_cramped(mount: MountDemand, placements: Sequence[WantPlacement], *, free: Mapping[str, int]) -> bool:
    """Whether more room would change a partition: fewer nodes, a whole copy on each, or other shares."""
    capacities = {candidate.node.name: candidate.node.capacity_bytes for candidate in mount.candidates}
    for placement in placements:
        size, want = placement.subset_bytes, placement.want
        for copy in placement.copies:
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
    """Whether a complete placement still fits in the free room."""
    if not all(_has_all(placement) for placement in placements):
        return False
    if any(size > free.get(node, 0) for node, size in node_bytes.items()):
        return False
    charged: dict[str, int] = {}
    for placement in placements:
        for quota, cost in placement.charges.items():
            charged[quota] = charged.get(quota, 0) + cost
    return all(size <= quotas[quota] for quota, size in charged.items())


def same_placement(first: MountDemand, second: MountDemand) -> bool:
    """Whether two demands of a mount lead to the same placement in the same room. Bytes that have arrived, bandwidth
    limits, start times and comparisons do not matter."""
    return first is second or (
        first.manifest == second.manifest
        and lasting(first.wants) == lasting(second.wants)
        and first.payers == second.payers
        and first.readers == second.readers
        and _same_candidates(first, second)
    )


def lasting(wants: Iterable[Want]) -> tuple[Want, ...]:
    """The wants without fields that do not affect their placement."""
    return tuple(replace(want, bandwidth=None, load=True, verify="None", check="") for want in wants)


def _same_candidates(first: MountDemand, second: MountDemand) -> bool:
    if first.candidates is second.candidates:
        return True
    if len(first.candidates) != len(second.candidates):
        return False
    selectors = [want.node_selector for want in second.wants if want.node_selector]
    for mine, theirs in zip(first.candidates, second.candidates, strict=True):
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
    candidates: Iterable[Candidate], free: Mapping[str, int], *, previous: FreeNodes
) -> Iterable[Candidate]:
    """The candidates with their free bytes. `previous`: those of the last mounts, which most mounts share."""
    for candidate in candidates:
        node, free_bytes = candidate.node, max(free.get(candidate.node.name, 0), 0)
        before = previous.get(node.name)
        if before is None or before[0] is not candidate or before[1].node.free_bytes != free_bytes:
            before = previous[node.name] = (
                candidate,
                replace(candidate, node=replace(node, free_bytes=free_bytes)),
            )
        yield before[1]


def _quota_left(mount: MountDemand, quota_room: int) -> int:
    """Bytes of a quota that a mount may use. Cached pinned data stays: a smaller quota must not evict it."""
    if mount.tier is not GrantTier.PINNED:
        return max(quota_room, 0)
    return max(quota_room, sum(candidate.node.held_bytes for candidate in mount.candidates))
