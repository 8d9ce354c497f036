"""Which version of a dataset is the current one: asked from the cache's master, kept on the disk."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tdcs.csi.source import MOUNTED, SourceNotReadyError
from tdcs.csi.views.folders import DatasetFolder, dataset_folder
from tdcs.csi.views.manifest import BadManifestError, Builder, Manifest, decode
from tdcs.csi.volume import Volume
from tdcs.engine.protocol import Engine, EngineError, EngineUnavailableError

_log: Final = logging.getLogger(__name__)

_SHARE_OF_TIME: Final = 1
"""A listing may be this many times as old as it took to make, so that large datasets do not keep the master busy."""

_VERSIONS_SECONDS: Final = 2.0
"""How long a listing waits for the versions that the master has been told."""


@dataclass(frozen=True, slots=True)
class _Listed:
    manifest: Manifest
    begun: float
    at: float
    seconds: float
    told: str | None
    """What the master told as the dataset's version before."""

    def fresh(self, *, seconds: float) -> bool:
        return time.monotonic() - self.at < max(seconds, _SHARE_OF_TIME * self.seconds)


class Listings:
    """The current versions of the datasets of this node."""

    def __init__(
        self, *, engine: Callable[[str], Engine], cache_root: str, patience: float, fresh_seconds: float
    ) -> None:
        """`engine` gives the engine of a cache cluster; `patience` is how many seconds its master may take to answer
        a first, small question; a list younger than `fresh_seconds` is not asked for again.
        """
        self._engine: Final = engine
        self._cache_root: Final = cache_root
        self._patience: Final = patience
        self._fresh_seconds: Final = fresh_seconds
        self._running: Final[dict[Volume, asyncio.Task[Manifest]]] = {}
        self._listed: Final[dict[Volume, _Listed]] = {}

    async def current(self, *, volume: Volume) -> Manifest:
        """The manifest of the current version, at most some seconds old when the master answers.

        When it does not, the newest version on the disk is the current one. Callers at the same time share one
        listing; one that is cancelled leaves it running for the next.

        Raises SourceNotReadyError when there is neither, or the dataset is not mounted in the cache.
        """
        known = self._listed.get(volume)
        if known is not None and known.fresh(seconds=self._fresh_seconds):
            return known.manifest
        return await asyncio.shield(self._running.get(volume) or self._start(volume))

    async def renewed(self, *, volume: Volume) -> Manifest:
        """The same from a listing that begins now. Raises SourceNotReadyError when the master does not answer."""
        since = time.monotonic()
        known = self._listed.get(volume)
        while known is None or known.begun < since:
            running = self._running.get(volume)
            await asyncio.shield(running or self._start(volume))
            known = self._listed.get(volume)
            if running is None and (known is None or known.begun < since):
                raise SourceNotReadyError(
                    f"the master of cache cluster {volume.cluster} does not list {volume.path}"
                )
        return known.manifest

    def last(self, *, volume: Volume) -> Manifest | None:
        """The manifest that was the current one when the master was asked last; from the disk in a new process."""
        known = self._listed.get(volume)
        if known is not None:
            return known.manifest
        return newest(folder=dataset_folder(cache_root=self._cache_root, volume=volume))

    def age(self, *, folder: DatasetFolder, version: str) -> float | None:
        """Seconds since the master was last seen to have this version; None when it has no manifest."""
        try:
            return max(0.0, time.time() - os.stat(folder.of(version).manifest).st_mtime)
        except OSError:
            return None

    def known_version(self, *, volume: Volume) -> str | None:
        """The version that was the current one when the master was asked last, None when it was not asked."""
        known = self._listed.get(volume)
        return None if known is None else known.manifest.version

    def told(self, *, volume: Volume) -> str | None:
        """What the master told as the dataset's version (`Engine.versions`) before it was asked for the files last."""
        known = self._listed.get(volume)
        return None if known is None else known.told

    def forget(self, *, volume: Volume) -> None:
        """Keep nothing of this dataset in memory."""
        self._listed.pop(volume, None)

    async def is_mounted(self, *, volume: Volume) -> bool | None:
        """Whether the dataset is still in the cache; None when the master does not say."""
        try:
            async with asyncio.timeout(self._patience):
                return volume.path in await self._engine(volume.cluster).mounts()
        except (EngineError, TimeoutError):
            return None

    def _start(self, volume: Volume) -> "asyncio.Task[Manifest]":
        task = asyncio.create_task(self._list(volume))
        self._running[volume] = task
        task.add_done_callback(lambda _: self._running.pop(volume, None))
        # A failure that no caller waits for any more is found again by the next one.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _list(self, volume: Volume) -> Manifest:
        folder = dataset_folder(cache_root=self._cache_root, volume=volume)
        try:
            return await self._ask(volume=volume, folder=folder)
        except (EngineUnavailableError, TimeoutError) as error:
            stored = await asyncio.to_thread(newest, folder=folder)
            if stored is not None:
                _log.warning(
                    "dataset %s of cache cluster %s: the master does not answer (%s); version %s on this node's "
                    "disk is taken for the current one",
                    *(volume.path, volume.cluster, error or "no answer in time", stored.version),
                )
                return stored
            raise SourceNotReadyError(
                f"the files of {volume.path} cannot be listed and no list of them is on this node: the master of cache "
                f"cluster {volume.cluster} does not answer ({error or 'no answer in time'}); look at its pod (kubectl "
                f"get pods -A | grep {volume.cluster}-master) and at the CacheCluster (kubectl describe cachecluster "
                f"{volume.cluster})"
            ) from error
        except EngineError as error:
            raise SourceNotReadyError(
                f"the files of {volume.path} in cache cluster {volume.cluster} cannot be listed: {error}"
            ) from error

    async def _ask(self, *, volume: Volume, folder: DatasetFolder) -> Manifest:
        engine = self._engine(volume.cluster)
        async with asyncio.timeout(self._patience):
            if volume.path not in await engine.mounts():
                raise SourceNotReadyError(
                    f"{volume.path} is not mounted in cache cluster {volume.cluster}; {MOUNTED}"
                )
        told = None
        with contextlib.suppress(EngineError, TimeoutError):  # it saves a second listing, no more
            async with asyncio.timeout(min(self._patience, _VERSIONS_SECONDS)):
                told = (await engine.versions()).get(volume.path)
        begin = time.monotonic()
        builder = Builder(path=volume.path)
        async for page in engine.files(path=volume.path):
            builder.add(page)
        manifest = await asyncio.to_thread(builder.finish)
        if not len(manifest):
            raise SourceNotReadyError(
                f"{volume.path} of cache cluster {volume.cluster} has no file; {MOUNTED}"
            )
        known = self._listed.get(volume)
        if known is not None and known.manifest.version == manifest.version:
            manifest = known.manifest  # one copy in memory
        elif manifest.skipped:
            _log.warning(
                "dataset %s of cache cluster %s: %d entries of the source cannot be files of a folder tree (empty or "
                "too long names, or a file with the name of a folder) and are left out",
                *(volume.path, volume.cluster, manifest.skipped),
            )
        await asyncio.to_thread(_store, folder=folder, manifest=manifest)
        now = time.monotonic()
        self._listed[volume] = _Listed(manifest, begin, now, now - begin, told)
        return manifest


def newest(*, folder: DatasetFolder, but: str = "") -> Manifest | None:
    """The manifest on the disk that was current last, version `but` apart; None when there is none to be read."""
    found: list[tuple[float, str]] = []
    for version in folder.versions():
        if version.version == but:
            continue
        with contextlib.suppress(OSError):
            found.append((os.stat(version.manifest).st_mtime, version.version))
    for _, name in sorted(found, reverse=True):
        manifest = load(folder=folder, version=name)
        if manifest is not None:
            return manifest
    return None


def load(*, folder: DatasetFolder, version: str) -> Manifest | None:
    """A version's manifest from the disk; None when it is not there or cannot be read."""
    path = folder.of(version).manifest
    try:
        with open(path, "rb") as file:
            return decode(file.read())
    except FileNotFoundError:
        return None
    except BadManifestError as error:
        _log.warning("manifest %s is %s; it is removed, and the master asked for a new one", path, error)
        os.unlink(path)
        return None


def _store(*, folder: DatasetFolder, manifest: Manifest) -> None:
    """Keep the manifest, or its new time when it is there already."""
    version = folder.of(manifest.version)
    try:
        os.utime(version.manifest)
    except FileNotFoundError:
        os.makedirs(version.path, mode=0o700, exist_ok=True)
        whole = version.manifest + ".new"
        with open(whole, "wb") as file:
            file.write(manifest.encode())
            file.flush()
            os.fsync(file.fileno())
        os.rename(whole, version.manifest)
