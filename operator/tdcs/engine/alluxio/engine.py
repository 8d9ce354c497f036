"""`AlluxioEngine`: the engine protocol over Alluxio's master and workers."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from tdcs.engine.alluxio.batches import batches
from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.copies import Copier, GiverAwayError
from tdcs.engine.alluxio.failures import engine_error
from tdcs.engine.alluxio.master import Master
from tdcs.engine.alluxio.removals import Removals
from tdcs.engine.alluxio.rpc import RpcFailureError
from tdcs.engine.alluxio.sources import mount_properties, mounted_digest
from tdcs.engine.alluxio.worker import Worker
from tdcs.engine.paths import canonical_uri, check_mountable, checked_path
from tdcs.engine.protocol import (
    Block,
    CachedFile,
    CapacityError,
    EngineError,
    NoSuchPathError,
    NoSuchWorkerError,
    PutFailure,
    Source,
    WorkerInfo,
)

_PAGE = 2000
_LOADS_AT_ONCE = 2
"""Load requests in flight at one worker: the second one keeps the source busy while the first one ends."""

_COPIES_AT_ONCE = 2
"""Batches that travel at a time within one call of `copy`."""

_REMOVALS_AT_ONCE = 32
_HEARTBEATS = 3.0
"""Seconds within which a live worker has surely told the master what it removed (its heartbeat is 1 s)."""


class AlluxioEngine:
    """An `Engine` over one Alluxio cluster without authentication (NOSASL).

    Workers are named by `alluxio.locality.node`. Safe to use from many tasks of one event loop.

    Args:
        master: `host:port` of the master's RPC service.
        patience: Seconds for which calls are repeated while a process is away or starting; a restarted master
            needs about 13.
    """

    def __init__(self, *, master: str, patience: float = 30.0) -> None:
        self._master = Master(target=master, patience=patience)
        self._patience = patience
        self._workers: dict[str, Worker] = {}
        self._loading = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_LOADS_AT_ONCE))
        self._reserved = defaultdict[str, int](int)
        self._removals = Removals(settled_after=_HEARTBEATS)
        self._keys: dict[str, frozenset[str]] = {}  # of each mount, by path: hidden in every text

    async def mount(self, *, path: str, source: Source) -> None:
        checked_path(path)
        keys = frozenset(source.credentials.secrets if source.credentials else ())
        self._keys[path] = self._keys.get(path, frozenset()) | keys
        uri, properties = canonical_uri(source.uri), mount_properties(source)
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
            held = defaultdict[str, list[int]](list)
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
                    secrets=self._secrets,
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

    async def put(self, *, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        attempted = f"load {len(blocks)} blocks onto worker {worker}"

        async def load(client: Worker, batch: list[Block]) -> tuple[list[PutFailure], list[int]]:
            async with self._loading[worker]:
                return await client.load(batch)

        return await self._place(
            worker=worker, blocks=blocks, attempted=attempted, place=load, at_once=_LOADS_AT_ONCE
        )

    async def copy(self, *, source: str, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        attempted = f"copy {len(blocks)} blocks from worker {source} onto worker {worker}"
        with self._errors(attempted=attempted, worker=source):
            giver = await self._live(source, attempted=attempted)

        async def copied(client: Worker, batch: list[Block]) -> tuple[list[PutFailure], list[int]]:
            copier = Copier(
                giver=self._worker(giver.address),
                giver_info=giver,
                receiver=client,
                holders=self._locations,
            )
            try:
                return await copier.copy(batch)
            except GiverAwayError as away:
                with self._errors(attempted=attempted, worker=source):
                    raise away.failure from None
                raise

        return await self._place(
            worker=worker, blocks=blocks, attempted=attempted, place=copied, at_once=_COPIES_AT_ONCE
        )

    async def _place(
        self,
        *,
        worker: str,
        blocks: Sequence[Block],
        attempted: str,
        place: Callable[[Worker, list[Block]], Awaitable[tuple[list[PutFailure], list[int]]]],
        at_once: int,
    ) -> list[PutFailure]:
        """What `put` and `copy` have in common: room is set aside first, and the blocks travel in batches."""
        with self._errors(attempted=attempted, worker=worker):
            info = await self._live(worker, attempted=attempted)
            missing = list({block.id: block for block in blocks if worker not in block.workers}.values())
            await self._removals.settle(worker=worker, block_ids=[block.id for block in missing])
            missing = await self._reserve(worker=worker, blocks=missing, attempted=attempted)
            unfinished = sum(block.length for block in missing)
            try:
                client = self._worker(info.address)

                async def one(batch: list[Block]) -> list[PutFailure]:
                    nonlocal unfinished
                    failures, present = await place(client, batch)
                    failures += await self._disown(worker=worker, client=client, block_ids=present)
                    done = sum(block.length for block in batch)
                    unfinished -= done
                    self._reserved[worker] -= done
                    return failures

                results = await bounded(one, batches(missing), limit=at_once)
            finally:
                self._reserved[worker] -= unfinished
        return [self._plain(failure) for failures in results for failure in failures]

    async def drop(self, *, worker: str, block_ids: Iterable[int]) -> list[PutFailure]:
        ids = list(dict.fromkeys(block_ids))
        attempted = f"remove {len(ids)} blocks from worker {worker}"
        with self._errors(attempted=attempted, worker=worker):
            client = self._worker((await self._live(worker, attempted=attempted)).address)
            results = await bounded(client.remove, ids, limit=_REMOVALS_AT_ONCE)
            self._removals.note(worker=worker, block_ids=ids)
            failures = [failure for failure in results if failure is not None]
            failed = {failure.block_id for failure in failures}
            gone = [block_id for block_id in ids if block_id not in failed]
            await self._forgotten(worker=worker, block_ids=gone)
        return [self._plain(failure) for failure in failures]

    async def workers(self) -> list[WorkerInfo]:
        with self._errors(attempted="list the cache workers"):
            return await self._master.workers()

    async def set_path_properties(self, *, path: str, properties: Mapping[str, str]) -> None:
        with self._errors(attempted=f"set {', '.join(sorted(properties))} of {path}", path=path):
            await self._master.set_path_properties(path=checked_path(path), properties=properties)

    async def pin(self, *, path: str, pinned: bool) -> None:
        attempted = f"{'pin' if pinned else 'unpin'} {path}"
        with self._errors(attempted=attempted, path=path):
            await self._require_mount(path=path, attempted=attempted)
            await self._master.pin(path=path, pinned=pinned)

    @property
    def _secrets(self) -> frozenset[str]:
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

    async def _reserve(self, *, worker: str, blocks: list[Block], attempted: str) -> list[Block]:
        """Set room aside for blocks; those of them that the worker lacks.

        Alluxio would make room by evicting, and for a block that cannot fit first evicts everything and then fails.
        """
        checked = False
        while True:
            info = await self._live(worker, attempted=attempted)
            needed = sum(block.length for block in blocks)
            free = info.capacity_bytes - info.used_bytes - self._reserved[worker]
            if needed <= free:
                self._reserved[worker] += needed
                return blocks
            if not checked:  # the blocks may have been loaded since the caller's listing
                checked = True
                places = await self._locations(block.id for block in blocks)
                blocks = [block for block, held in zip(blocks, places, strict=True) if worker not in held]
            elif self._removals.pending(worker=worker):  # counted as used until the worker's next heartbeat
                await asyncio.sleep(0.2)
            else:
                raise CapacityError(
                    attempted=attempted,
                    reason=(
                        f"they take {needed} bytes, and {max(free, 0)} of its {info.capacity_bytes} bytes are free"
                    ),
                    remedy="Give the cache more capacity or workers, or let the dataset take less of it",
                    worker=worker,
                    retryable=True,
                )

    async def _locations(self, block_ids: Iterable[int]) -> list[frozenset[str]]:
        return await bounded(
            lambda block_id: self._master.locations(block_id=block_id), block_ids, limit=_REMOVALS_AT_ONCE
        )

    async def _disown(self, *, worker: str, client: Worker, block_ids: list[int]) -> list[PutFailure]:
        """Of blocks that the worker says it holds already, remove those that the master does not know of.

        Such a copy is never read, and would make each later load "succeed".
        """
        places = await self._locations(block_ids)
        unknown = [block_id for block_id, held in zip(block_ids, places, strict=True) if worker not in held]
        for block_id in unknown:
            await client.remove(block_id)
        self._removals.note(worker=worker, block_ids=unknown)
        reason = "the worker held a copy that the master does not know; it was removed"
        return [PutFailure(block_id=block_id, reason=reason, retryable=True) for block_id in unknown]

    async def _forgotten(self, *, worker: str, block_ids: list[int]) -> None:
        """Wait until the master knows of the removals.

        A block that is loaded again earlier loses its new location for good with the worker's next heartbeat.
        A heartbeat carries all removals so far, so the last ones stand for all.
        """
        deadline = time.monotonic() + _HEARTBEATS
        for block_id in block_ids[-_REMOVALS_AT_ONCE:]:
            while worker in await self._master.locations(block_id=block_id):
                if time.monotonic() > deadline:
                    return  # the next listing shows what is left
                await asyncio.sleep(0.1)

    async def _live(self, name: str, *, attempted: str) -> WorkerInfo:
        known = {worker.name: worker for worker in await self._master.workers()}
        found = known.get(name)
        if found is not None and found.live:
            return found
        raise NoSuchWorkerError(
            attempted=attempted,
            reason="it is lost" if found else f"the workers are: {', '.join(sorted(known)) or 'none'}",
            remedy="Wait for the worker's pod to be ready, or choose another node",
            worker=name,
            retryable=True,
        )

    async def _require_mount(self, *, path: str, attempted: str) -> None:
        if path not in await self._master.mount_table():
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
        error = EngineError(attempted="", reason=failure.reason, remedy="", secrets=self._secrets)
        return PutFailure(block_id=failure.block_id, reason=error.reason, retryable=failure.retryable)

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
                secrets=self._secrets,
            ) from None
