"""Which node reads a block from the source, and which get it from a node that has it. Pure.

The source sends each byte once, however many nodes want it: what several nodes want is dealt out among them, each
reads its part, and gives it to the others while the next part is being read.

Only the smallest blocks that nobody holds are read by every node: such a block costs a request, not bytes, and a copy
between two nodes costs about twice as much work as reading it.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tdcs.engine.table import BlockTable

COPIED_FROM = 16 * 1024
"""Bytes; smaller blocks that nobody holds are read from the source by every node that wants them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one block reaches its nodes.

    Attributes:
        block: its number in the table.
        origin: the node that has it, or reads it from the source.
        from_source: whether `origin` has to read it first.
        receivers: the nodes that get it from `origin`.
    """

    block: int
    origin: str
    from_source: bool
    receivers: tuple[str, ...] = ()


def routes(
    *,
    table: BlockTable,
    wanted: Iterable[tuple[int, tuple[str, ...]]],
    live: Collection[str],
) -> Iterator[Route]:
    """A route for every block, so that the bytes which each node reads from the source and gives away are even.

    Args:
        wanted: blocks, and the nodes that lack them.
        live: nodes that can give.
    """
    reads: dict[str, int] = {}
    gives: dict[str, int] = {}
    for block, nodes in wanted:
        length = table.length(block)
        holders = sorted(name for name in table.holders(block) if name in live and name not in nodes)
        if holders:
            giver = min(holders, key=lambda name: gives.get(name, 0))
            gives[giver] = gives.get(giver, 0) + length * len(nodes)
            yield Route(block=block, origin=giver, from_source=False, receivers=nodes)
        elif length < COPIED_FROM:
            yield from (Route(block=block, origin=node, from_source=True) for node in nodes)
        else:
            reader = min(nodes, key=lambda name: reads.get(name, 0))
            reads[reader] = reads.get(reader, 0) + length
            others = tuple(name for name in nodes if name != reader)
            yield Route(block=block, origin=reader, from_source=True, receivers=others)
