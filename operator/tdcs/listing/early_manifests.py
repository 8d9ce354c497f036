"""Manifests of what a listing has so far, so that loading begins while the listing goes on.

Such a manifest names files that the source has, and not all of them: agents load them, and nothing else is decided by
it. A later one, and that of the whole listing, has the same ids for the same files, so what was loaded is kept.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Listed
from tdcs.model.manifest_builder import AbandonedError, ManifestBuilder

_log: Final = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
"""A listing that ends before needs no early manifest."""

GROWTH: Final = 2
"""Each early manifest has at least so many times the files of the last one."""

SHARE: Final = 20
"""Early manifests take at most one part in so many of a listing's time."""


class EarlyManifests:
    """Writes an early manifest now and then, one at a time, in a thread.

    Args:
        folder: where they are written.
        tell: called with each one that is there.
    """

    def __init__(
        self,
        *,
        folder: ManifestFolder,
        tell: Callable[[Listed], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder: Final = folder
        self._tell: Final = tell
        self._clock: Final = clock
        self._next_rows = 1
        self._next_at = clock() + FIRST_SECONDS
        self._builder: ManifestBuilder | None = None
        self._work: asyncio.Task[None] | None = None

    def offer(self, builder: ManifestBuilder) -> None:
        """Begin an early manifest of what a builder has so far, where it is time for one."""
        if self._work is not None and not self._work.done():
            return
        if len(builder) >= self._next_rows and self._clock() >= self._next_at:
            self._next_rows = GROWTH * len(builder)
            self._builder = builder.so_far()
            self._work = asyncio.create_task(self._write(self._builder), name="early manifest")

    async def close(self) -> None:
        """Abandon the one that is being written, and wait until its thread has ended: the builder may be finished
        afterwards."""
        if self._work is not None and self._builder is not None:
            self._builder.abandon()
            await self._work
            self._work = self._builder = None

    async def _write(self, builder: ManifestBuilder) -> None:
        begun = self._clock()
        try:
            digest = await asyncio.to_thread(self._folder.write, builder)
        except AbandonedError:
            return
        except (OSError, MemoryError) as error:  # the listing goes on without it
            _log.warning("what is listed so far cannot be loaded yet: %s", error)
            self._next_at = math.inf
            return
        seconds = self._clock() - begun
        self._next_at = self._clock() + SHARE * seconds
        self._tell(Listed(digest=digest, seconds=seconds, **builder.summary._asdict()))
