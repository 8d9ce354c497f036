"""Which copies must be made before a cache node may go. Pure.

Copies that lie elsewhere too need nothing: only the last ones move, to the nodes with the most free room, so that
what was cached stays cached without the source being asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.table import BlockTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Evacuation:
    """What is to be done before a node goes.

    Attributes:
        work: the copies to make; a `LoadRun` takes them from the node that goes.
        lost_bytes: bytes of last copies for which no other node has room: they will be read from the source again.
    """

    work: LoadWork
    lost_bytes: int


def plan_evacuation(*, table: BlockTable, node: str, room: Mapping[str, int]) -> Evacuation:
    """Where the last copies on `node` go.

    Args:
        table: a listing of one mount. For several mounts call it for each, with what the others left of the room.
        node: the one that goes.
        room: bytes that other nodes may take; those that are to go as well must not be among them.
    """
    left = {name: free for name, free in room.items() if name != node}
    work, lost = LoadWork(table=table), 0
    for block in range(len(table)):
        if table.holders(block) != {node}:
            continue
        length = table.length(block)
        taker = max(left, key=lambda name: (left[name], name), default=None)
        if taker is None or left[taker] < length:
            lost += length
            continue
        left[taker] -= length
        work.add(block=block, nodes=(taker,))
    return Evacuation(work=work, lost_bytes=lost)
