"""Has Alluxio forget the exports of Datasets that are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from tdcs.alluxio.exported_files import ExportedFiles
from tdcs.alluxio.rpc import RpcFailureError

_log: Final = logging.getLogger(__name__)

_SECONDS: Final = 60.0


class ExportSweep:
    """Compares the folders below one of a master with what is mounted.

    Args:
        root: whose folders are mounts.
        mounts: gives the paths that are mounted.
    """

    def __init__(
        self,
        *,
        files: ExportedFiles,
        root: str,
        mounts: Callable[[], Awaitable[Collection[str]]],
        seconds: float = _SECONDS,
    ) -> None:
        self._files: Final = files
        self._root: Final = root
        self._mounts: Final = mounts
        self._seconds: Final = seconds

    async def run(self) -> None:
        """Sweep now and again, until cancelled. A master that is away is asked again."""
        while True:
            try:
                await self.sweep()
            except RpcFailureError as failure:
                _log.debug("exports of %s are not looked at: %s", self._root, failure.code.name)
            except Exception as error:
                _log.warning("exports of %s are not looked at: %s", self._root, error)
            await asyncio.sleep(self._seconds)

    async def sweep(self) -> list[str]:
        """Remove the folders of which nothing is mounted; which. Raises RpcFailureError, and what `mounts` raises."""
        folders = await self._files.folders(self._root)
        mounted = (
            set(await self._mounts()) if folders else set()
        )  # after them: what is mounted meanwhile stays
        gone = [folder for folder in folders if folder not in mounted]
        for folder in gone:
            await self._files.remove(folder, recursive=True)
        return gone
