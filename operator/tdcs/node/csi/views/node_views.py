"""All views of this node: makes them for volumes, keeps them in step while pods read them, removes them later."""

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from tdcs.api import names
from tdcs.engine.confined_path import explain_disk
from tdcs.model.manifest import Manifest
from tdcs.node.csi import mountinfo
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.current_version import Versions
from tdcs.node.csi.views.leftovers import clear_abandoned, on_disk
from tdcs.node.csi.views.mount_tables import Mounts
from tdcs.node.csi.views.node_manifests import Manifests
from tdcs.node.csi.views.overlay import OverlaySupport, parse_shown
from tdcs.node.csi.views.reader_client import ReaderClient
from tdcs.node.csi.views.view import View, clear
from tdcs.node.csi.views.view_folders import DatasetFolder, dataset_folder, key_of, remember, tiers_of
from tdcs.node.csi.views.view_report import ViewReport
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import OpenSource, SourceNotReadyError, VolumeFolder

_log: Final = logging.getLogger(__name__)


class NodeViews:
    """The views of this node. Run `watch` next to the calls."""

    def __init__(
        self,
        *,
        settings: ViewSettings,
        engine: Callable[[str], Mounts],
        guard: HangGuard,
    ) -> None:
        self._settings: Final = settings
        self._client: Final = ReaderClient(settings=settings, guard=guard)
        self._cache_root: Final = str(settings.cache_root)
        self._pods: Final = os.path.realpath(settings.kubelet) + "/"
        self._versions: Final = Versions(
            engine=engine,
            manifests=Manifests(
                cache_root=self._cache_root,
                address=settings.manifest_address,
                trust=settings.trust,
            ),
            cache_root=self._cache_root,
            patience=settings.answer_seconds,
            fresh_seconds=settings.fresh_seconds,
        )
        self._views: Final[dict[tuple[VolumeFolder, str], View]] = {}
        self._manifest_only: Final[set[tuple[VolumeFolder, str]]] = set()
        """Versions of which nothing but the manifest is here, for the next pod."""
        self._missing: Final[dict[str, tuple[str, ...]]] = {}
        self._overlays: Final = OverlaySupport(enabled=settings.overlays)
        self._ticks: Final[dict[tuple[VolumeFolder, str], asyncio.Task[None]]] = {}

    async def open(self, *, volume: VolumeFolder) -> OpenSource:
        """The current version of a volume's dataset as a source.

        Returns when each file can be read: natively when its block is here, else through the remote-read client.

        Raises SourceNotReadyError when that is not so for now.
        """
        self._note_tiers(volume)
        manifest = await self._versions.current(volume=volume)
        if (volume, manifest.digest) not in self._views:
            await self._find_form(volume)
        view = self._view(volume=volume, manifest=manifest)
        view.used_at = time.monotonic()
        try:
            await view.operations.run(name="publish", operation=functools.partial(self._make_ready, view))
            return view.open()
        except OSError as error:
            raise SourceNotReadyError(
                f"{view} cannot be made on node {self._settings.node}: {explain_disk(error, at=view.folder.path)}"
            ) from error

    async def _find_form(self, volume: VolumeFolder) -> None:
        try:
            await self._overlays.look(self._folder(volume))
        except OSError as error:
            raise SourceNotReadyError(
                f"node {self._settings.node} cannot tell in which form to show dataset {volume.path}; it is tried "
                f"again: {explain_disk(error, at=self._folder(volume).path)}"
            ) from error

    async def _make_ready(self, view: View) -> None:
        self._views[view.volume, view.manifest.digest] = view  # it may just have been removed for being idle
        view.used_at = time.monotonic()
        if view.due or not view.known:
            await view.complete()
        await self._client.bind(view)

    def _note_tiers(self, volume: VolumeFolder) -> None:
        remember(cache_root=self._cache_root, volume=volume)
        missing = tuple(tier for tier in volume.tiers if not os.path.isdir(tier))
        if missing != self._missing.get(volume.cluster, ()):
            self._missing[volume.cluster] = missing
            for tier in missing:
                _log.warning(
                    "tier %s of cache cluster %s is no folder that the plugin of node %s sees: what it holds is read "
                    "remotely; name it in csi.tierFolders of the chart's values",
                    *(tier, volume.cluster, self._settings.node),
                )

    def shows(self, *, volume: VolumeFolder, mounted: mountinfo.MountLine) -> bool:
        """Whether a mount shows some version of the volume's dataset: what a running pod was given stays."""
        overlay = parse_shown(mounted)
        dataset = os.path.dirname(overlay.version) if overlay is not None else ""
        return dataset.endswith(f"/{names.VIEWS_FOLDER}/{key_of(volume=volume)}")

    async def watch(self) -> None:
        try:
            await self._resume()
            tidied = time.monotonic()
            while True:
                self._start_ticks()
                if time.monotonic() - tidied >= self._settings.tidy_seconds:
                    await self._tidy()
                    tidied = time.monotonic()
                await asyncio.sleep(self._settings.tick_seconds)
        finally:
            tasks = list(self._ticks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(view.operations.close() for view in list(self._views.values())))
            await self._versions.close()

    def reports(self) -> list[ViewReport]:
        mounts = mountinfo.read()
        return [
            ViewReport(
                cluster=volume.cluster,
                path=volume.path,
                version=version,
                used=self._used(view, mounts=mounts),
                counts=view.counts(),
                repairs=view.repairs,
                manifest_age_seconds=self._versions.age(folder=self._folder(volume), version=version),
            )
            for (volume, version), view in sorted(self._views.items(), key=lambda item: item[1].folder.path)
        ]

    def _folder(self, volume: VolumeFolder) -> DatasetFolder:
        return dataset_folder(cache_root=self._cache_root, volume=volume)

    def _view(self, *, volume: VolumeFolder, manifest: Manifest) -> View:
        key = (volume, manifest.digest)
        if key not in self._views:
            self._views[key] = View(
                volume=volume,
                folder=self._folder(volume).of(manifest.digest),
                manifest=manifest,
                merged=self._overlays.merged(self._folder(volume), version=manifest.digest),
                store=Store(
                    tiers=tiers_of(cache_root=self._cache_root, cluster=volume.cluster, tiers=volume.tiers),
                    mount=manifest.path,
                ),
            )
        return self._views[key]

    def _used(self, view: View, *, mounts: list[mountinfo.MountLine]) -> bool:
        return view.used(mounts=mounts, pods=self._pods)

    def _start_ticks(self) -> None:
        """Look after every view in a task of its own: one that has to wait for its client keeps no other waiting."""
        mounts = mountinfo.read()
        for key, view in self._views.items():
            if self._used(view, mounts=mounts):
                view.used_at = time.monotonic()
            task = self._ticks.get(key)
            if task is not None and task.done():
                if error := task.exception():
                    _log.error("looking after %s broke down; it is tried again", view, exc_info=error)
                del self._ticks[key]
                task = None
            if task is None and not view.operations.busy and self._needs_care(view, mounts=mounts):
                self._ticks[key] = asyncio.create_task(self._care(view))

    def _needs_care(self, view: View, *, mounts: list[mountinfo.MountLine]) -> bool:
        return (
            view.due
            or view.refresh_due
            or (view.given_up > 0 and self._release_is_due(view, used=self._used(view, mounts=mounts)))
            or bool(self._outdated(view, mounts=mounts))
            or self._is_needless(view, mounts=mounts)
        )

    def _outdated(self, view: View, *, mounts: list[mountinfo.MountLine]) -> bool:
        """Whether a view that pods use, or a part of it that a container has, leads to another file system than the
        client's of now."""
        client = self._client.mount(mounts=mounts)
        if client is None or not self._used(view, mounts=mounts):
            return False
        return client.device != view.client_device(mounts=mounts) or view.outdated_parts(
            mounts=mounts, pods=self._pods, device=client.device
        )

    def _is_needless(self, view: View, *, mounts: list[mountinfo.MountLine]) -> bool:
        """Whether what is shown of a view can be taken away for now."""
        return (
            view.client_device(mounts=mounts) is not None
            and time.monotonic() - view.used_at > self._settings.keep_shown_seconds
            and not self._used(view, mounts=mounts)
        )

    async def _care(self, view: View) -> None:
        try:
            await view.operations.run(name="care", operation=functools.partial(self._look_after, view))
        except SourceNotReadyError as error:  # such as a client that is only starting
            _log.debug("%s: %s", view, error)
        except OSError as error:
            _log.warning("%s cannot be kept in step: %s; it is tried again", view, error)

    async def _look_after(self, view: View) -> None:
        if self._views.get((view.volume, view.folder.version)) is not view:
            return  # it was removed while this waited
        await self._follow(view)
        mounts = mountinfo.read()
        if self._outdated(view, mounts=mounts):
            await self._client.bind(view)
        elif self._is_needless(view, mounts=mounts):
            view.unbind()

    async def _follow(self, view: View) -> None:
        mounts = mountinfo.read()
        used = self._used(view, mounts=mounts)
        if view.due:
            await view.complete()
        if view.refresh_due:
            await view.refresh()
        if view.given_up and self._release_is_due(view, used=used):
            if not used or await self._may_release(view):
                await view.release()
            else:
                view.keep()

    def _release_is_due(self, view: View, *, used: bool) -> bool:
        return not used or time.monotonic() >= view.release_at

    async def _may_release(self, view: View) -> bool:
        """Whether files of a view in use can be read remotely instead: the client must be there and have the same
        content, and every pod must see it. Otherwise the links stay, and with them what the pods were given."""
        if self._versions.known_version(volume=view.volume) not in (None, view.manifest.digest):
            return False  # forever: what has changed does not become again what it was
        if time.monotonic() < view.blind_until:
            return False
        try:
            await self._client.bind(view)
            if await asyncio.to_thread(self._all_see, view):
                current = await self._versions.renewed(volume=view.volume)
                if current.digest == view.manifest.digest:
                    return True
            else:
                view.blind_until = time.monotonic() + self._settings.blind_seconds
        except SourceNotReadyError as error:
            _log.debug("%s: %s", view, error)
        return False

    def _all_see(self, view: View) -> bool:
        mounts, proc = mountinfo.read(), self._settings.proc
        device = view.client_device(mounts=mounts)
        return device is not None and view.shown_folder.all_current(device=device, proc=proc, mounts=mounts)

    async def _resume(self) -> None:
        for volume, version, manifest in await asyncio.to_thread(
            lambda: list(on_disk(cache_root=self._cache_root))
        ):
            if manifest is not None:
                with contextlib.suppress(
                    OSError
                ):  # the form in which it was made is the right one, or none is
                    await self._overlays.look(self._folder(volume))
                self._view(volume=volume, manifest=manifest)
            else:
                self._manifest_only.add((volume, version))

    async def _tidy(self) -> None:
        mounts = mountinfo.read()
        for (volume, version), view in list(self._views.items()):
            if self._used(view, mounts=mounts) or view.operations.busy:
                continue
            idle = time.monotonic() - view.used_at
            newer = self._versions.known_version(volume=volume) not in (None, version)
            if idle < (self._settings.keep_old_seconds if newer else self._settings.keep_unused_seconds):
                continue
            remove = functools.partial(self._remove, view, newer=newer)
            try:
                await view.operations.run(name="remove", operation=remove)
            except OSError as error:
                _log.warning("%s cannot be removed: %s; it is tried again", view, error)
                continue
            _log.info("%s is removed: no pod has used it for %.0f s", view, idle)
            if not newer:
                self._versions.drop_version(volume=volume)
        await self._drop_kept()
        view_folders = {view.folder.path for view in self._views.values()}
        # A tree has a name for each file of its dataset: that takes a while.
        await asyncio.to_thread(
            clear_abandoned,
            cache_root=self._cache_root,
            pods=self._pods,
            view_folders=view_folders,
            mounts=mounts,
        )

    async def _remove(self, view: View, *, newer: bool) -> None:
        has_left = newer or await self._has_left(view.volume)
        await view.remove(keep_manifest=not has_left)
        self._client.release(view)
        del self._views[view.volume, view.folder.version]
        if not has_left:
            self._manifest_only.add((view.volume, view.folder.version))

    async def _has_left(self, volume: VolumeFolder) -> bool:
        """Whether a dataset is known to be in its cache no more."""
        paths = await self._versions.mounts(cluster=volume.cluster)
        return paths is not None and volume.path not in paths

    async def _drop_kept(self) -> None:
        """Remove the manifests of datasets that have left the cache, and of versions that another has followed."""
        mounted = {
            cluster: await self._versions.mounts(cluster=cluster)
            for cluster in {volume.cluster for volume, _ in self._manifest_only}
        }
        self._manifest_only.difference_update(self._views)  # pods have come
        for volume, version in list(self._manifest_only):
            newer = self._versions.known_version(volume=volume) not in (None, version)
            paths = mounted[volume.cluster]
            if not newer and (paths is None or volume.path in paths):
                continue
            folder = self._folder(volume).of(version)
            try:
                await asyncio.to_thread(clear, folder)
            except OSError as error:
                _log.warning(
                    "%s, which no pod uses, cannot be removed: %s; it is tried again", folder.path, error
                )
                continue
            self._manifest_only.discard((volume, version))
            _log.info("%s is removed: no pod will use it", folder.path)
