"""Watches for datasets with another published version than the one that this node has handled.

The operator lists sources and has the cache's master publish the version of each dataset; asking for that is cheap.
What the kernel remembers of changed files would be served for minutes otherwise: it asks the FUSE client about a file
only when an entry has expired (`tdcs.node.csi.views.kernel_cache`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from tdcs.engine.confined_path import open_plain_file, replace_plain_file
from tdcs.model.cache_engine import Engine, EngineError
from tdcs.node.csi.views.view_folders import dataset_folder
from tdcs.node.csi.volume import Volume
from tdcs.node.csi.volume_folder import SourceNotReadyError

_log: Final = logging.getLogger(__name__)


class VersionWatch:
    """Which version of each dataset this node has handled; kept on the disk for the next process.

    Args:
        engine: Gives the engine of a cache cluster.
        cache_root: Folder with the caches' folders.
        patience: Seconds that a master may take to answer.
        handle: Has the kernel forget what has changed. Raises SourceNotReadyError to be called again later.
    """

    def __init__(
        self,
        *,
        engine: Callable[[str], Engine],
        cache_root: str,
        patience: float,
        handle: Callable[[Volume], Awaitable[None]],
    ) -> None:
        self._engine: Final = engine
        self._cache_root: Final = cache_root
        self._patience: Final = patience
        self._handle: Final = handle

    async def look(self, *, volumes: Iterable[Volume]) -> None:
        """Ask the masters of these datasets once, and handle what has changed."""
        by_cluster: dict[str, list[Volume]] = {}
        for volume in volumes:
            by_cluster.setdefault(volume.cluster, []).append(volume)
        await asyncio.gather(*(self._look(cluster, found) for cluster, found in by_cluster.items()))

    def handled(self, *, volume: Volume, version: str | None) -> None:
        """The kernel remembers nothing of another version than this one any more."""
        if version is not None and version != _read(self._file(volume)):
            with contextlib.suppress(OSError):  # a full disk: the next look handles it again
                _write(self._file(volume), version)

    async def _look(self, cluster: str, volumes: list[Volume]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                published = await self._engine(cluster).versions()
        except (EngineError, TimeoutError) as error:
            _log.debug("cache cluster %s does not say the versions of its datasets: %s", cluster, error)
            return
        await asyncio.gather(*(self._compare(volume, published) for volume in volumes))

    async def _compare(self, volume: Volume, published: Mapping[str, str]) -> None:
        version = published.get(volume.path)
        if version is None or version == _read(self._file(volume)):
            return
        try:
            await self._handle(volume)
        except SourceNotReadyError as error:
            _log.info("dataset %s has changed; it is tried again: %s", volume.path, error)
            return
        self.handled(volume=volume, version=version)

    def _file(self, volume: Volume) -> str:
        return dataset_folder(cache_root=self._cache_root, volume=volume).noticed


def _read(file: str) -> str | None:
    try:
        with open(open_plain_file(file), encoding="utf-8") as text:
            return text.read()
    except (OSError, UnicodeDecodeError):
        return None


def _write(file: str, version: str) -> None:
    replace_plain_file(file, version.encode())
