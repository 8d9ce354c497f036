"""What views want of the node's FUSE clients. All questions to them are guarded: a client may hang or be dead."""

import asyncio
import functools
import logging
import os
import time
from typing import Final

from tdcs.csi import mountinfo
from tdcs.csi.guard import Guard
from tdcs.csi.source import Source, SourceNotReadyError, open_source
from tdcs.csi.views.folders import DatasetFolder
from tdcs.csi.views.freshen import changed_files, freshen
from tdcs.csi.views.listing import newest
from tdcs.csi.views.settings import ViewSettings
from tdcs.csi.views.view import View
from tdcs.csi.volume import Volume
from tdcs.engine.alluxio.concurrency import bounded

_log: Final = logging.getLogger(__name__)

_FRESHEN_AT_ONCE: Final = 6
"""Questions at the same time: less than the guard allows, so that other volumes get through."""


class Client:
    """The FUSE clients of this node."""

    def __init__(self, *, settings: ViewSettings, guard: Guard) -> None:
        self._settings: Final = settings
        self._guard: Final = guard

    def mount(self, volume: Volume, *, mounts: list[mountinfo.Mount]) -> mountinfo.Mount | None:
        """The client's own mount, None when it has none now."""
        point = os.path.join(os.path.realpath(self._settings.fuse_root), volume.cluster)
        return mountinfo.top(mounts=mounts, point=point)

    async def bind(self, view: View) -> None:
        """Show the client's folder of the dataset inside the view. Raises SourceNotReadyError."""
        call = functools.partial(
            open_source,
            volume=view.volume,
            fuse_root=self._settings.fuse_root,
            node=self._settings.node,
        )
        patience = self._settings.answer_seconds
        try:
            source = await self._guard.run(
                key=view.volume.cluster, call=call, timeout_seconds=patience, discard=Source.close
            )
        except TimeoutError as error:
            raise SourceNotReadyError(
                f"{view} needs its FUSE client for some files, and it did not answer for {patience:g} s on node "
                f"{self._settings.node}"
            ) from error
        try:
            view.bind(source=source)
        finally:
            source.close()

    async def freshen(self, view: View, *, folder: DatasetFolder) -> None:
        """What pods of an older version read through FUSE must not be given to those of this one.

        Raises SourceNotReadyError when the client cannot be asked about all changed files.
        """
        if view.fresh:
            return
        old = await asyncio.to_thread(newest, folder=folder, but=view.folder.version)
        changed = (
            []
            if old is None
            else await asyncio.to_thread(lambda: list(changed_files(old=old, new=view.manifest)))
        )
        root = os.path.join(self._settings.fuse_root, view.volume.cluster, *view.volume.parts)
        begun = time.monotonic()

        async def one(path: bytes) -> None:
            call = functools.partial(freshen, path=os.path.join(os.fsencode(root), path))
            await self._guard.run(
                key=view.volume.cluster,
                call=call,
                timeout_seconds=self._settings.answer_seconds,
                discard=lambda _: None,
            )

        try:
            await bounded(one, changed, limit=_FRESHEN_AT_ONCE)
        except (OSError, TimeoutError) as error:
            raise SourceNotReadyError(
                f"{view}: {len(changed)} files have changed at the source, and the FUSE client of node "
                f"{self._settings.node} could not be asked about them: {error or 'no answer in time'}"
            ) from error
        view.fresh = True
        if changed:
            _log.info(
                "%s: %d files have changed since version %s; the FUSE client was asked for them in %.1f s",
                *(view, len(changed), old.version if old else "?", time.monotonic() - begun),
            )
