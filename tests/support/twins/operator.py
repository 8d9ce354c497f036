"""`tdcs operator` with the engine in memory: `python -m tests.support.twins.operator FILE` and the command's options.

The file describes the engine in JSON: `sources` with their files, `workers` with their capacities, `bytesPerSecond`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.twins.agents import MemoryAgents
from tests.support.twins.engine import MemoryEngine, Operation
from tests.support.twins.local_lister import LocalLister

from tdcs.control.cache_registry import Cache, CachePool
from tdcs.control.operator import operator_command
from tdcs.listing.folder import ManifestFolder


def memory_caches(description: Path, *, folder: ManifestFolder) -> CachePool:
    """One engine without a cache behind it, for every cache cluster."""
    settings: dict[str, Any] = json.loads(description.read_text())
    speed = float(settings.get("bytesPerSecond", 0))
    engine = MemoryEngine(
        sources=settings["sources"], workers=settings["workers"], before=_paced(speed) if speed else None
    )
    cache = Cache(
        engine=engine,
        agents=MemoryAgents(engine=engine, manifests=folder.open),
        lister=LocalLister(engine=engine, folder=folder),
        check_keys=engine.check_keys,
    )
    return CachePool(make=lambda _: cache, folder=folder)


def _paced(speed: float) -> Callable[[Operation], Awaitable[None]]:
    async def pace(operation: Operation) -> None:
        if operation.name == "put":
            await asyncio.sleep(operation.length / speed)

    return pace


def main() -> None:
    """Run the command, with these caches in place of Alluxio's."""
    description = Path(sys.argv.pop(1))

    def make(_objects: object, *, folder: ManifestFolder, **_: object) -> CachePool:
        return memory_caches(description, folder=folder)

    with patch.object(operator_command, "cluster_caches", make):
        operator_command.command(prog_name="tdcs operator")


if __name__ == "__main__":
    main()
