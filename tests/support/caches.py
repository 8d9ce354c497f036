"""Caches in memory, for operators under test."""

import tempfile
from pathlib import Path
from weakref import WeakKeyDictionary

from tests.support.twins.agents import MemoryAgents
from tests.support.twins.engine import MemoryEngine
from tests.support.twins.local_lister import LocalLister

from tdcs.control.cache_registry import Cache, CachePool
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.other_node import OtherNodes
from tdcs.model.export_view import ExportView
from tdcs.model.listing_limit import CheckSize


class MemoryCaches(CachePool):
    """One engine in memory with its agents, for every cache cluster. They outlive the operators that use them.

    Args:
        engine: the cache.
        check_size: counts sources before they are mounted; the engine's own count when left out.

    Attributes:
        agents: what a test looks into, or makes fail.
        lister: lists the sources of the engine.
        exports: what Alluxio's master said last; None: there is none.
    """

    def __init__(self, engine: MemoryEngine, *, check_size: CheckSize | None = None) -> None:
        # A listing of an operator that was killed may write on for a moment, in its thread.
        self._disk = tempfile.TemporaryDirectory(prefix="tdcs-manifests-", ignore_cleanup_errors=True)
        folder = ManifestFolder(Path(self._disk.name))
        self.agents = MemoryAgents(engine=engine, manifests=folder.open)
        self.exports: ExportView | None = None
        self.lister = LocalLister(engine=engine, folder=folder)
        cache = Cache(
            engine=engine,
            agents=self.agents,
            lister=self.lister,
            check_size=check_size or engine.count_source,
            check_keys=engine.check_keys,
            count_elsewhere=OtherNodes(self.agents),
            exports=lambda: self.exports,
        )
        super().__init__(make=lambda _: cache, folder=folder)

    def resume(self) -> None:
        """The agents go on, in the event loop that runs now."""
        self.agents.resume()

    async def close(self) -> None:
        """An operator ends; the caches do not."""

    async def pause(self) -> None:
        """The event loop ends in which the agents work."""
        await self.agents.close()

    async def end(self) -> None:
        """The agents end."""
        await self.pause()
        self._disk.cleanup()


def caches_of(engine: MemoryEngine, known: WeakKeyDictionary[MemoryEngine, MemoryCaches]) -> MemoryCaches:
    """The caches of an engine that several operators use, one after the other."""
    if engine not in known:
        known[engine] = MemoryCaches(engine)
    return known[engine]
