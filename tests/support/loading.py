"""What tests of loading share, whichever engine they run on."""

from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.protocol import Engine
from tdcs.engine.table import BlockTable


async def listed(engine: Engine, path: str) -> BlockTable:
    """All files below a mounted path."""
    table = BlockTable()
    async for page in engine.files(path=path):
        table.add(page)
    return table


def work_of(table: BlockTable, *nodes: str) -> LoadWork:
    """Every block onto all of the nodes that lack it."""
    work = LoadWork(table=table)
    for block in range(len(table)):
        work.add(block=block, nodes=tuple(node for node in nodes if node not in table.holders(block)))
    return work
