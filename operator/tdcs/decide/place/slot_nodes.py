"""Which node shall hold which slots of a mount, for everything that it is wanted for.

Wants choose one after the other: nodes and mode by `tdcs.decide.place.copy_nodes.plan_copy`, then slots. A replicated
copy has every slot on every node, a partitioned one gives each slot to one node by rendezvous hashing. What does not
fit is left out from the end of the fixed order of slots, so that less room holds a subset of what more room holds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tdcs.decide.cache.wants import Want, copy_ids
from tdcs.decide.place.copy_nodes import CacheNode, CopyPlan, Mode, plan_copy
from tdcs.decide.place.partition import partition_within
from tdcs.decide.place.zone_order import Zones
from tdcs.model import slots
from tdcs.model.manifest_format import Totals
from tdcs.model.nearness import Place

RESERVE_RATIO = 0.02
"""Share of a node's capacity that is never planned for: a worker that is exactly full evicts on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of the cluster as the placement needs it: its labels, its GPUs that no pod holds, its place in the
    topology, and what of that is its zone."""

    name: str
    labels: Mapping[str, str]
    free_gpus: int = 0
    place: Place = ()
    zone: Place = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node with a live cache worker and its agent: what the mount may take there, and the node's labels."""

    node: CacheNode
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingNodes:
    """The nodes to which the copies of one Dataset go, because that Dataset is read there.

    Attributes:
        nodes: those on which it is read, or was a while ago.
        perhaps: those on which it is, perhaps because it was read there until a moment ago. So it stays there.
    """

    nodes: frozenset[str] = frozenset()
    perhaps: frozenset[str] = frozenset()


NOT_READ = ReadingNodes()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementInput:
    """All that a placement depends on; equal inputs have equal placements.

    Attributes:
        mount: engine path; a stable name.
        manifest: digest of the version; `totals` follow from it.
        wants: the first ones choose first.
        totals: sums over the files under the paths of each want, by these paths; `()` is everything.
        candidates: nodes that may hold something.
        held_before: nodes that each copy of a want was given before, by its id; it keeps them where it can.
        payers: by the key of a want the quotas that its bytes count to.
        quotas: what each quota has left, in bytes. What several wants have on a node costs a quota once, by the
            first of those that it counts: what others pay for, who may leave at any time, costs it as much as what
            nobody has.
        readers: where each Dataset is read whose data follows its jobs, by the key of its own want.
    """

    mount: str
    manifest: str
    wants: tuple[Want, ...]
    totals: Mapping[tuple[str, ...], Totals]
    candidates: tuple[Candidate, ...]
    held_before: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    payers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    readers: Mapping[str, ReadingNodes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCopy:
    """One copy: its id, its mode, and the bitmap of slots of each of its nodes, best node first."""

    id: str
    mode: Mode
    nodes: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantPlacement:
    """What one want comes to.

    Attributes:
        want: what was asked for.
        totals: sums over the files under its paths.
        chosen: the slots that are meant: all, or the prefix that a fraction or an amount comes to.
        copies: where they shall be.
        eligible: nodes that could be chosen from.
        asked_bytes: bytes of one copy that were asked for.
        subset_bytes: bytes of one copy in whole slots.
        wanted_bytes: bytes of all copies that shall be on nodes.
        unplaced_bytes: bytes of all copies for which there is no room.
        added_bytes: bytes on each node that it adds to what wants before it have there.
        charges: bytes that it costs each quota that pays for it.
        short_of: the quota that kept some of it out; empty when none did.
    """

    want: Want
    totals: Totals
    chosen: bytes
    copies: tuple[PlacedCopy, ...]
    eligible: int
    asked_bytes: int
    subset_bytes: int
    wanted_bytes: int
    unplaced_bytes: int
    added_bytes: Mapping[str, int] = field(default_factory=dict)
    charges: Mapping[str, int] = field(default_factory=dict)
    short_of: str = ""

    @property
    def holders(self) -> dict[str, frozenset[str]]:
        """The nodes of each copy that shall hold some of it, by its id; without those that found no room."""
        nodes_of = {}
        for copy in self.copies:
            sizes = slots.bytes_of(tuple(copy.nodes.values()), self.totals.sizes)
            nodes_of[copy.id] = frozenset(
                node for node, size in zip(copy.nodes, sizes, strict=True) if size or not self.subset_bytes
            )
        return nodes_of

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for copy in self.copies for node in copy.nodes)

    @property
    def asked_nodes(self) -> int:
        """Nodes that were asked for; at least one for each copy."""
        return (self.want.node_count or 1) * self.want.copies

    def bytes_for(self, node: str) -> int:
        return sum(
            slots.bytes_in(copy.nodes[node], self.totals.sizes) for copy in self.copies if node in copy.nodes
        )


def place(inputs: PlacementInput) -> tuple[WantPlacement, ...]:
    """Where all wants of a mount shall be, in their order."""
    room = _Room(inputs)
    quotas = dict(inputs.quotas)
    paid = {
        quota: _Promises(inputs.totals)
        for quota in {quota_name for quota_names in inputs.payers.values() for quota_name in quota_names}
    }
    nodes_of: dict[str, set[str]] = {}
    placements = []
    node_named = {candidate.node.name: candidate.node for candidate in inputs.candidates}
    for want in inputs.wants:
        paths = want.paths
        totals = inputs.totals[paths]
        limit = want.subset.limit(totals.block_bytes)
        chosen = slots.prefix(slots.prefix_within(totals.sizes, limit))
        fitting_nodes = [
            candidate.node
            for candidate in inputs.candidates
            if (not want.node_selector or matches(candidate.labels, want.node_selector))
            and (not want.nodes or candidate.node.name in want.nodes)
            and not (want.alongside and candidate.node.name in nodes_of.get(want.alongside, ()))
        ]
        candidates = room.left(fitting_nodes, paths=paths, chosen=chosen)
        size = slots.bytes_in(chosen, totals.sizes)
        copies: list[PlacedCopy] = []
        wanted_bytes = unplaced = 0
        added: dict[str, int] = {}
        charges: dict[str, int] = {}
        payers = inputs.payers.get(want.key, ())
        short_of = ""
        plans = _plans_that_stay(
            inputs,
            want,
            candidates,
            size=size,
            totals=totals,
            quotas=quotas,
            others=[node_named[name] for name in sorted(nodes_of.get(want.alongside, ())) if want.alongside],
        )
        for copy_id, plan in plans:
            fitting = room.fit(
                _slots_of(plan, id_=copy_id, mount=inputs.mount, chosen=chosen, totals=totals),
                paths=paths,
            )
            for quota in sorted(payers, key=lambda name: (quotas[name], name)):
                if paid[quota].cost(fitting.copy, paths=paths) > quotas[quota]:
                    within = paid[quota].within(fitting.copy, paths=paths, limit=quotas[quota])
                    fitting = room.fit(within, paths=paths)
                    short_of = short_of or quota
            copy = fitting.copy
            lacks = size * (len(copy.nodes) if plan.mode is Mode.REPLICATE else 1) - fitting.size
            unplaced += lacks
            if want.alongside and lacks:
                continue  # a part of a further copy is of no use to anybody
            wanted_bytes += fitting.size
            for quota in payers:
                cost = paid[quota].cost(copy, paths=paths)
                quotas[quota] -= cost
                charges[quota] = charges.get(quota, 0) + cost
                paid[quota].take(copy, paths=paths)
            nodes_of.setdefault(want.alongside or want.key, set()).update(copy.nodes)
            copies.append(copy)
            for node in copy.nodes:
                added[node] = added.get(node, 0) + fitting.added[node]
            room.promises.take(copy, paths=paths)
        placements.append(
            WantPlacement(
                want=want,
                totals=totals,
                chosen=chosen,
                copies=tuple(copies),
                eligible=len(candidates),
                asked_bytes=limit,
                subset_bytes=size,
                wanted_bytes=wanted_bytes,
                unplaced_bytes=unplaced,
                added_bytes=added,
                charges=charges,
                short_of=short_of,
            )
        )
    return tuple(placements)


def _plans_that_stay(
    inputs: PlacementInput,
    want: Want,
    candidates: Sequence[CacheNode],
    *,
    size: int,
    totals: Totals,
    quotas: Mapping[str, int],
    others: Sequence[CacheNode],
) -> list[tuple[str, CopyPlan]]:
    """The copies of a want by the readers that are known; by those too that there may have been, if copies would leave
    these else. A copy that stays as it is needs no guess, which might move it: whole on a node that was
    never read on."""
    keeps = inputs.held_before.get(want.key, {})
    readers = inputs.readers.get(want.dataset, NOT_READ)

    def planned(on: frozenset[str]) -> list[tuple[str, CopyPlan]]:
        nodes = [replace(node, has_readers=True) if node.name in on else node for node in candidates]
        return list(
            _plans(
                mount=inputs.mount,
                want=want,
                size=size,
                least=int(totals.sizes.max()),
                candidates=_alongside_readers(inputs, want, nodes, size=size, quotas=quotas),
                keeps=keeps,
                others=others,
            )
        )

    plans = planned(readers.nodes)
    chosen = {copy_id: {node.name for node in plan.nodes} for copy_id, plan in plans}
    if all(readers.perhaps.isdisjoint(held - chosen.get(copy_id, set())) for copy_id, held in keeps.items()):
        return plans
    return planned(readers.nodes | readers.perhaps)


def _alongside_readers(
    inputs: PlacementInput,
    want: Want,
    candidates: Sequence[CacheNode],
    *,
    size: int,
    quotas: Mapping[str, int],
) -> list[CacheNode]:
    """The candidates with the readers that a want goes to: those of a further copy are beside their data already, and a
    quota that allows fewer copies than there are nodes with readers is for whole ones."""
    if not any(node.has_readers for node in candidates):
        return list(candidates)
    further = {
        node
        for clone in inputs.wants
        if clone.alongside == want.key
        for nodes in inputs.held_before.get(clone.key, {}).values()
        for node in nodes
    }
    payers = inputs.payers.get(want.key, ())
    quota_left = min((quotas[quota] for quota in payers), default=None)
    most = None if quota_left is None or size <= 0 else max(quota_left, 0) // size
    neighbours, alongside = [], 0
    for node in sorted(candidates, key=lambda node: (-node.held_bytes, node.name)):
        stays = node.has_readers and node.name not in further and (most is None or alongside < most)
        alongside += stays
        neighbours.append(node if node.has_readers == stays else replace(node, has_readers=stays))
    return neighbours


def occupied(placements: Iterable[WantPlacement]) -> dict[str, int]:
    """Bytes that a placement takes on each node: what several wants mean counts once."""
    bytes_on: dict[str, int] = {}
    for placement in placements:
        for node, size in placement.added_bytes.items():
            bytes_on[node] = bytes_on.get(node, 0) + size
    return bytes_on


def matches(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether all labels of the selector are there with their values."""
    return all(labels.get(key) == value for key, value in selector.items())


def _slots_of(plan: CopyPlan, *, id_: str, mount: str, chosen: bytes, totals: Totals) -> PlacedCopy:
    """The slots of each node of a copy, before it is known what others have been promised there."""
    held = dict.fromkeys((node.name for node in plan.nodes), chosen)
    if plan.mode is Mode.PARTITION and len(plan.nodes) > 1:
        held = partition_within(
            mount=mount,
            chosen=chosen,
            sizes=totals.sizes,
            weights={node.name: node.weight for node in plan.nodes},
            limits={node.name: node.limit_bytes for node in plan.nodes},
        )
    return PlacedCopy(id=id_, mode=plan.mode, nodes=held)


def _plans(
    *,
    mount: str,
    want: Want,
    size: int,
    least: int,
    candidates: Iterable[CacheNode],
    keeps: Mapping[str, Collection[str]],
    others: Sequence[CacheNode] = (),
) -> Iterator[tuple[str, CopyPlan]]:
    """The id and the nodes of each copy, until no node is left. A node with less room than `least`, that of the
    largest slot, comes last, whatever it had before."""
    nodes = list(candidates)
    count = len(want.nodes) if want.nodes and want.node_count is None else want.node_count
    used_nodes: set[str] = set()
    most = max((node.held_bytes for node in nodes), default=0) + 1
    for copy_id in want.ids or copy_ids(ids=(), count=want.copies):
        own_nodes = frozenset(keeps.get(copy_id, ()))
        other_nodes = frozenset[str]().union(*keeps.values()) - own_nodes
        open_nodes = [node for node in nodes if node.name not in used_nodes]
        while True:
            ranked = [
                # A node that held this copy before ranks above all others, one that holds another copy below all: else
                # copies would trade nodes, and blocks would travel for it.
                _alongside_others(node, own_nodes=own_nodes, other_nodes=other_nodes, most=most, least=least)
                for node in open_nodes
            ]
            plan = plan_copy(
                dataset=mount,
                dataset_bytes=size,
                nodes=ranked,
                mode=Mode(want.mode),
                node_count=count,
                zones=Zones(want.zones),
                others=[*others, *(node for node in nodes if node.name in used_nodes | other_nodes)],
            )
            # Fewer of the chosen nodes may be enough: a later look, which ranks these first, would find out.
            chosen = frozenset(node.name for node in plan.nodes)
            if chosen == own_nodes or len(chosen) < 2 or count is not None or want.mode == "Replicate":
                break
            own_nodes, open_nodes = chosen, [node for node in open_nodes if node.name in chosen]
        if not plan.nodes:
            return
        yield copy_id, plan
        used_nodes.update(node.name for node in plan.nodes)


def _alongside_others(
    node: CacheNode, *, own_nodes: Collection[str], other_nodes: Collection[str], most: int, least: int
) -> CacheNode:
    """A node as a copy ranks it that was on `own_nodes` before, while other copies were on `other_nodes`."""
    if node.free_bytes < least:  # of several of these the copy's own come first, whichever GPUs are free
        return replace(node, held_bytes=-2 if node.name in own_nodes else -3, has_readers=False)
    if (
        node.name in own_nodes
    ):  # in an order that does not change while it is loaded, nor while jobs come and go
        return replace(node, held_bytes=most, free_gpus=1)
    if node.name in other_nodes:  # that copy is beside the readers there already
        return replace(node, held_bytes=-1, has_readers=False)
    return node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitting:
    """What of a copy finds room: its bytes, and bytes on each node that it adds to what others were promised there."""

    copy: PlacedCopy
    size: int
    added: Mapping[str, int]


class _Promises:
    """What wants were promised on each node. Slots of the same paths are promised once."""

    def __init__(self, totals: Mapping[tuple[str, ...], Totals]) -> None:
        self._totals = totals
        self.nodes: dict[str, dict[tuple[str, ...], bytes]] = {}

    def take(self, copy: PlacedCopy, *, paths: tuple[str, ...]) -> None:
        for node, held in copy.nodes.items():
            promised = self.nodes.setdefault(node, {})
            promised[paths] = slots.union(promised[paths], held) if paths in promised else held

    def cost(self, copy: PlacedCopy, *, paths: tuple[str, ...]) -> int:
        """Bytes that a copy adds on all nodes."""
        return sum(int(self.more(node, paths=paths, held=held)[0].sum()) for node, held in copy.nodes.items())

    def within(self, copy: PlacedCopy, *, paths: tuple[str, ...], limit: int) -> PlacedCopy:
        """The copy with so many slots, from the beginning of their order, that it adds no more than a limit."""
        more = np.sum(
            [self.more(node, paths=paths, held=held)[0] for node, held in copy.nodes.items()], axis=0
        )
        within_limit = slots.mask_of(slots.prefix(slots.prefix_within(more, max(limit, 0))))
        fits = (more == 0) | within_limit
        return replace(
            copy, nodes={node: slots.of_mask(slots.mask_of(held) & fits) for node, held in copy.nodes.items()}
        )

    def more(self, node: str, *, paths: tuple[str, ...], held: bytes) -> tuple[slots.Sizes, int]:
        """Bytes of each slot that slots of a want add to what others were promised on a node, and the bytes of that."""
        promised = self.nodes.get(node, {})
        before = self._slot_bytes(promised)
        with_want = slots.union(promised.get(paths, bytes(slots.BITMAP_BYTES)), held)
        return self._slot_bytes({**promised, paths: with_want}) - before, int(before.sum())

    def _slot_bytes(self, promised: Mapping[tuple[str, ...], bytes]) -> slots.Sizes:
        """Bytes in each slot of a union of selections: folders may be in each other, but no slot has more than all of
        its files."""
        summed = np.zeros(slots.SLOTS, dtype=np.int64)
        for paths, promised_slots in promised.items():
            summed += np.where(slots.mask_of(promised_slots), self._totals[paths].sizes, 0)
        return np.minimum(summed, self._totals[()].sizes)


class _Room:
    """What the wants before have left of the nodes' room."""

    def __init__(self, inputs: PlacementInput) -> None:
        self._free = {candidate.node.name: candidate.node.free_bytes for candidate in inputs.candidates}
        self._totals = inputs.totals
        self.promises = _Promises(inputs.totals)

    def left(self, nodes: Iterable[CacheNode], *, paths: tuple[str, ...], chosen: bytes) -> list[CacheNode]:
        """Nodes with the bytes that a want may take there: what others mean as well does not count against it."""
        return [
            replace(node, free_bytes=self._left(node.name, paths=paths, chosen=chosen))
            if node.name in self.promises.nodes
            else node
            for node in nodes
        ]

    def _left(self, node: str, *, paths: tuple[str, ...], chosen: bytes) -> int:
        own_bytes = slots.bytes_in(chosen, self._totals[paths].sizes)
        more, before = self.promises.more(node, paths=paths, held=chosen)
        return max(self._free[node] - (before + int(more.sum()) - own_bytes), 0)

    def fit(self, copy: PlacedCopy, *, paths: tuple[str, ...]) -> _Fitting:
        """The copy without what a node has no room for beside what others were promised there. What these mean as well
        takes no room; of the rest the end of the order of slots is left out."""
        nodes = dict(copy.nodes)
        sizes = self._totals[paths].sizes
        placed = dict(zip(nodes, slots.bytes_of(tuple(nodes.values()), sizes), strict=True))
        added = dict(placed)
        for node, held in copy.nodes.items():
            if node not in self.promises.nodes and placed[node] <= self._free[node]:
                continue
            more, before = self.promises.more(node, paths=paths, held=held)
            fitting = slots.prefix_within(more, self._free[node] - before)
            fitting_slots = slots.mask_of(held) & ((more == 0) | slots.mask_of(slots.prefix(fitting)))
            nodes[node] = slots.of_mask(fitting_slots)
            placed[node], added[node] = int(sizes[fitting_slots].sum()), int(more[fitting_slots].sum())
        return _Fitting(copy=replace(copy, nodes=nodes), size=sum(placed.values()), added=added)
