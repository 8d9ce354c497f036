"""Which version of a dataset is the current one: asked from the operator, which lists the sources, kept on the disk."""

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
"""An answer may be this many times as old as it took to get, so that large datasets do not keep the operator busy."""


@dataclass(frozen=True, slots=True)
class _Answer:
    manifest: Manifest
    begun: float
    at: float

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
        """`engine` says what a cache cluster has mounted, which may take `patience` seconds; an answer younger than
        `fresh_seconds` is not asked for again.
        """
        self._engine: Final = engine
        self._manifests: Final = manifests
        self._cache_root: Final = cache_root
        self._patience: Final = patience
        self._fresh_seconds: Final = fresh_seconds
        self._running: Final[dict[VolumeFolder, asyncio.Task[Manifest]]] = {}
        self._answers: Final[dict[VolumeFolder, _Answer]] = {}

    async def current(self, *, volume: VolumeFolder) -> Manifest:
        """The manifest of the current version, at most some seconds old when the operator answers.

        When it does not, the newest version on the disk is the current one. Callers at the same time share one
        question; one that is cancelled leaves it running for the next.

        Raises SourceNotReadyError when there is neither, or the dataset is not mounted in the cache.
        """
        answer = self._answers.get(volume)
        if answer is not None and answer.fresh(seconds=self._fresh_seconds):
            return answer.manifest
        return await asyncio.shield(self._under_way(volume) or self._start(volume))

    async def renewed(self, *, volume: VolumeFolder) -> Manifest:
        """The same, asked for now. Raises SourceNotReadyError when the operator does not answer."""
        since = time.monotonic()
        while (answer := self._answers.get(volume)) is None or answer.begun < since:
            running = self._under_way(volume)
            await asyncio.shield(running or self._start(volume))
            answer = self._answers.get(volume)
            if running is None and (answer is None or answer.begun < since):
                raise SourceNotReadyError(
                    f"the operator does not say which version of {volume.path} cache cluster {volume.cluster} has"
                )
        return answer.manifest

    def age(self, *, folder: DatasetFolder, version: str) -> float | None:
        """Seconds since the cache was last seen to have this version; None when it has no manifest."""
        seen_at = _seen(folder.of(version))
        return None if seen_at is None else max(0.0, time.time() - seen_at)

    def known_version(self, *, volume: VolumeFolder) -> str | None:
        """The version that was the current one when the operator was asked last, None when it was not asked."""
        answer = self._answers.get(volume)
        return None if answer is None else answer.manifest.digest

    def drop_version(self, *, volume: VolumeFolder) -> None:
        self._answers.pop(volume, None)

    async def mounts(self, *, cluster: str) -> Collection[str] | None:
        """The paths of the datasets that are in a cache; None when the operator does not say."""
        try:
            async with asyncio.timeout(self._patience):
                return (await self._engine(cluster).versions()).keys()
        except (EngineError, TimeoutError):
            return None

    def _start(self, volume: VolumeFolder) -> "asyncio.Task[Manifest]":
        task = asyncio.create_task(self._find(volume))
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

    async def _find(self, volume: VolumeFolder) -> Manifest:
        folder = dataset_folder(cache_root=self._cache_root, volume=volume)
        try:
            return await self._ask(volume=volume, folder=folder)
        except (EngineUnavailableError, TimeoutError) as error:
            stored = await asyncio.to_thread(newest, folder=folder)
            if stored is not None:
                _log.warning(
                    "dataset %s of cache cluster %s: the operator does not answer (%s); version %s on this node's "
                    "disk is taken for the current one",
                    *(volume.path, volume.cluster, str(error) or "no answer in time", stored.digest),
                )
                return stored
            raise SourceNotReadyError(
                f"no list of the files of {volume.path} in cache cluster {volume.cluster} is on this node, and the "
                f"operator does not answer ({error or 'no answer in time'}); look at its pod (kubectl get pods -A | "
                "grep operator)"
            ) from error
        except (EngineError, ManifestUnavailableError) as error:
            raise SourceNotReadyError(
                f"the list of the files of {volume.path} in cache cluster {volume.cluster} cannot be had: {error}"
            ) from error
        except OSError as error:
            raise SourceNotReadyError(
                f"the manifest of {volume.path} in cache cluster {volume.cluster} cannot be kept on this node: "
                f"{explain_disk(error, at=folder.path)}"
            ) from error

    async def _ask(self, *, volume: VolumeFolder, folder: DatasetFolder) -> Manifest:
        begun = time.monotonic()
        async with asyncio.timeout(self._patience):
            published = (await self._engine(volume.cluster).versions()).get(volume.path)
        if published is None:
            raise SourceNotReadyError(
                f"{volume.path} is not mounted in cache cluster {volume.cluster}; {MOUNTED}"
            )
        if not is_digest(published):
            raise SourceNotReadyError(
                f"the files of {volume.path} in cache cluster {volume.cluster} are not listed yet: see the conditions "
                "of its Dataset (kubectl describe datasets -A)"
            )
        answer = self._answers.get(volume)
        if answer is not None and answer.manifest.digest == published:
            manifest = answer.manifest
        else:
            manifest = await self._manifests.of(volume=volume, folder=folder, digest=published)
        if not len(manifest):
            raise SourceNotReadyError(
                f"{volume.path} of cache cluster {volume.cluster} has no file; {MOUNTED}"
            )
        if (answer is None or answer.manifest is not manifest) and manifest.header.skipped_count:
            _log.warning(
                "dataset %s of cache cluster %s: %d entries of the source cannot be files of a folder tree (empty or "
                "too long names, or a file with the name of a folder) and are left out",
                *(volume.path, volume.cluster, manifest.header.skipped_count),
            )
        await asyncio.to_thread(_note, folder.of(manifest.digest))
        self._answers[volume] = _Answer(manifest, begun, time.monotonic())
        return manifest


def newest(*, folder: DatasetFolder) -> Manifest | None:
    """The manifest on the disk that was current last; None when there is none to be read."""
    versions = [(_seen(version), version) for version in folder.versions()]
    dated = [(seen_at, version.version) for seen_at, version in versions if seen_at is not None]
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
