"""Which copies must be made before cache nodes may go. Pure.

Copies that lie elsewhere too need nothing: only the last ones move, to the nodes with the most free room, so that
what was cached stays cached without the source being asked.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.table import BlockTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Evacuation:
    """What is to be done before nodes go.

    Attributes:
        work: the copies to make; a `LoadRun` takes them from the nodes that go.
        lost_bytes: bytes of last copies for which no other node has room: they will be read from the source again.
    """

    work: LoadWork
    lost_bytes: int


def plan_evacuation(
    *, table: BlockTable, leaving: Collection[str], room: Mapping[str, int], skip: Sequence[int] = b""
) -> Evacuation:
    """Where the last copies on the nodes that leave go.

    Args:
        table: a listing of one mount. For several mounts call it for each, with what the others left of the room.
        leaving: the nodes that go; what several of them hold and nobody else moves once.
        room: bytes that other nodes may take.
        skip: one flag a file of the listing: those that are seen to otherwise.
    """
    gone = frozenset(leaving)
    emptiest = [(-free, name) for name, free in room.items() if name not in gone]
    heapq.heapify(emptiest)
    work, lost = LoadWork(table=table), 0
    for file in range(table.files):
        if skip and skip[file]:
            continue
        for block in table.blocks_of(file):
            holders, length = table.holders(block), table.length(block)
            if not holders or not holders <= gone:
                continue
            if not emptiest or -emptiest[0][0] < length:
                lost += length
                continue
            used, taker = emptiest[0]
            heapq.heapreplace(emptiest, (used + length, taker))
            work.add(block=block, nodes=(taker,))
    return Evacuation(work=work, lost_bytes=lost)
