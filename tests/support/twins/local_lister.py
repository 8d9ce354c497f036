"""A lister that needs no process of its own."""

from collections.abc import Awaitable, Callable
from typing import Final

from tests.support.twins.engine import MemoryEngine, count_files

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.path_patterns import matcher_of
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import NoSuchPathError
from tdcs.model.file_blocks import Cut
from tdcs.model.file_folders import FolderCounter
from tdcs.model.file_selection import selection_of
from tdcs.model.listing_limit import LimitCount, ListingLimit
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.model.manifest_format import decoded


class LocalLister:
    """A `Lister` in this process, of the sources of the engine in memory.

    Attributes:
        tells_early: whether it gives what it has after each page, as a long listing does.
        between_pages: awaited after each page.
    """

    tells_early: bool = False
    between_pages: Callable[[], Awaitable[None]]

    def __init__(self, *, engine: MemoryEngine, folder: ManifestFolder) -> None:
        self._engine: Final = engine
        self._folder: Final = folder
        self.between_pages = _at_once

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        early: Callable[[Listed], None] | None = None,
    ) -> Listed:
        mount = self._engine.state.mounts.get(path)
        if mount is None:
            raise NoSuchPathError.not_mounted(path=path, attempted=f"list {path}")
        builder = ManifestBuilder(
            path=path,
            source=mount.uri,
            scratch=self._folder.scratch,
            is_taken=matcher_of(selection_of(mount.uri, mount.options)),
            cut=Cut(self._engine.block_size, self._engine.block_size),
        )
        count, folders = LimitCount(limit, subject=mount.uri, path=path), FolderCounter()
        async for page in self._engine.files(path=path, refresh=refresh):
            count_files(count, ((decoded(name), length) for name, length, _ in page), folders=folders)
            builder.add_listed(page)
            if early is not None and self.tells_early:
                so_far = builder.so_far()
                early(Listed(digest=self._folder.write(so_far), **so_far.summary._asdict()))
            await self.between_pages()
        return Listed(digest=self._folder.write(builder), **builder.summary._asdict())


async def _at_once() -> None:
    """Nothing holds the next page back."""
