"""`AlluxioEngine`: the engine protocol over Alluxio's master and workers."""

from __future__ import annotations

import asyncio
import posixpath
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self, TypeVar

import grpc

from tdcs.alluxio.master import Master
from tdcs.alluxio.mount_properties import (
    explain,
    mount_properties,
    mounted_digest,
    mounted_store,
    plain_reason,
    refuses_keys,
)
from tdcs.alluxio.mount_uri import mount_uri
from tdcs.alluxio.rpc import RpcFailureError
from tdcs.alluxio.worker_blocks import OpenBlockError, UnknownBlockError, WorkerBlocks
from tdcs.model.cache_engine import (
    CachedFile,
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    NoSuchPathError,
    NoSuchWorkerError,
    Source,
    SourceError,
    WorkerInfo,
)
from tdcs.model.file_blocks import BLOCK_SIZE
from tdcs.model.source_paths import canonical_uri, check_mountable, check_same_store, checked_path, inside
from tdcs.trust.identity import Identify

_PAGE = 2000

_REMOVALS_AT_ONCE = 32

_REMOVALS_A_STRETCH = 5000
"""The answers of so many removals are held at a time: a mount may have a million blocks."""

_NOT_READY = "it is not ready to answer"
_ENDINGS = {
    grpc.StatusCode.UNAVAILABLE: "there is no connection to it",
    grpc.StatusCode.DEADLINE_EXCEEDED: "it did not answer in time",
    grpc.StatusCode.CANCELLED: "it broke the call off",
}
"""How calls end of a process that is away, in words that a user of Kubernetes knows."""

_VERSION = "alluxio.user.app.id"
"""The setting of a path that carries its version. Alluxio takes keys that it knows only; of a path it makes no use of
this one."""


def engine_error(
    failure: RpcFailureError,
    *,
    attempted: str,
    process: str,
    path: str | None,
    worker: str | None,
    of_source: bool,
    secrets: Iterable[str],
) -> EngineError:
    """The error to raise instead of `failure`.

    Args:
        process: Who was called, for the case that it does not answer.
        of_source: Whether the source refused, and not Alluxio itself.
        secrets: What to hide in Alluxio's message.
    """
    away = failure.starting or failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
    kind: type[EngineError] = EngineError
    if away:
        kind = EngineUnavailableError
        if failure.distrusted:
            return kind(
                attempted=attempted,
                reason=f"{process} and this process do not believe each other's certificates "
                f"({plain_reason(failure.text)})",
                remedy="See the condition Trusted of the CacheCluster; while certificates are renewed it passes",
                path=path,
                worker=worker,
                retryable=True,
                secrets=secrets,
            )
        reason = f"{process} is away, starting or overloaded ({_ENDINGS.get(failure.code, _NOT_READY)})"
        remedy = "Wait for its pod to be ready; see its log if it does not get there"
    elif of_source:
        kind = KeysRefusedError if refuses_keys(failure.text) else SourceError
        reason, remedy = explain(failure.text)
    else:
        reason, remedy = plain_reason(failure.text), "See the log of the cache's master"
    return kind(
        attempted=attempted,
        reason=reason,
        remedy=remedy,
        path=path,
        worker=worker,
        retryable=away,
        secrets=secrets,
    )


A = TypeVar("A")
R = TypeVar("R")


async def bounded(call: Callable[[A], Awaitable[R]], items: Iterable[A], *, limit: int) -> list[R]:
    """Results of `call` for all items, in their order, with at most `limit` calls in flight.

    The first error ends the others and is raised.
    """
    todo = enumerate(items)
    results: dict[int, R] = {}

    async def run() -> None:
        for index, item in todo:
            results[index] = await call(item)

    tasks = [asyncio.create_task(run()) for _ in range(limit)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[index] for index in sorted(results)]


class AlluxioEngine:
    """An `Engine` over one Alluxio cluster without authentication (NOSASL).

    Workers are named by `alluxio.locality.node`. Safe to use from many tasks of one event loop.

    Args:
        master: `host:port` of the master's RPC service.
        patience: Seconds for which calls are repeated while a process is away or starting; a restarted master
            needs about 13.
        block_size: Bytes; files are cut at its multiples.
        identify: Gives the certificate to show to master and workers; None: connections are plain.
    """

    def __init__(
        self,
        *,
        master: str,
        patience: float = 30.0,
        block_size: int = BLOCK_SIZE,
        identify: Identify | None = None,
    ) -> None:
        self._identify = identify
        self._master = Master(target=master, patience=patience, identify=identify)
        self._patience = patience
        self._block_size = block_size
        self._keys: dict[str, frozenset[str]] = {}  # of each mount, by path: hidden in every text
        self._sources: dict[str, Source] = {}

    async def mount(self, *, path: str, source: Source) -> None:
        checked_path(path)
        keys = frozenset(source.credentials.secrets if source.credentials else ())
        self._keys[path] = self._keys.get(path, frozenset()) | keys
        uri, properties = canonical_uri(source.uri), mount_properties(source, block_size=self._block_size)
        with self._errors(attempted=f"mount {uri} at {path}", path=path, source=True):
            table = await self._master.mount_table()
            check_mountable(path=path, uri=uri, mounts={at: entry.uri for at, entry in table.items()})
            present = table.get(path)
            if present is not None:
                stores = mounted_store(present.properties), mounted_store(properties)
                check_same_store(path=path, uri=uri, mounted=stores[0], wanted=stores[1])
            if present is None:
                await self._master.create_folder(path=posixpath.dirname(path))
            if present is None or mounted_digest(present.properties) != mounted_digest(properties):
                await self._mount(path=path, uri=uri, properties=properties, update=present is not None)
            try:
                # A bucket that does not exist, or refuses, mounts all the same; the listing tells.
                await self._master.learn(path=path, recursive=False, refresh=False)
            except RpcFailureError:
                if present is None:
                    await self._master.unmount(path=path)
                raise
        self._keys[path] = keys  # replaced ones are of no use any more
        self._sources[path] = source

    async def _mount(self, *, path: str, uri: str, properties: Mapping[str, str], update: bool) -> None:
        try:
            mounted = mount_uri(uri, path=path)
            await self._master.mount(path=path, uri=mounted, properties=properties, update=update)
        except RpcFailureError:
            # When the answer to an attempt was lost its repetition fails: look before believing it.
            entry = (await self._master.mount_table()).get(path)
            if entry is None or mounted_digest(entry.properties) != mounted_digest(properties):
                raise

    async def unmount(self, *, path: str) -> None:
        attempted = f"unmount {path}"
        with self._errors(attempted=attempted, path=path):
            if path not in await self._master.mount_table():
                self._keys.pop(path, None)
                self._sources.pop(path, None)
                return
            await self._master.pin(path=path, pinned=False)
            count, reason = await self._free(path)
            if count:
                raise EngineError(
                    attempted=attempted,
                    reason=f"{count} cached blocks could not be removed ({reason})",
                    remedy="Try again when the pods that read the dataset have ended",
                    path=path,
                    retryable=True,
                    secrets=self.secrets,
                )
            await self._master.remove_path_properties(path=path)
            await self._master.unmount(path=path)
        self._keys.pop(path, None)
        self._sources.pop(path, None)

    async def _free(self, path: str) -> tuple[int, str]:
        """Remove all blocks below a path from all workers: Alluxio's own removal loses some. How many are left, and why
        one of them is.
        """
        held: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        async for page in self._pages(path):
            for block in (block for file in page for block in file.blocks):
                for worker in block.workers:
                    held[worker].append(block.id)
        count, why = 0, ""
        for info in await self._master.workers():
            if not info.live or info.name not in held:
                continue
            ids = held[info.name]
            client = WorkerBlocks(target=info.address, patience=self._patience, identify=self._identify)
            try:
                with self._errors(attempted=f"free {path}", path=path, worker=info.name):
                    for begin in range(0, len(ids), _REMOVALS_A_STRETCH):
                        some = ids[begin : begin + _REMOVALS_A_STRETCH]
                        reasons = await bounded(_removal_of(client), some, limit=_REMOVALS_AT_ONCE)
                        left = [reason for reason in reasons if reason]
                        count, why = count + len(left), why or next(iter(left), "")
            finally:
                await client.close()
        return count, why

    async def mounts(self) -> Mapping[str, str]:
        with self._errors(attempted="read the mount table"):
            return {path: entry.uri for path, entry in (await self._master.mount_table()).items()}

    async def files(self, *, path: str, refresh: bool = False) -> AsyncIterator[list[CachedFile]]:
        attempted = f"list {path}"
        with self._errors(attempted=attempted, path=path, source=True):
            await self._require_mount(path=path, attempted=attempted)
            await self._master.learn(path=path, recursive=True, refresh=refresh)
        pages = self._pages(path)
        while True:
            with self._errors(attempted=attempted, path=path):
                page = await anext(pages, None)
            if page is None:
                return
            yield page

    def source_of(self, path: str) -> Source | None:
        """The source that this object has mounted at a path, with its keys; None when it has mounted none there."""
        return self._sources.get(path)

    async def retire(self, *, worker: str) -> None:
        attempted = f"retire worker {worker}"
        with self._errors(attempted=attempted, worker=worker):
            if not await self._master.decommission(worker=worker):
                known = ", ".join(info.name for info in await self._master.workers())
                raise NoSuchWorkerError(
                    attempted=attempted,
                    reason=f"the workers are: {known or 'none'}",
                    remedy="Wait for the worker's pod to be ready, or choose another node",
                    worker=worker,
                    retryable=True,
                )

    async def workers(self) -> list[WorkerInfo]:
        with self._errors(attempted="list the cache workers"):
            return await self._master.workers()

    async def set_path_properties(self, *, path: str, properties: Mapping[str, str]) -> None:
        with self._errors(attempted=f"set {', '.join(sorted(properties))} of {path}", path=path):
            await self._master.set_path_properties(path=checked_path(path), properties=properties)

    async def set_version(self, *, path: str, version: str) -> None:
        with self._errors(attempted=f"publish the version of {path}", path=path):
            await self._master.set_path_properties(path=checked_path(path), properties={_VERSION: version})

    async def versions(self) -> Mapping[str, str]:
        with self._errors(attempted="read the settings of paths"):
            settings = await self._master.path_properties()
        return {path: found[_VERSION] for path, found in settings.items() if _VERSION in found}

    async def pin(self, *, path: str, pinned: bool) -> None:
        attempted = f"{'pin' if pinned else 'unpin'} {path}"
        with self._errors(attempted=attempted, path=path):
            await self._require_mount(path=path, attempted=attempted, whole=False)
            await self._master.pin(path=path, pinned=pinned)

    @property
    def secrets(self) -> frozenset[str]:
        """The credentials of all mounts that this object made: texts to hide wherever they occur."""
        return frozenset[str]().union(*self._keys.values())

    async def close(self) -> None:
        await self._master.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _pages(self, path: str) -> AsyncIterator[list[CachedFile]]:
        after: str | None = None
        while True:
            page = await self._master.page(path=path, after=after, size=_PAGE)
            if page.files:
                yield page.files
            if page.last is None:
                return
            after = page.last

    async def _require_mount(self, *, path: str, attempted: str, whole: bool = True) -> None:
        mounts = await self._master.mount_table()
        if path not in mounts and (whole or not any(inside(inner=path, outer=mounted) for mounted in mounts)):
            raise NoSuchPathError.not_mounted(path=path, attempted=attempted)

    @contextmanager
    def _errors(
        self, *, attempted: str, path: str | None = None, worker: str | None = None, source: bool = False
    ) -> Iterator[None]:
        """Turn RPC failures into engine errors; with `source`, complaints are taken for the source's."""
        try:
            yield
        except RpcFailureError as failure:
            raise engine_error(
                failure,
                attempted=attempted,
                process=f"worker {worker}" if worker else f"Alluxio's master {self._master.target}",
                path=path,
                worker=worker,
                of_source=source,
                secrets=self.secrets,
            ) from None


def _removal_of(worker: WorkerBlocks) -> Callable[[int], Awaitable[str]]:
    """A call that removes one block from a worker, and gives the reason why it is still there, if it is."""

    async def removed(block_id: int) -> str:
        try:
            await worker.remove(block_id)
        except UnknownBlockError:
            return ""
        except OpenBlockError:
            return "a reader holds the block open"
        except RpcFailureError as failure:
            if failure.starting:
                raise
            return plain_reason(failure.text)
        return ""

    return removed
