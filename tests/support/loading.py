"""What tests of loading share, whichever engine they run on."""

from tdcs.engine.protocol import Engine
from tdcs.engine.table import BlockTable


async def listed(engine: Engine, path: str) -> BlockTable:
    """All files below a mounted path."""
    table = BlockTable()
    async for page in engine.files(path=path):
        table.add(page)
    return table
