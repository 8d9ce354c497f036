"""Dealing out the blocks of a mount to the nodes of all wants, and comparing with what is there. Pure."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.controllers.dataset.plan import Plan, WantPlan
from tdcs.engine.table import BlockTable
from tdcs.policy.placement import Assignment, BlockSize, assign_blocks
from tdcs.policy.preload import Chosen

_MASK = (1 << 64) - 1


@dataclass(slots=True, kw_only=True)
class OpenWant:
    """A want while its blocks are dealt out."""

    found: WantPlan
    chosen: Chosen
    assigners: list[Iterator[Assignment]] = field(default_factory=list)

    def begin(self, *, table: BlockTable, order: Sequence[int]) -> None:
        """Deal out the files in this order."""
        self.assigners = [
            assign_blocks(plan=copy, blocks=_sizes(table, self.chosen, order)) for copy in self.found.copies
        ]


def compare(
    *,
    table: BlockTable,
    plans: Sequence[OpenWant],
    order: Sequence[int],
    limits: Mapping[str, int],
    leaving: Collection[str] = (),
    refused: Mapping[str, Collection[int]] | None = None,
) -> Plan:
    """Deal out every block, count, and give the copies that nobody wants.

    Args:
        table: what is there.
        plans: the wants; their counts and their work are filled in.
        order: the files in the order in which they are dealt out.
        limits: bytes that each node may take.
        leaving: nodes that leave the cache; nothing need be dropped there.
        refused: ids of blocks that a node shall not hold.
    """
    refused = refused or {}
    taken = dict.fromkeys(limits, 0)
    surplus: dict[str, list[int]] = {}
    unwanted: dict[str, list[int]] = {}
    for file in order:
        users = [plan for plan in plans if plan.chosen.flags[file]]
        whole = dict.fromkeys(range(len(users)), True)
        for block in table.blocks_of(file):
            length, holders, block_id = table.length(block), table.holders(block), table.id(block)
            union: set[str] = set()
            claimed: set[str] = set()
            for number, plan in enumerate(users):
                found, lacking, lies = plan.found, [], False
                for copy, assignment in enumerate(map(next, plan.assigners)):
                    placed = False
                    for node in assignment.nodes:
                        if refused and block_id in refused.get(node, ()):
                            continue
                        if node not in union:
                            if taken[node] + length > limits[node]:
                                continue
                            taken[node] += length
                            union.add(node)
                        placed = True
                        found.wanted_bytes += length
                        brings = found.want.load and node not in claimed
                        if brings:
                            claimed.add(node)
                            found.signature = (found.signature + hash((block_id, node))) & _MASK
                        if node in holders:
                            lies = True
                            found.placed_bytes += length
                            found.count(copy=copy, node=node, size=length)
                            continue
                        whole[number] = False
                        if brings:
                            lacking.append(node)
                    if not placed:
                        found.unplaced_bytes += length
                        whole[number] = False
                found.cached_bytes += length if lies else 0
                found.work.add(block=block, nodes=tuple(lacking))
            if union <= holders:
                for node in holders.difference(union, leaving):
                    (surplus if union else unwanted).setdefault(node, []).append(block)
        for number, plan in enumerate(users):
            plan.found.wanted_files += 1
            plan.found.placed_files += whole[number]
    return Plan(
        surplus={node: table.ids(blocks) for node, blocks in surplus.items()},
        unwanted={node: table.ids(blocks) for node, blocks in unwanted.items()},
    )


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
