"""Which blocks shall go to which node, and which copies may go. Pure: the same view gives the same plan."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tdcs.controllers.dataset.dealing import OpenWant, by_hash, compare
from tdcs.controllers.dataset.evacuation import plan_evacuation
from tdcs.controllers.dataset.plan import NodeView, Plan, Want, WantPlan
from tdcs.controllers.dataset.survey import Survey
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.protocol import WorkerInfo
from tdcs.engine.table import BlockTable
from tdcs.policy.placement import CacheNode, CopyPlan, Mode, node_bytes, plan_copy
from tdcs.policy.preload import Chosen, choose_files

RESERVE_RATIO = 0.02
"""Share of a worker's capacity that is never planned for: a worker that is exactly full evicts on its own."""


def plan_wants(
    *,
    data: str,
    wants: Sequence[Want],
    survey: Survey,
    workers: Iterable[WorkerInfo],
    nodes: Mapping[str, NodeView],
    held_before: Mapping[str, Sequence[frozenset[str]]] | None = None,
    leaving: Collection[str] = (),
    owned: bool = True,
    moving: Mapping[str, int] | None = None,
    refused: Mapping[str, Collection[int]] | None = None,
) -> Plan:
    """Compare the blocks that are there with those that are wanted.

    Args:
        data: a stable name of the data (the mount path), for breaking ties.
        wants: the first ones choose first.
        survey: what is there.
        workers: the cache's workers; lost ones are no candidates.
        nodes: the cluster's nodes by name; a worker on a node that is not there is no candidate.
        held_before: nodes that each copy of a want was given before; it keeps them where it can.
        leaving: nodes whose workers leave the cache: they get nothing, and what only they hold goes elsewhere.
        owned: whether what nobody wants is dropped anyway; else reads fill the cache, and it is kept, too.
        moving: bytes on their way to each node, for which room is taken there already.
        refused: ids of blocks that a node shall not hold, because its copies were wrong.
    """
    table = survey.table
    staying = [worker for worker in workers if worker.name not in leaving]
    room = available(survey=survey, workers=staying, nodes=nodes, moving=moving or {})
    plans: list[OpenWant] = []
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
        plans.append(OpenWant(found=found, chosen=chosen))
    fits = all(copy.fits for one in plans for copy in one.found.copies)
    order = range(table.files) if fits else by_hash(table)
    for one in plans:
        one.begin(table=table, order=order)
    dropped = compare(
        table=table,
        plans=plans,
        order=order,
        limits={node.name: node.free_bytes for node in room},
        leaving=leaving,
        refused=refused,
    )
    made = [plan.found for plan in plans]
    others = _brought(table=table, plans=made, owned=owned) if leaving else b""
    return Plan(
        wants={plan.want.key: plan for plan in made},
        surplus=dropped.surplus,
        unwanted=dropped.unwanted,
        moves=_moves(table=table, plans=made, room=room, leaving=leaving, skip=others) if leaving else None,
        moves_signature=hash((frozenset(leaving), bytes(others))),
    )


def _brought(*, table: BlockTable, plans: Sequence[WantPlan], owned: bool) -> bytearray:
    """The files of which no last copy need be moved: a load brings them, or nobody wants them."""
    brought, meant = bytearray(table.files), bytearray(table.files)
    for plan in plans:
        if not plan.copies:
            continue  # its nodes are away, or leave: nobody brings it anywhere
        for file, flag in enumerate(plan.flags):
            meant[file] |= flag
            brought[file] |= flag and plan.want.load
    return bytearray(loaded or (owned and not wanted) for loaded, wanted in zip(brought, meant, strict=True))


def _moves(
    *,
    table: BlockTable,
    plans: Sequence[WantPlan],
    room: Iterable[CacheNode],
    leaving: Collection[str],
    skip: Sequence[int],
) -> LoadWork:
    """Last copies that go elsewhere though no load of a want brings them there."""
    taken = [plan.work.bytes_by_node for plan in plans]
    left = {
        node.name: node.free_bytes - node.held_bytes - sum(work.get(node.name, 0) for work in taken)
        for node in room
    }
    return plan_evacuation(table=table, leaving=leaving, room=left, skip=skip).work


def available(
    *,
    survey: Survey,
    workers: Iterable[WorkerInfo],
    nodes: Mapping[str, NodeView],
    moving: Mapping[str, int] = MappingProxyType({}),
) -> list[CacheNode]:
    """The live workers on nodes of the cluster, with what this data may take there."""
    found = []
    for worker in workers:
        node = nodes.get(worker.name)
        if not worker.live or node is None:
            continue
        held = survey.node_bytes.get(worker.name, 0)
        others = max(worker.used_bytes - held - moving.get(worker.name, 0), 0)
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
    chosen: Chosen, *, room: list[CacheNode], table: BlockTable, others: Sequence[OpenWant]
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


def _files(table: BlockTable) -> Iterator[tuple[str, int]]:
    for file in range(table.files):
        yield table.path(file), table.size(file)
