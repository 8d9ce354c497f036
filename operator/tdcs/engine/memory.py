"""An engine without a cache behind it: the twin of the real one, for tests and simulation.

It keeps the contract of `tdcs.engine.protocol` (the same tests run on both), and lets a test say what the
world does: which files a source holds, how long an operation takes, when a worker dies, which block cannot be
read.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from tdcs.engine.paths import canonical_uri, check_mountable, checked_path
from tdcs.engine.protocol import (
    Block,
    CachedFile,
    CapacityError,
    Credentials,
    EngineError,
    EngineUnavailableError,
    NoSuchPathError,
    NoSuchWorkerError,
    PutFailure,
    Source,
    SourceError,
    WorkerInfo,
)

Files = Mapping[str, int]
"""What a source holds: path relative to its URI, to length in bytes."""

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What an engine is about to do, as told to the `before` hook.

    Attributes:
        name: The protocol's method: `mount`, `files`, `put`, `copy`, `drop`, …
        path: The engine path, or "".
        worker: The worker, or "".
        length: Bytes that the operation moves (a `put` or `copy` is announced block by block).
    """

    name: str
    path: str = ""
    worker: str = ""
    length: int = 0


@dataclass(kw_only=True)
class _Worker:
    capacity: int
    live: bool = True
    blocks: dict[int, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return sum(self.blocks.values())


@dataclass(kw_only=True)
class _Mount:
    uri: str
    mount_id: int
    known: dict[str, tuple[int, tuple[Block, ...]]] | None = None


class MemoryEngine:
    """An `Engine` in memory.

    Args:
        sources: Source URI to its files, or to a function that gives them at each listing. A URI that is not
            here is a missing bucket. May be changed between calls.
        workers: Worker name to capacity in bytes.
        credentials: Source URI to the only key pair that may read it. URIs that are not here accept any.
        block_size: Bytes; files are cut at its multiples.
        page_size: Files a page of a listing.
        before: Awaited before each operation and before each block of a `put` or `copy`: sleep in it, raise from it, or
            record.
        refuse: Asked for each block of a `put`; a returned sentence makes that block fail with it
            (retryable).
        refuse_copy: The same for each block of a `copy`, with the two workers' names.
    """

    def __init__(
        self,
        *,
        sources: Mapping[str, Files | Callable[[], Files]],
        workers: Mapping[str, int],
        credentials: Mapping[str, Credentials] | None = None,
        block_size: int = 64 * _MIB,
        page_size: int = 1000,
        before: Callable[[Operation], Awaitable[None]] | None = None,
        refuse: Callable[[str, Block], str | None] | None = None,
        refuse_copy: Callable[[str, str, Block], str | None] | None = None,
    ) -> None:
        self.sources = {canonical_uri(uri): files for uri, files in sources.items()}
        self.credentials = {canonical_uri(uri): pair for uri, pair in (credentials or {}).items()}
        self.block_size = block_size
        self.page_size = page_size
        self.before = before
        self.refuse = refuse
        self.refuse_copy = refuse_copy
        self.available = True
        self.path_properties: dict[str, dict[str, str]] = {}
        self.pinned: set[str] = set()
        self.source_bytes_read = 0
        self.copied_bytes = 0
        self.corrupted: set[tuple[str, int]] = set()
        """Copies (worker and block id) whose content is not the source's."""
        self._workers = {name: _Worker(capacity=capacity) for name, capacity in workers.items()}
        self._mounts: dict[str, _Mount] = {}
        self._ids = itertools.count(16777216)
        self._mount_ids = itertools.count(1)

    # What a test does to the world.

    def set_worker(self, *, name: str, capacity: int | None = None, live: bool = True) -> None:
        """Add a worker, change its capacity, lose it (`live=False`) or let it come back with what it held."""
        worker = self._workers.setdefault(name, _Worker(capacity=capacity or 0))
        worker.live = live
        if capacity is not None:
            worker.capacity = capacity

    def holdings(self, *, worker: str) -> Mapping[int, int]:
        """Block ids that a worker holds, with their lengths; of a lost worker too."""
        return MappingProxyType(self._workers[worker].blocks)

    # The protocol.

    async def mount(self, *, path: str, source: Source) -> None:
        checked_path(path)
        uri = canonical_uri(source.uri)
        await self._announce(Operation(name="mount", path=path))
        check_mountable(path=path, uri=uri, mounts={at: held.uri for at, held in self._mounts.items()})
        expected = self.credentials.get(uri)
        if expected is not None and source.credentials != expected:
            raise SourceError(
                attempted=f"mount {uri} at {path}",
                reason="the source refused the credentials",
                remedy="Check accessKeyId and secretAccessKey in the Secret of spec.source.secretRef",
                path=path,
            )
        self._source_files(uri=uri, path=path)
        self._mounts.setdefault(path, _Mount(uri=uri, mount_id=next(self._mount_ids)))

    async def unmount(self, *, path: str) -> None:
        await self._announce(Operation(name="unmount", path=path))
        mount = self._mounts.pop(path, None)
        if mount is None:
            return
        self.pinned.discard(path)
        self.path_properties.pop(path, None)
        for _length, blocks in (mount.known or {}).values():
            self._forget(blocks)

    async def mounts(self) -> Mapping[str, str]:
        await self._announce(Operation(name="mounts"))
        return {path: mount.uri for path, mount in sorted(self._mounts.items())}

    async def files(self, *, path: str, refresh: bool = False) -> AsyncIterator[list[CachedFile]]:
        await self._announce(Operation(name="files", path=path))
        mount = self._mount_at(path=path, attempted=f"list {path}")
        if mount.known is None or refresh:
            self._learn(mount=mount, path=path)
        known = dict(sorted((mount.known or {}).items(), key=lambda item: item[0].split("/")))
        for batch in _pages(known, self.page_size):
            yield [
                CachedFile(path=name, length=length, blocks=tuple(self._located(block) for block in blocks))
                for name, (length, blocks) in batch
            ]

    async def put(
        self, *, worker: str, blocks: Sequence[Block], pace: Callable[[int], Awaitable[None]] | None = None
    ) -> list[PutFailure]:
        failures = []
        async for block, held in self._placing(name="put", worker=worker, blocks=blocks):
            if pace is not None:
                await pace(block.length)
            reason = self.refuse(worker, block) if self.refuse else None
            if reason is not None:
                failures.append(PutFailure(block_id=block.id, reason=reason, retryable=True))
                continue
            held.blocks[block.id] = block.length
            self.source_bytes_read += block.length
        return failures

    async def copy(self, *, source: str, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        self._live_worker(source)
        failures = []
        async for block, held in self._placing(name="copy", worker=worker, blocks=blocks):
            reason = f"worker {source} does not hold it"
            if block.id in self._live_worker(source).blocks:
                reason = (self.refuse_copy and self.refuse_copy(source, worker, block)) or ""
            if reason:
                failures.append(PutFailure(block_id=block.id, reason=reason, retryable=True))
                continue
            held.blocks[block.id] = block.length
            self.copied_bytes += block.length
        return failures

    async def drop(self, *, worker: str, block_ids: Iterable[int]) -> list[PutFailure]:
        await self._announce(Operation(name="drop", worker=worker))
        held = self._live_worker(worker)
        for block_id in block_ids:
            held.blocks.pop(block_id, None)
        return []

    async def digest(self, *, block: Block, worker: str | None = None) -> str:
        await self._announce(Operation(name="digest", worker=worker or "", length=block.length))
        if worker is None:
            self._live_worker(next((name for name, each in self._workers.items() if each.live), "any"))
            self.source_bytes_read += block.length
        elif block.id not in self._live_worker(worker).blocks:
            raise EngineError(
                attempted=f"read {block.source_path} on worker {worker}",
                reason="it does not hold it",
                remedy="List the files again to see where it lies",
                worker=worker,
            )
        wrong = worker is not None and (worker, block.id) in self.corrupted
        return hashlib.sha256(f"{block.source_path}@{block.offset}{wrong}".encode()).hexdigest()

    async def retire(self, *, worker: str) -> None:
        await self._announce(Operation(name="retire", worker=worker))
        if worker not in self._workers:
            self._live_worker(worker)
        self._workers[worker].live = False

    async def workers(self) -> list[WorkerInfo]:
        await self._announce(Operation(name="workers"))
        return [
            WorkerInfo(
                name=name,
                address=f"{name}:29999",
                capacity_bytes=worker.capacity if worker.live else 0,
                used_bytes=worker.used if worker.live else 0,
                live=worker.live,
            )
            for name, worker in sorted(self._workers.items())
        ]

    async def set_path_properties(self, *, path: str, properties: Mapping[str, str]) -> None:
        await self._announce(Operation(name="set_path_properties", path=path))
        self.path_properties.setdefault(checked_path(path), {}).update(properties)

    async def pin(self, *, path: str, pinned: bool) -> None:
        await self._announce(Operation(name="pin", path=path))
        self._mount_at(path=path, attempted=f"{'pin' if pinned else 'unpin'} {path}")
        if pinned:
            self.pinned.add(path)
        else:
            self.pinned.discard(path)

    async def close(self) -> None:
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _placing(
        self, *, name: str, worker: str, blocks: Sequence[Block]
    ) -> AsyncIterator[tuple[Block, _Worker]]:
        """The blocks that a worker lacks, each announced, once it is known that all of them fit."""
        await self._announce(Operation(name=name, worker=worker))
        held = self._live_worker(worker)
        missing = {block.id: block for block in blocks if block.id not in held.blocks}
        needed, free = sum(block.length for block in missing.values()), held.capacity - held.used
        if needed > free:
            raise CapacityError(
                attempted=f"load {len(missing)} blocks ({needed} bytes) onto worker {worker}",
                reason=f"only {free} of its {held.capacity} bytes are free",
                remedy="Give the cache more capacity or workers, or let the dataset take less of it",
                worker=worker,
                retryable=True,
            )
        for block in missing.values():
            await self._announce(Operation(name=name, worker=worker, length=block.length))
            yield block, self._live_worker(worker)

    async def _announce(self, operation: Operation) -> None:
        if not self.available:
            raise EngineUnavailableError(
                attempted=f"{operation.name} {operation.path or operation.worker}".strip(),
                reason="the engine was made unavailable",
                remedy="Try again later",
                path=operation.path or None,
                worker=operation.worker or None,
                retryable=True,
            )
        if self.before is not None:
            await self.before(operation)

    def _source_files(self, *, uri: str, path: str) -> Files:
        held = self.sources.get(uri)
        if held is None:
            raise SourceError(
                attempted=f"list {uri} for {path}",
                reason="there is no such bucket or folder",
                remedy="Check spec.source.uri and spec.source.options.endpoint",
                path=path,
            )
        return held() if callable(held) else held

    def _learn(self, *, mount: _Mount, path: str) -> None:
        """Bring what is known of the mount's files up to the source; a changed file gets new blocks, its old
        ones go.
        """
        before = mount.known or {}
        after: dict[str, tuple[int, tuple[Block, ...]]] = {}
        for name, length in self._source_files(uri=mount.uri, path=path).items():
            old = before.get(name)
            if old is not None and old[0] == length:
                after[name] = old
            else:
                after[name] = (length, self._cut(mount=mount, name=name, length=length))
        for name, (_length, blocks) in before.items():
            if after.get(name, (None, None))[1] is not blocks:
                self._forget(blocks)
        mount.known = after

    def _cut(self, *, mount: _Mount, name: str, length: int) -> tuple[Block, ...]:
        return tuple(
            Block(
                id=next(self._ids),
                length=min(self.block_size, length - offset),
                offset=offset,
                source_path=f"{mount.uri}/{name}",
                mount_id=mount.mount_id,
            )
            for offset in range(0, length, self.block_size)
        )

    def _located(self, block: Block) -> Block:
        holders = frozenset(
            name for name, worker in self._workers.items() if worker.live and block.id in worker.blocks
        )
        return Block(
            id=block.id,
            length=block.length,
            offset=block.offset,
            source_path=block.source_path,
            mount_id=block.mount_id,
            workers=holders,
        )

    def _forget(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            for worker in self._workers.values():
                worker.blocks.pop(block.id, None)

    def _mount_at(self, *, path: str, attempted: str) -> _Mount:
        mount = self._mounts.get(path)
        if mount is None:
            raise NoSuchPathError(
                attempted=attempted,
                reason="nothing is mounted there",
                remedy="Mount the source first",
                path=path,
            )
        return mount

    def _live_worker(self, name: str) -> _Worker:
        worker = self._workers.get(name)
        if worker is None or not worker.live:
            raise NoSuchWorkerError(
                attempted=f"use worker {name}",
                reason="it is lost" if worker else "no worker of that name has registered",
                remedy="Wait for the worker's pod to be ready, or choose another node",
                worker=name,
                retryable=True,
            )
        return worker


def _pages(
    known: Mapping[str, tuple[int, tuple[Block, ...]]], size: int
) -> Iterable[list[tuple[str, tuple[int, tuple[Block, ...]]]]]:
    items = iter(known.items())
    while page := list(itertools.islice(items, size)):
        yield page
