"""What views want of the node's remote-read client, which shows each version by itself.

All questions to it are guarded: it may hang or be dead.
"""

import asyncio
import functools
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.engine.reader_files import RegisteredVersions, Registration, VersionNumbers
from tdcs.node.csi import mountinfo
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.view import View
from tdcs.node.csi.views.view_folders import tiers_of
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import SourceNotReadyError

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PODS: Final = "see the reader's pods: kubectl get pods -A -o wide | grep tdcs-reader"


class ReaderClient:
    def __init__(self, *, settings: ViewSettings, guard: HangGuard) -> None:
        self._settings: Final = settings
        self._guard: Final = guard
        self._versions: Final = settings.reader_root / names.READER_VERSIONS
        self._numbers: Final = VersionNumbers(
            settings.reader_root, registered=RegisteredVersions(self._versions)
        )
        self._point: Final = settings.reader_root / names.READER_MOUNT
        self._pods: Final = os.path.realpath(settings.kubelet) + "/"

    def mount(self, *, mounts: list[mountinfo.MountLine]) -> mountinfo.MountLine | None:
        """The client's own mount, None when it has none now."""
        return mountinfo.top(
            mounts=mounts, point=os.path.realpath(self._point.parent) + f"/{self._point.name}"
        )

    async def bind(self, view: View) -> None:
        """Register the view's version, and show the view over it. Raises SourceNotReadyError."""
        await asyncio.to_thread(self._register, view)
        node, patience = self._settings.node, self._settings.answer_seconds
        mounted = self.mount(mounts=mountinfo.read())
        if mounted is None:
            raise SourceNotReadyError(
                f"{view} needs the remote-read client of node {node}, which is not mounted; {_PODS}"
            )
        folder = self._point / (f"{view.name}{names.READER_NUMBERED}" if view.merged else view.name)
        try:
            await self._guard.run(
                key=f"reader {view.volume.cluster}",
                call=functools.partial(_bind, view, folder, device=mounted.device, pods=self._pods),
                timeout_seconds=patience,
            )
        except (TimeoutError, OSError) as error:
            raise SourceNotReadyError(
                f"{view} needs the remote-read client of node {node}, and it does not show the version: "
                f"{str(error) or 'no answer in time'}; {_PODS}"
            ) from error

    def release(self, view: View) -> None:
        """The view is removed: its version need not be shown any more."""
        with suppress(FileNotFoundError):
            (self._versions / view.name).unlink()

    def _register(self, view: View) -> None:
        tiers = tiers_of(
            cache_root=str(self._settings.cache_root), cluster=view.volume.cluster, tiers=view.volume.tiers
        )
        registration = Registration(
            cluster=view.volume.cluster,
            path=view.volume.path,
            manifest=view.folder.manifest,
            tiers=tuple(tiers),
        )
        self._numbers.register(view.name, registration)


def _bind(view: View, folder: Path, *, device: str, pods: str) -> None:
    data = os.open(folder, _FOLDER)
    try:
        view.bind(data=data, device=device, pods=pods)
    finally:
        os.close(data)
