"""A lister that needs no process of its own."""

from typing import Final

from tests.support.twins.engine import MemoryEngine

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_mount
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import Engine
from tdcs.model.file_selection import ALL_FILES, selection_of
from tdcs.model.listing_limit import ListingLimit


class LocalLister:
    """A `Lister` in this process, over any engine: for the engine in memory."""

    def __init__(self, *, engine: Engine, folder: ManifestFolder) -> None:
        self._engine: Final = engine
        self._folder: Final = folder

    async def list(
        self, *, path: str, refresh: bool = False, resume: bool = False, limit: ListingLimit | None = None
    ) -> Listed:
        mount = self._engine.state.mounts.get(path) if isinstance(self._engine, MemoryEngine) else None
        return await list_mount(
            engine=self._engine,
            path=path,
            refresh=refresh,
            folder=self._folder,
            limit=limit,
            selection=selection_of(mount.uri, mount.options) if mount is not None else ALL_FILES,
        )
