"""What views want of the node's FUSE clients. All questions to them are guarded: a client may hang or be dead."""

import asyncio
import functools
import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from tdcs.alluxio.concurrency import bounded
from tdcs.alluxio.name_encoding import for_alluxio
from tdcs.node.csi import mountinfo
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.current_version import newest
from tdcs.node.csi.views.kernel_cache import changed_files, forget_unused, freshen
from tdcs.node.csi.views.view import View
from tdcs.node.csi.views.view_folders import DatasetFolder
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import Volume
from tdcs.node.csi.volume_folder import Source, SourceNotReadyError, open_source, see_clients

_log: Final = logging.getLogger(__name__)

_FRESHEN_AT_ONCE: Final = 6
"""Questions at the same time: less than the guard allows, so that other volumes get through."""


class Client:
    """The FUSE clients of this node."""

    def __init__(self, *, settings: ViewSettings, guard: HangGuard) -> None:
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
                f"{self._settings.node}; {see_clients(cluster=view.volume.cluster)}"
            ) from error
        try:
            view.bind(source=source)
        finally:
            source.close()

    async def freshen(self, view: View, *, folder: DatasetFolder, older_used: bool) -> None:
        """What pods of an older version read through FUSE must not be given to those of this one.

        Args:
            view: Of the new version.
            folder: Of the dataset.
            older_used: Whether pods still use an older version, and may have its files open.

        Raises SourceNotReadyError when the client cannot be asked about all changed files.
        """
        if view.fresh:
            return
        old = await asyncio.to_thread(newest, folder=folder, but=view.folder.version)
        changed = [] if old is None else await asyncio.to_thread(changed_files, old=old, new=view.manifest)
        await self.forget(view.volume, changed=changed, open_too=older_used)
        view.fresh = True

    async def forget(self, volume: Volume, *, changed: Sequence[bytes], open_too: bool) -> None:
        """Have the kernel forget what it remembers of files that have changed at their source.

        Args:
            volume: The dataset.
            changed: Its files that have changed.
            open_too: Whether some of them may be open now.

        Raises SourceNotReadyError when the client cannot be asked about all of them.
        """
        if not changed or (await self.forget_unused(cluster=volume.cluster) and not open_too):
            return
        root, begun = os.path.join(self._settings.fuse_root, volume.cluster, *volume.parts), time.monotonic()

        async def one(path: bytes) -> None:
            call = functools.partial(
                freshen, path=os.fsencode(os.path.join(root, for_alluxio(os.fsdecode(path))))
            )
            await self._guard.run(
                key=volume.cluster,
                call=call,
                timeout_seconds=self._settings.answer_seconds,
                discard=lambda _: None,
            )

        try:
            await bounded(one, changed, limit=_FRESHEN_AT_ONCE)
        except (OSError, TimeoutError) as error:
            raise SourceNotReadyError(
                f"{len(changed)} files of dataset {volume.path} have changed at the source, and the FUSE client of "
                f"node {self._settings.node} could not be asked about them: {error or 'no answer in time'}; "
                f"{see_clients(cluster=volume.cluster)}"
            ) from error
        _log.info(
            "dataset %s of cache cluster %s: %d files have changed; the FUSE client was asked for them in %.1f s",
            *(volume.path, volume.cluster, len(changed), time.monotonic() - begun),
        )

    def read_by(self, *, pods: str, mounts: list[mountinfo.Mount]) -> list[Volume]:
        """What volumes below the folder `pods` show of the clients' mounts, alone or inside a view."""
        root = os.path.realpath(self._settings.fuse_root)
        clusters = {
            mount.device: os.path.basename(mount.point)
            for mount in mounts
            if os.path.dirname(mount.point) == root
        }
        return [
            Volume(cluster=clusters[device], parts=tuple(path.strip("/").split("/")))
            for device, path in {mount.shows for mount in mounts if mount.point.startswith(pods)}
            if device in clusters and path != "/"
        ]

    def release(self, view: View) -> None:
        """The view is removed: nothing of it is kept here."""

    async def forget_unused(self, *, cluster: str) -> bool:
        """Have the kernel forget all that is not open at this moment; whether it did."""
        point = os.path.join(self._settings.fuse_root, cluster)
        try:
            await self._guard.run(
                key=cluster,
                call=functools.partial(forget_unused, point=point),
                timeout_seconds=self._settings.answer_seconds,
                discard=lambda _: None,
            )
        except (OSError, TimeoutError) as error:
            _log.info("%s cannot be made to forget, its files are asked for one by one: %s", point, error)
            return False
        return True
