"""Which blocks shall go to which node, and which copies may go. Pure: the same view gives the same plan.

A mount may be wanted in several ways at once: by Datasets of the same source with placements of their own, and by
Preloads. Each is a `Want`; the blocks that shall be there are the union.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api.dataset import PlacementMode
from tdcs.api.preload import Verify
from tdcs.controllers.dataset.survey import Survey
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.protocol import WorkerInfo
from tdcs.engine.table import BlockTable
from tdcs.policy.placement import (
    Assignment,
    BlockSize,
    CacheNode,
    CopyPlan,
    Mode,
    assign_blocks,
    node_bytes,
    plan_copy,
)
from tdcs.policy.preload import Chosen, Subset, choose_files

RESERVE_RATIO = 0.02
"""Share of a worker's capacity that is never planned for: a worker that is exactly full evicts on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of the cluster as the placement needs it: its labels, and its GPUs that no training pod holds."""

    name: str
    labels: Mapping[str, str]
    free_gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One way in which the data of a mount is wanted.

    Attributes:
        key: who wants it, such as ``Dataset n/pictures``; a stable name.
        mode: how the bytes of a copy lie on its nodes.
        copies: how many copies, each on nodes of its own.
        node_count: nodes of each copy; None: as `plan_copy` says.
        node_selector: labels that its nodes must carry.
        nodes: the only nodes that may hold it; empty: any.
        subset: which part of the data.
        load: whether what is missing is loaded now; if not, what is there is kept all the same.
        bandwidth: bytes a second that its load may read from the source; None for no limit.
        verify: how much of what was loaded is compared with the source.
    """

    key: str
    mode: PlacementMode = "Auto"
    copies: int = 1
    node_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    subset: Subset = field(default_factory=Subset)
    load: bool = True
    bandwidth: int | None = None
    verify: Verify = "None"


@dataclass(slots=True, kw_only=True)
class WantPlan:
    """What one want comes to.

    Attributes:
        want: what was asked for.
        copies: the chosen nodes of each copy, and its mode.
        eligible: nodes that could be chosen from.
        work: what is to be loaded for it; pairs that another want's load brings are left to that one.
        subset_bytes: bytes of one copy that there is room for.
        asked_bytes: bytes of one copy that were asked for.
        wanted_bytes: bytes of all copies that shall lie on nodes.
        placed_bytes: those that lie there.
        unplaced_bytes: bytes of all copies for which there is no room.
        wanted_files: files that are meant.
        placed_files: those that lie whole on all of their nodes.
        unknown_paths: paths of the subset under which the source has no file.
        flags: the files that are meant, one byte a file of the listing.
    """

    want: Want
    copies: tuple[CopyPlan, ...]
    eligible: int
    work: LoadWork
    subset_bytes: int = 0
    asked_bytes: int = 0
    wanted_bytes: int = 0
    placed_bytes: int = 0
    unplaced_bytes: int = 0
    wanted_files: int = 0
    placed_files: int = 0
    unknown_paths: tuple[str, ...] = ()
    flags: bytearray = field(default_factory=bytearray, repr=False)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The chosen nodes, copy by copy."""
        return tuple(node.name for copy in self.copies for node in copy.nodes)

    @property
    def asked_nodes(self) -> int:
        """Nodes that were asked for; at least one for each copy."""
        return (self.want.node_count or 1) * self.want.copies

    @property
    def missing_bytes(self) -> int:
        """Bytes that are not where they shall be, whoever loads them."""
        return self.wanted_bytes - self.placed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done so that the blocks of a mount lie as all of its users want.

    Attributes:
        wants: what each want comes to, by key.
        surplus: copies to drop once nothing is missing, by node; only of blocks that lie everywhere where they are
            wanted.
        unwanted: copies of blocks that nobody wants anywhere, by node; to be dropped before a load, which needs
            their room.
    """

    wants: Mapping[str, WantPlan] = field(default_factory=dict)
    surplus: Mapping[str, Sequence[int]] = field(default_factory=dict)
    unwanted: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def missing(self) -> bool:
        """Whether something is to be loaded now."""
        return any(len(plan.work) for plan in self.wants.values())


def plan_wants(
    *,
    data: str,
    wants: Sequence[Want],
    survey: Survey,
    workers: Iterable[WorkerInfo],
    nodes: Mapping[str, NodeView],
    held_before: Mapping[str, Sequence[frozenset[str]]] | None = None,
) -> Plan:
    """Compare the blocks that are there with those that are wanted.

    Args:
        data: a stable name of the data (the mount path), for breaking ties.
        wants: the first ones choose first.
        survey: what is there.
        workers: the cache's workers; lost ones are no candidates.
        nodes: the cluster's nodes by name; a worker on a node that is not there is no candidate.
        held_before: nodes that each copy of a want was given before; it keeps them where it can.
    """
    table = survey.table
    room = available(survey=survey, workers=workers, nodes=nodes)
    plans: list[_Open] = []
    for want in wants:
        chosen = choose_files(files=_files(table), subset=want.subset)
        keeps = (held_before or {}).get(want.key, ())
        free = _free_for(chosen, room=room, table=table, others=plans)
        candidates = eligible(want=want, room=free, nodes=nodes)
        found = WantPlan(
            want=want,
            copies=tuple(
                _copies(data=data, want=want, size=chosen.bytes, candidates=candidates, keeps=keeps)
            ),
            eligible=len(candidates),
            work=LoadWork(table=table),
            asked_bytes=chosen.wanted_bytes,
            subset_bytes=chosen.bytes,
            unknown_paths=chosen.unknown_paths,
            flags=chosen.flags,
        )
        plans.append(_Open(found=found, chosen=chosen))
    fits = all(copy.fits for one in plans for copy in one.found.copies)
    order = range(table.files) if fits else by_hash(table)
    for one in plans:
        one.begin(table=table, order=order)
    dropped = _compare(
        table=table, plans=plans, order=order, limits={node.name: node.free_bytes for node in room}
    )
    return Plan(
        wants={plan.found.want.key: plan.found for plan in plans},
        surplus=dropped.surplus,
        unwanted=dropped.unwanted,
    )


def available(
    *, survey: Survey, workers: Iterable[WorkerInfo], nodes: Mapping[str, NodeView]
) -> list[CacheNode]:
    """The live workers on nodes of the cluster, with what this data may take there."""
    found = []
    for worker in workers:
        node = nodes.get(worker.name)
        if not worker.live or node is None:
            continue
        held = survey.node_bytes.get(worker.name, 0)
        others = max(worker.used_bytes - held, 0)
        reserve = int(worker.capacity_bytes * RESERVE_RATIO)
        found.append(
            CacheNode(
                name=worker.name,
                capacity_bytes=worker.capacity_bytes,
                free_bytes=max(worker.capacity_bytes - others - reserve, 0),
                held_bytes=held,
                free_gpus=node.free_gpus,
            )
        )
    return sorted(found, key=lambda node: node.name)


def eligible(*, want: Want, room: Iterable[CacheNode], nodes: Mapping[str, NodeView]) -> list[CacheNode]:
    """The nodes from which a want may choose."""
    return [
        node
        for node in room
        if matches(nodes[node.name].labels, want.node_selector)
        and (not want.nodes or node.name in want.nodes)
    ]


def matches(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether all labels of the selector are there with their values."""
    return all(labels.get(key) == value for key, value in selector.items())


@dataclass(slots=True, kw_only=True)
class _Open:
    """A want while its blocks are dealt out."""

    found: WantPlan
    chosen: Chosen
    assigners: list[Iterator[Assignment]] = field(default_factory=list)

    def begin(self, *, table: BlockTable, order: Sequence[int]) -> None:
        """Deal out the files in this order."""
        self.assigners = [
            assign_blocks(plan=copy, blocks=_sizes(table, self.chosen, order)) for copy in self.found.copies
        ]


def _copies(
    *, data: str, want: Want, size: int, candidates: list[CacheNode], keeps: Sequence[frozenset[str]]
) -> Iterator[CopyPlan]:
    count = len(want.nodes) if want.nodes and want.node_count is None else want.node_count
    taken: set[str] = set()
    most = max((node.held_bytes for node in candidates), default=0) + 1
    for number in range(want.copies):
        own = keeps[number] if number < len(keeps) else frozenset[str]()
        others = frozenset[str]().union(*keeps) - own
        ranked = [
            # What a copy lay on before counts as if it held more than any other node, and what is another copy's
            # as if it held less than nothing: else copies would trade nodes, and blocks would travel for it.
            replace(
                node,
                held_bytes=node.held_bytes + most
                if node.name in own
                else -1
                if node.name in others
                else node.held_bytes,
            )
            for node in candidates
            if node.name not in taken
        ]
        copy = plan_copy(
            dataset=data, dataset_bytes=size, nodes=ranked, mode=Mode(want.mode), node_count=count
        )
        if not copy.nodes:
            return
        yield copy
        taken.update(node.name for node in copy.nodes)


def _free_for(
    chosen: Chosen, *, room: list[CacheNode], table: BlockTable, others: Sequence[_Open]
) -> list[CacheNode]:
    """The room as a later want sees it: what others were promised is taken, but for files that it means as well."""
    promised: dict[str, float] = {}
    for other in others:
        alien = _alien_part(chosen, other=other.chosen, table=table)
        for copy in other.found.copies if alien else ():
            for name, size in node_bytes(copy).items():
                promised[name] = promised.get(name, 0.0) + size * alien
    return [
        replace(node, free_bytes=max(node.free_bytes - int(promised.get(node.name, 0)), 0)) for node in room
    ]


def _alien_part(chosen: Chosen, *, other: Chosen, table: BlockTable) -> float:
    """The part of another choice's bytes that is not in this one."""
    if other.flags == chosen.flags or not other.bytes:
        return 0.0
    pairs = enumerate(zip(chosen.flags, other.flags, strict=True))
    return sum(table.size(file) for file, (mine, his) in pairs if his and not mine) / other.bytes


def _compare(
    *, table: BlockTable, plans: Sequence[_Open], order: Sequence[int], limits: Mapping[str, int]
) -> Plan:
    """Deal out every block, count, and give the copies that nobody wants."""
    taken = dict.fromkeys(limits, 0)
    surplus: dict[str, list[int]] = {}
    unwanted: dict[str, list[int]] = {}
    for file in order:
        users = [plan for plan in plans if plan.chosen.flags[file]]
        whole = dict.fromkeys(range(len(users)), True)
        for block in table.blocks_of(file):
            length, holders = table.length(block), table.holders(block)
            union: set[str] = set()
            claimed: set[str] = set()
            for number, plan in enumerate(users):
                found, lacking = plan.found, []
                for assignment in map(next, plan.assigners):
                    placed = False
                    for node in assignment.nodes:
                        if node not in union:
                            if taken[node] + length > limits[node]:
                                continue
                            taken[node] += length
                            union.add(node)
                        placed = True
                        found.wanted_bytes += length
                        if node in holders:
                            found.placed_bytes += length
                            continue
                        whole[number] = False
                        if found.want.load and node not in claimed:
                            claimed.add(node)
                            lacking.append(node)
                    if not placed:
                        found.unplaced_bytes += length
                        whole[number] = False
                found.work.add(block=block, nodes=tuple(lacking))
            if union <= holders:
                for node in holders - union:
                    (surplus if union else unwanted).setdefault(node, []).append(block)
        for number, plan in enumerate(users):
            plan.found.wanted_files += 1
            plan.found.placed_files += whole[number]
    return Plan(
        surplus={node: table.ids(blocks) for node, blocks in surplus.items()},
        unwanted={node: table.ids(blocks) for node, blocks in unwanted.items()},
    )


def _files(table: BlockTable) -> Iterator[tuple[str, int]]:
    for file in range(table.files):
        yield table.path(file), table.size(file)


def by_hash(table: BlockTable) -> list[int]:
    """The files in the order of a hash of their paths.

    What finds no room is then a sample of all folders, and not the last ones; and always the same one.
    """
    return sorted(range(table.files), key=lambda file: _rank(table.path(file)))


def _rank(path: str) -> bytes:
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _sizes(table: BlockTable, chosen: Chosen, order: Sequence[int]) -> Iterator[BlockSize]:
    for file in order:
        if chosen.flags[file]:
            for block in table.blocks_of(file):
                yield BlockSize(key=table.key(block), length=table.length(block))
