"""`AlluxioEngine`: the engine protocol over Alluxio's master and workers."""

from __future__ import annotations

import asyncio
import posixpath
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from tdcs.engine.alluxio.blocks import Pace
from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.contents import Contents
from tdcs.engine.alluxio.copies import Copier, GiverAwayError, SourceReader
from tdcs.engine.alluxio.errors import engine_error
from tdcs.engine.alluxio.master import Master
from tdcs.engine.alluxio.outdated import outdated_blocks
from tdcs.engine.alluxio.placements import Place, Placements
from tdcs.engine.alluxio.recent import RecentPlacements
from tdcs.engine.alluxio.rpc import RpcFailureError
from tdcs.engine.alluxio.sources import BLOCK_SIZE, mount_properties, mounted_digest
from tdcs.engine.alluxio.worker import Worker
from tdcs.engine.paths import canonical_uri, check_mountable, checked_path, inside
from tdcs.engine.protocol import (
    CHANGED,
    Block,
    CachedFile,
    EngineError,
    NoSuchPathError,
    PutFailure,
    Source,
    WorkerInfo,
)

_PAGE = 2000
_LOADS_AT_ONCE = 2
"""Load requests in flight at one worker: the second one keeps the source busy while the first one ends."""

_COPIES_AT_ONCE = 2
"""Batches that travel at a time within one call of `copy`."""

_VERSION = "alluxio.user.app.id"
"""The setting of a path in which its version is told. Alluxio takes keys that it knows only; of a path it makes no use
of this one."""


class AlluxioEngine:
    """An `Engine` over one Alluxio cluster without authentication (NOSASL).

    Workers are named by `alluxio.locality.node`. Safe to use from many tasks of one event loop.

    Args:
        master: `host:port` of the master's RPC service.
        patience: Seconds for which calls are repeated while a process is away or starting; a restarted master
            needs about 13.
        block_size: Bytes; files are cut at its multiples.
    """

    def __init__(self, *, master: str, patience: float = 30.0, block_size: int = BLOCK_SIZE) -> None:
        self._master = Master(target=master, patience=patience)
        self._patience = patience
        self._block_size = block_size
        self._workers: dict[str, Worker] = {}
        self._loading = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_LOADS_AT_ONCE))
        self._contents = Contents()
        self._recent = RecentPlacements()
        self._placements = Placements(master=self._master, client=self._worker)
        self._keys: dict[str, frozenset[str]] = {}  # of each mount, by path: hidden in every text

    async def mount(self, *, path: str, source: Source) -> None:
        checked_path(path)
        keys = frozenset(source.credentials.secrets if source.credentials else ())
        self._keys[path] = self._keys.get(path, frozenset()) | keys
        uri, properties = canonical_uri(source.uri), mount_properties(source, block_size=self._block_size)
        with self._errors(attempted=f"mount {uri} at {path}", path=path, source=True):
            table = await self._master.mount_table()
            check_mountable(path=path, uri=uri, mounts={at: entry.uri for at, entry in table.items()})
            present = table.get(path)
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

    async def _mount(self, *, path: str, uri: str, properties: Mapping[str, str], update: bool) -> None:
        try:
            await self._master.mount(path=path, uri=uri, properties=properties, update=update)
        except RpcFailureError:
            # An attempt whose answer was lost makes its repetition fail: look before believing it.
            entry = (await self._master.mount_table()).get(path)
            if entry is None or mounted_digest(entry.properties) != mounted_digest(properties):
                raise

    async def unmount(self, *, path: str) -> None:
        attempted = f"unmount {path}"
        with self._errors(attempted=attempted, path=path):
            if path not in await self._master.mount_table():
                self._keys.pop(path, None)
                return
            await self._master.pin(path=path, pinned=False)
            held: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
            async for page in self._pages(path):
                for block in (block for file in page for block in file.blocks):
                    for worker in block.workers:
                        held[worker].append(block.id)
            live = {worker.name for worker in await self._master.workers() if worker.live}
            left = await asyncio.gather(
                *(self.drop(worker=worker, block_ids=ids) for worker, ids in held.items() if worker in live)
            )
            remaining = [failure for failures in left for failure in failures]
            if remaining:
                raise EngineError(
                    attempted=attempted,
                    reason=f"{len(remaining)} cached blocks could not be removed ({remaining[0].reason})",
                    remedy="Try again when the pods that read the dataset have ended",
                    path=path,
                    retryable=True,
                    secrets=self.secrets,
                )
            await self._master.remove_path_properties(path=path)
            await self._master.unmount(path=path)
        self._keys.pop(path, None)

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

    async def put(
        self, *, worker: str, blocks: Sequence[Block], pace: Pace | None = None
    ) -> list[PutFailure]:
        attempted = f"load {len(blocks)} blocks onto worker {worker}"

        async def load(info: WorkerInfo, batch: list[Block]) -> tuple[list[PutFailure], list[int]]:
            reader = SourceReader(
                worker=self._worker(info.address),
                info=info,
                holders=self._placements.locations,
                pace=pace,
            )
            async with self._loading[worker]:
                failures, present = await reader.load(batch)
            failed = {failure.block_id for failure in failures}
            read = [block for block in batch if block.id not in failed]
            try:
                outdated = await outdated_blocks(read, master=self._master)
            except RpcFailureError:
                # Nobody would compare them later: what is there counts as placed. What lay there before is older.
                new = {block.id for block in read}.difference(present)
                await bounded(self._worker(info.address).remove, sorted(new), limit=16)
                raise
            if outdated:
                await self._placements.drop(worker=worker, ids=array("q", outdated), attempted=attempted)
            gone = set(outdated)
            failures += [
                PutFailure(block_id=number, reason=CHANGED, retryable=False, outdated=True)
                for number in outdated
            ]
            return failures, [number for number in present if number not in gone]

        return await self._placed(
            worker=worker,
            blocks=blocks,
            attempted=attempted,
            place=load,
            at_once=_LOADS_AT_ONCE,
            from_source=True,
        )

    async def copy(self, *, source: str, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        attempted = f"copy {len(blocks)} blocks from worker {source} onto worker {worker}"
        with self._errors(attempted=attempted, worker=source):
            giver = await self._placements.live(source, attempted=attempted)

        async def copied(info: WorkerInfo, batch: list[Block]) -> tuple[list[PutFailure], list[int]]:
            copier = Copier(
                giver=self._worker(giver.address),
                giver_info=giver,
                receiver=self._worker(info.address),
                receiver_name=worker,
                holders=self._holders,
                contents=self._contents,
            )
            try:
                return await copier.copy(batch)
            except GiverAwayError as away:
                with self._errors(attempted=attempted, worker=source):
                    raise away.failure from None
                raise

        return await self._placed(
            worker=worker,
            blocks=blocks,
            attempted=attempted,
            place=copied,
            at_once=_COPIES_AT_ONCE,
            from_source=False,
        )

    async def drop(self, *, worker: str, block_ids: Iterable[int]) -> list[PutFailure]:
        ids = array("q", dict.fromkeys(block_ids))
        self._contents.forget(ids)
        self._recent.forget(ids)
        attempted = f"remove {len(ids)} blocks from worker {worker}"
        with self._errors(attempted=attempted, worker=worker):
            failures = await self._placements.drop(worker=worker, ids=ids, attempted=attempted)
        return [self._plain(failure) for failure in failures]

    async def _holders(self, block_ids: list[int]) -> list[frozenset[str]]:
        """The workers that hold each block: from memory where that is sure, else as the master knows it."""
        known = {block_id: self._recent.holders(block_id) for block_id in block_ids}
        unknown = [block_id for block_id in block_ids if known[block_id] is None]
        asked = dict(zip(unknown, await self._placements.locations(unknown), strict=True)) if unknown else {}
        return [known[block_id] or asked.get(block_id, frozenset()) for block_id in block_ids]

    async def _placed(
        self,
        *,
        worker: str,
        blocks: Sequence[Block],
        attempted: str,
        place: Place,
        at_once: int,
        from_source: bool,
    ) -> list[PutFailure]:
        with self._errors(attempted=attempted, worker=worker):
            failures = await self._placements.place(
                worker=worker, blocks=blocks, attempted=attempted, place=place, at_once=at_once
            )
        failed = {failure.block_id for failure in failures}
        done = (block for block in blocks if block.id not in failed and worker not in block.workers)
        self._recent.note(worker=worker, blocks=done, from_source=from_source)
        return [self._plain(failure) for failure in failures]

    async def digest(self, *, block: Block, worker: str | None = None) -> str:
        of_source = worker is None
        attempted = f"read {block.source_path} " + ("from its source" if of_source else f"on worker {worker}")
        with self._errors(attempted=attempted, worker=worker, source=of_source):
            name = worker if worker is not None else await self._placements.any_live(attempted=attempted)
            client = self._worker((await self._placements.live(name, attempted=attempted)).address)
            return await client.digest(block, from_source=of_source)

    async def retire(self, *, worker: str) -> None:
        attempted = f"retire worker {worker}"
        with self._errors(attempted=attempted, worker=worker):
            if not await self._master.decommission(worker=worker):
                await self._placements.live(worker, attempted=attempted)

    async def workers(self) -> list[WorkerInfo]:
        with self._errors(attempted="list the cache workers"):
            return await self._master.workers()

    async def set_path_properties(self, *, path: str, properties: Mapping[str, str]) -> None:
        with self._errors(attempted=f"set {', '.join(sorted(properties))} of {path}", path=path):
            await self._master.set_path_properties(path=checked_path(path), properties=properties)

    async def set_version(self, *, path: str, version: str) -> None:
        with self._errors(attempted=f"tell the version of {path}", path=path):
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
        workers, self._workers = list(self._workers.values()), {}
        await asyncio.gather(self._master.close(), *(worker.close() for worker in workers))

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
            raise NoSuchPathError(
                attempted=attempted,
                reason="nothing is mounted there",
                remedy="Mount the source first",
                path=path,
            )

    def _worker(self, address: str) -> Worker:
        if address not in self._workers:
            self._workers[address] = Worker(target=address, patience=self._patience)
        return self._workers[address]

    def _plain(self, failure: PutFailure) -> PutFailure:
        """A failure without secrets: `EngineError` has the one place that hides them."""
        error = EngineError(attempted="", reason=failure.reason, remedy="", secrets=self.secrets)
        return replace(failure, reason=error.reason)

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
