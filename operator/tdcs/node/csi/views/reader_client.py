"""What views want of the node's remote-read client: it shows each version by itself, so nothing gets out of date."""

import functools
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.engine.block_journal import journal_in
from tdcs.node.csi import mountinfo
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.view import View
from tdcs.node.csi.views.view_folders import DatasetFolder, tiers_of
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import Volume
from tdcs.node.csi.volume_folder import Source, SourceNotReadyError, shown

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PODS: Final = "see the reader's pods: kubectl get pods -A -o wide | grep tdcs-reader"


class ReaderClient:
    """The remote-read client of this node, in the place of the cache clusters' FUSE clients.

    Args:
        settings: of the views; `reader_root` is set.
        guard: runs what may hang.
    """

    def __init__(self, *, settings: ViewSettings, guard: HangGuard) -> None:
        assert settings.reader_root is not None
        self._settings: Final = settings
        self._guard: Final = guard
        self._versions: Final = settings.reader_root / names.READER_VERSIONS
        self._point: Final = settings.reader_root / names.READER_MOUNT

    def mount(self, volume: Volume, *, mounts: list[mountinfo.Mount]) -> mountinfo.Mount | None:
        """The client's own mount, None when it has none now."""
        return mountinfo.top(
            mounts=mounts, point=os.path.realpath(self._point.parent) + f"/{self._point.name}"
        )

    async def bind(self, view: View) -> None:
        """Register the view's version, and show its folder inside the view. Raises SourceNotReadyError."""
        name = self._name(view)
        self._register(view, name)
        node = self._settings.node
        mounted = self.mount(view.volume, mounts=mountinfo.read())
        if mounted is None:
            raise SourceNotReadyError(
                f"{view} needs the remote-read client of node {node}, which is not mounted; {_PODS}"
            )
        key, patience = f"reader {view.volume.cluster}", self._settings.answer_seconds
        try:
            if view.merged:
                numbered = self._point / f"{name}{names.READER_NUMBERED}"
                merge = functools.partial(_merge, view, numbered, mounted.device)
                await self._guard.run(key=key, call=merge, timeout_seconds=patience, discard=lambda _: None)
                return
            source = await self._guard.run(
                key=key,
                call=functools.partial(_opened, self._point / name),
                timeout_seconds=patience,
                discard=Source.close,
            )
        except (TimeoutError, OSError) as error:
            raise SourceNotReadyError(
                f"{view} needs the remote-read client of node {node}, and it does not show the version: "
                f"{error or 'no answer in time'}; {_PODS}"
            ) from error
        try:
            view.bind(source=source)
        finally:
            source.close()

    async def freshen(self, view: View, *, folder: DatasetFolder, older_used: bool) -> None:
        """Nothing: what was read of another version is another file to the kernel."""
        view.fresh = True

    async def forget(self, volume: Volume, *, changed: Sequence[bytes], open_too: bool) -> None:
        """Nothing, for the same reason."""

    def read_by(self, *, pods: str, mounts: list[mountinfo.Mount]) -> list[Volume]:
        """No volumes: none has to be watched for changes of what pods read remotely."""
        return []

    def release(self, view: View) -> None:
        """The view is removed: its version need not be shown any more."""
        with suppress(FileNotFoundError):
            (self._versions / self._name(view)).unlink()

    def _name(self, view: View) -> str:
        return f"{view.volume.cluster}.{view.manifest.digest}"

    def _register(self, view: View, name: str) -> None:
        tiers = tiers_of(
            cache_root=str(self._settings.cache_root), cluster=view.volume.cluster, tiers=view.volume.tiers
        )
        content = json.dumps(
            {
                "cluster": view.volume.cluster,
                "path": view.volume.path,
                "manifest": view.folder.manifest,
                "tiers": tiers,
                "journal": journal_in(view.folder.journal),
            }
        )
        file = self._versions / name
        with suppress(FileNotFoundError):
            if file.read_text(encoding="utf-8") == content:
                return
        self._versions.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{name}.new")
        draft.write_text(content, encoding="utf-8")
        os.replace(draft, file)


def _merge(view: View, numbered: Path, device: str) -> None:
    data = os.open(numbered, _FOLDER)
    try:
        view.merge(data=data, device=device)
    finally:
        os.close(data)


def _opened(path: Path) -> Source:
    folder = os.open(path, _FOLDER)
    try:
        return Source(folder=folder, shows=shown(folder=folder))
    except BaseException:
        os.close(folder)
        raise
