"""Sees that a dataset has another version than the one that this node has dealt with.

The operator lists sources, and has the cache's master tell the version of each dataset; asking for that is cheap. What
the kernel remembers of changed files would be served for minutes otherwise: it asks the FUSE client about a file only
when an entry has expired, and `freshen` says why that is long.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from tdcs.csi.source import SourceNotReadyError
from tdcs.csi.views.folders import dataset_folder
from tdcs.csi.volume import Volume
from tdcs.engine.protocol import Engine, EngineError

_log: Final = logging.getLogger(__name__)


class Noticing:
    """Which version of each dataset this node has dealt with; kept on the disk for the next process.

    Args:
        engine: Gives the engine of a cache cluster.
        cache_root: Folder with the caches' folders.
        patience: Seconds that a master may take to answer.
        deal: Has everything forgotten that is not so any more. Raises SourceNotReadyError to be called again later.
    """

    def __init__(
        self,
        *,
        engine: Callable[[str], Engine],
        cache_root: str,
        patience: float,
        deal: Callable[[Volume], Awaitable[None]],
    ) -> None:
        self._engine: Final = engine
        self._cache_root: Final = cache_root
        self._patience: Final = patience
        self._deal: Final = deal

    async def look(self, *, volumes: Iterable[Volume]) -> None:
        """Ask the masters of these datasets once, and deal with what has changed."""
        by_cluster: dict[str, list[Volume]] = {}
        for volume in volumes:
            by_cluster.setdefault(volume.cluster, []).append(volume)
        await asyncio.gather(*(self._look(cluster, found) for cluster, found in by_cluster.items()))

    def dealt(self, *, volume: Volume, version: str | None) -> None:
        """Nothing of another version than this one is remembered any more."""
        if version is not None and version != _read(self._file(volume)):
            with contextlib.suppress(OSError):  # a full disk: the next look deals with it again
                _write(self._file(volume), version)

    async def _look(self, cluster: str, volumes: list[Volume]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                told = await self._engine(cluster).versions()
        except (EngineError, TimeoutError) as error:
            _log.debug("cache cluster %s does not tell the versions of its datasets: %s", cluster, error)
            return
        await asyncio.gather(*(self._compare(volume, told) for volume in volumes))

    async def _compare(self, volume: Volume, told: Mapping[str, str]) -> None:
        version = told.get(volume.path)
        if version is None or version == _read(self._file(volume)):
            return
        try:
            await self._deal(volume)
        except SourceNotReadyError as error:
            _log.info("dataset %s has changed; it is tried again: %s", volume.path, error)
            return
        self.dealt(volume=volume, version=version)

    def _file(self, volume: Volume) -> str:
        return dataset_folder(cache_root=self._cache_root, volume=volume).noticed


def _read(file: str) -> str | None:
    try:
        with open(file, encoding="utf-8") as text:
            return text.read()
    except (OSError, UnicodeDecodeError):
        return None


def _write(file: str, version: str) -> None:
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with open(f"{file}.new", "w", encoding="utf-8") as new:
        new.write(version)
    os.replace(f"{file}.new", file)
