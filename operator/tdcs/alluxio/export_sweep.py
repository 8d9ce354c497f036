"""Has Alluxio forget the exports of Datasets that are gone, and files that no worker has any more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Final

import grpc

from tdcs.alluxio.rpc import FILE_SYSTEM, Rpc, RpcFailureError

_log: Final = logging.getLogger(__name__)

_LONG: Final = 900.0
_PAGE: Final = 2000
_METADATA_NEVER: Final = 0
SWEEP_SECONDS: Final = 60.0
_FILES_SECONDS: Final = 3600.0
"""Between two looks at files: a million of them takes some ten seconds of the master's processor time."""


class ExportSweep:
    """Compares the folders below one of a master with what is mounted.

    Args:
        master: closed by the caller.
        root: whose folders are mounts.
        mounts: gives the paths that are mounted.
        has_master: whether there is a master now; else nothing is compared.
    """

    def __init__(
        self,
        *,
        master: Rpc,
        root: str,
        mounts: Callable[[], Awaitable[Collection[str]]],
        has_master: Callable[[], bool] = lambda: True,
        seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._master: Final = master
        self._root: Final = root
        self._mounts: Final = mounts
        self._has_master: Final = has_master
        self._seconds: Final = seconds
        self._empty: set[str] = set()
        self._files_at = 0.0

    async def run(self) -> None:
        """Sweep now and again, until cancelled. A master that is away is asked again."""
        while True:
            try:
                if self._has_master():
                    await self._sweep_all()
            except RpcFailureError as failure:
                _log.debug("exports of %s are not looked at: %s", self._root, failure.code.name)
            except Exception as error:
                _log.warning("exports of %s are not looked at: %s", self._root, error)
            await asyncio.sleep(self._seconds)

    async def _sweep_all(self) -> None:
        await self.sweep()
        if time.monotonic() >= self._files_at:
            self._files_at = time.monotonic() + _FILES_SECONDS
            await self.sweep_files()

    async def sweep_files(self) -> list[str]:
        """Remove the files of which no worker has anything, now and when this was called before; which. A worker that
        is only away has them again by then. Raises RpcFailureError."""
        before, self._empty = self._empty, set()
        removed: list[str] = []
        for folder in await self.folders():
            async for path in self.without_places(folder):
                (removed.append if path in before else self._empty.add)(path)
        for path in removed:
            await self._remove(path)
        return removed

    async def sweep(self) -> list[str]:
        """Remove the folders of which nothing is mounted; which. Raises RpcFailureError, and what `mounts` raises."""
        folders = await self.folders()
        mounted = (
            set(await self._mounts()) if folders else set()
        )  # after them: what is mounted meanwhile stays
        unmounted = [folder for folder in folders if folder not in mounted]
        for folder in unmounted:
            await self._remove(folder, recursive=True)
        return unmounted

    # The master.

    async def _remove(self, path: str, *, recursive: bool = False) -> None:
        """Have the master forget a file, or a folder with all below it; one that is not there is fine."""
        options = {"recursive": recursive, "alluxioOnly": True, "unchecked": True}
        try:
            await self._call("Remove", path=path, options=options)
        except RpcFailureError as failure:
            if failure.code is not grpc.StatusCode.NOT_FOUND:
                raise

    async def without_places(self, path: str) -> AsyncIterator[str]:
        """Paths of the files below a folder that no worker has anything of; none when it is not there."""
        after: str | None = None
        while True:
            options: dict[str, Any] = {
                "options": {
                    "recursive": True,
                    "loadMetadataType": _METADATA_NEVER,
                    "disableAreDescendantsLoadedCheck": True,
                },
                "batchSize": _PAGE,
            }
            if after is not None:
                options["startAfter"] = after
            try:
                page = await self._call("ListStatusPartial", path=path, options=options)
            except RpcFailureError as failure:
                if failure.code is grpc.StatusCode.NOT_FOUND:
                    return
                raise
            for info in page.fileInfos:
                has_copies = any(place.blockInfo.locations for place in info.fileBlockInfos)
                if info.completed and not info.folder and not has_copies:
                    yield info.path
            if not page.isTruncated or not page.fileInfos:
                return
            after = page.fileInfos[-1].path

    async def folders(self) -> list[str]:
        """Those of the mounts that have exports, or had some."""
        options = {"loadMetadataType": _METADATA_NEVER, "commonOptions": {"syncIntervalMs": -1}}
        folders: list[str] = []
        try:
            stream = self._master.stream(
                service=FILE_SYSTEM, method="ListStatus", deadline=_LONG, path=self._root, options=options
            )
            async for answer in stream:
                folders += [info.path for info in answer.fileInfos if info.folder]
        except RpcFailureError as failure:
            if failure.code is not grpc.StatusCode.NOT_FOUND:
                raise
        return folders

    async def _call(self, method: str, **fields: Any) -> Any:
        return await self._master.unary(service=FILE_SYSTEM, method=method, deadline=_LONG, **fields)
