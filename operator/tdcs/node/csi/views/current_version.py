"""Which version of a dataset is the current one: asked from the cache's master, kept on the disk.

The operator lists the sources and has the master publish the digest of each dataset's manifest. A dataset that has no
digest yet, or one that cannot be had, is listed from here.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from tdcs.engine.confined_path import explain_disk, plain_folder, replace_plain_file
from tdcs.listing.folder import is_digest
from tdcs.listing.result import ManifestUnavailableError
from tdcs.model.cache_engine import EngineError, EngineUnavailableError
from tdcs.model.manifest import Manifest
from tdcs.node.csi.views.mount_tables import Mounts
from tdcs.node.csi.views.node_manifests import Manifests, load
from tdcs.node.csi.views.view_folders import DatasetFolder, VersionFolder, dataset_folder
from tdcs.node.csi.volume import MOUNTED, SourceNotReadyError, VolumeFolder

_log: Final = logging.getLogger(__name__)

_SHARE_OF_TIME: Final = 1
"""An answer may be this many times as old as it took to get, so that large datasets do not keep the master busy."""

_VERSIONS_SECONDS: Final = 2.0
"""How long a question waits for the published versions."""


@dataclass(frozen=True, slots=True)
class _Known:
    manifest: Manifest
    begun: float
    at: float
    published: str | None
    """What was published as the dataset's version before."""
    listed: bool
    """Whether it comes of a listing, not of what is published."""

    def fresh(self, *, seconds: float) -> bool:
        return time.monotonic() - self.at < max(seconds, _SHARE_OF_TIME * (self.at - self.begun))


class Versions:
    """The current versions of the datasets of this node."""

    def __init__(
        self,
        *,
        engine: Callable[[str], Mounts],
        manifests: Manifests,
        cache_root: str,
        patience: float,
        fresh_seconds: float,
    ) -> None:
        """`engine` says what a cache cluster has mounted; `patience` is how many seconds its master may take to answer
        a first, small question; an answer younger than `fresh_seconds` is not asked for again.
        """
        self._engine: Final = engine
        self._manifests: Final = manifests
        self._cache_root: Final = cache_root
        self._patience: Final = patience
        self._fresh_seconds: Final = fresh_seconds
        self._running: Final[dict[VolumeFolder, asyncio.Task[Manifest]]] = {}
        self._known: Final[dict[VolumeFolder, _Known]] = {}

    async def current(self, *, volume: VolumeFolder) -> Manifest:
        """The manifest of the current version, at most some seconds old when the master answers.

        When it does not, the newest version on the disk is the current one. Callers at the same time share one
        question; one that is cancelled leaves it running for the next.

        Raises SourceNotReadyError when there is neither, or the dataset is not mounted in the cache.
        """
        known = self._known.get(volume)
        if known is not None and known.fresh(seconds=self._fresh_seconds):
            return known.manifest
        return await asyncio.shield(self._under_way(volume) or self._start(volume, listing=False))

    async def renewed(self, *, volume: VolumeFolder, listing: bool) -> Manifest:
        """The same, asked for now. Raises SourceNotReadyError when the master does not answer.

        Args:
            volume: The dataset.
            listing: Have the master list it, whatever is published: that may be some seconds behind.
        """
        since = time.monotonic()
        while (known := self._known.get(volume)) is None or not _is_answer(known, since, listing=listing):
            running = self._under_way(volume)
            await asyncio.shield(running or self._start(volume, listing=listing))
            known = self._known.get(volume)
            if running is None and (known is None or not _is_answer(known, since, listing=listing)):
                raise SourceNotReadyError(
                    f"the master of cache cluster {volume.cluster} does not list {volume.path}"
                )
        return known.manifest

    def age(self, *, folder: DatasetFolder, version: str) -> float | None:
        """Seconds since the master was last seen to have this version; None when it has no manifest."""
        seen = _seen(folder.of(version))
        return None if seen is None else max(0.0, time.time() - seen)

    def known_version(self, *, volume: VolumeFolder) -> str | None:
        """The version that was the current one when the master was asked last, None when it was not asked."""
        known = self._known.get(volume)
        return None if known is None else known.manifest.digest

    def drop_version(self, *, volume: VolumeFolder) -> None:
        self._known.pop(volume, None)

    async def mounts(self, *, cluster: str) -> Collection[str] | None:
        """The paths of the datasets that are in a cache; None when its master does not say."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._engine(cluster).mounts()
        except (EngineError, TimeoutError):
            return None

    def _start(self, volume: VolumeFolder, *, listing: bool) -> "asyncio.Task[Manifest]":
        task = asyncio.create_task(self._find(volume, listing=listing))
        self._running[volume] = task
        task.add_done_callback(lambda done: self._ended(volume, done))
        # A failure that no caller waits for any more is found again by the next one.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _under_way(self, volume: VolumeFolder) -> "asyncio.Task[Manifest] | None":
        """The question that is being asked. One that has ended stays known until the event loop comes to say so; who
        waited for it again and again meanwhile would never let the loop come to that."""
        task = self._running.get(volume)
        return None if task is None or task.done() else task

    def _ended(self, volume: VolumeFolder, task: "asyncio.Task[Manifest]") -> None:
        if self._running.get(volume) is task:
            del self._running[volume]

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._manifests.close()

    async def _find(self, volume: VolumeFolder, *, listing: bool) -> Manifest:
        folder = dataset_folder(cache_root=self._cache_root, volume=volume)
        try:
            return await self._ask(volume=volume, folder=folder, listing=listing)
        except (EngineUnavailableError, TimeoutError) as error:
            stored = await asyncio.to_thread(newest, folder=folder)
            if stored is not None:
                _log.warning(
                    "dataset %s of cache cluster %s: the master does not answer (%s); version %s on this node's "
                    "disk is taken for the current one",
                    *(volume.path, volume.cluster, str(error) or "no answer in time", stored.digest),
                )
                return stored
            raise SourceNotReadyError(
                f"the files of {volume.path} cannot be listed and no list of them is on this node: the master of cache "
                f"cluster {volume.cluster} does not answer ({error or 'no answer in time'}); look at its pod (kubectl "
                f"get pods -A | grep {volume.cluster}-master) and at the CacheCluster (kubectl describe cacheclusters "
                "-A)"
            ) from error
        except EngineError as error:
            raise SourceNotReadyError(
                f"the files of {volume.path} in cache cluster {volume.cluster} cannot be listed: {error}"
            ) from error
        except OSError as error:
            raise SourceNotReadyError(
                f"the manifest of {volume.path} in cache cluster {volume.cluster} cannot be kept on this node: "
                f"{explain_disk(error, at=folder.path)}"
            ) from error

    async def _ask(self, *, volume: VolumeFolder, folder: DatasetFolder, listing: bool) -> Manifest:
        engine = self._engine(volume.cluster)
        async with asyncio.timeout(self._patience):
            if volume.path not in await engine.mounts():
                raise SourceNotReadyError(
                    f"{volume.path} is not mounted in cache cluster {volume.cluster}; {MOUNTED}"
                )
        begun, published = time.monotonic(), await self._published(volume)
        known = self._known.get(volume)
        if listing:
            manifest = None
        elif known is not None and known.published == published is not None:
            manifest = known.manifest  # whatever form the version has: no other one was published since
        else:
            manifest = await self._by_digest(volume=volume, folder=folder, digest=published)
        listed = manifest is None
        if manifest is None:
            manifest = await self._manifests.listed(volume=volume, folder=folder)
        if not len(manifest):
            raise SourceNotReadyError(
                f"{volume.path} of cache cluster {volume.cluster} has no file; {MOUNTED}"
            )
        if known is not None and known.manifest.digest == manifest.digest:
            manifest = known.manifest
        elif manifest.header.skipped_count:
            _log.warning(
                "dataset %s of cache cluster %s: %d entries of the source cannot be files of a folder tree (empty or "
                "too long names, or a file with the name of a folder) and are left out",
                *(volume.path, volume.cluster, manifest.header.skipped_count),
            )
        await asyncio.to_thread(_note, folder.of(manifest.digest))
        self._known[volume] = _Known(manifest, begun, time.monotonic(), published, listed)
        return manifest

    async def _published(self, volume: VolumeFolder) -> str | None:
        with contextlib.suppress(EngineError, TimeoutError):  # a listing does without it
            async with asyncio.timeout(min(self._patience, _VERSIONS_SECONDS)):
                return (await self._engine(volume.cluster).versions()).get(volume.path)
        return None

    async def _by_digest(
        self, *, volume: VolumeFolder, folder: DatasetFolder, digest: str | None
    ) -> Manifest | None:
        if digest is None or not is_digest(digest):
            return None
        try:
            return await self._manifests.of(volume=volume, folder=folder, digest=digest)
        except ManifestUnavailableError as error:
            _log.info("dataset %s is listed from this node: %s", volume.path, error)
            return None


def _is_answer(known: _Known, since: float, *, listing: bool) -> bool:
    return known.begun >= since and (known.listed or not listing)


def newest(*, folder: DatasetFolder) -> Manifest | None:
    """The manifest on the disk that was current last; None when there is none to be read."""
    found = [(_seen(version), version) for version in folder.versions()]
    dated = [(seen, version.version) for seen, version in found if seen is not None]
    for _, name in sorted(dated, reverse=True):
        manifest = load(folder.of(name))
        if manifest is not None:
            return manifest
    return None


def _seen(version: VersionFolder) -> float | None:
    for file in (version.seen, version.manifest):
        with contextlib.suppress(OSError), plain_folder(os.path.dirname(file)) as folder:
            return os.stat(os.path.basename(file), dir_fd=folder, follow_symlinks=False).st_mtime
    return None


def _note(version: VersionFolder) -> None:
    """The cache has this version now."""
    replace_plain_file(version.seen, b"")
