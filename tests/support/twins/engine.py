"""An engine without a cache behind it: the twin of the real one, for tests and simulation.

It keeps the contract of `tdcs.model.cache_engine` (the same tests run on both), and lets a test say what the
world does: which files a source holds, how long an operation takes, when a worker dies, which file cannot be
read. Sources are listed here, too: what an operator's lister does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from tests.support.twins.engine_state import Files, MemoryState, MemoryWorker

from tdcs.api import names
from tdcs.model.cache_engine import (
    Credentials,
    EngineUnavailableError,
    KeysRefusedError,
    Source,
    SourceError,
    WorkerInfo,
)
from tdcs.model.file_blocks import block_count, large_file
from tdcs.model.file_folders import FolderCounter
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize
from tdcs.model.manifest_format import encoded
from tdcs.model.source_paths import (
    canonical_uri,
    check_mountable,
    check_same_store,
    checked_path,
    inside,
    store_of,
)

_MIB = 1 << 20
_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What an engine, or an agent on one of its workers, is about to do: what the `before` hook is given.

    Attributes:
        name: The protocol's method (`mount`, `files`, …), `check_keys` of a source, `ask_source` of a first mount, or
            what an agent does with a block: `put` (from the source), `copy` (from another agent), `drop`, `digest`.
        path: The engine path, or "".
        worker: The worker, or "".
        length: Bytes that the operation moves.
    """

    name: str
    path: str = ""
    worker: str = ""
    length: int = 0


def count_files(count: LimitCount, files: Iterable[tuple[str, int]], *, folders: FolderCounter) -> None:
    """Count files by their names and lengths, and the folders in the names; raises LimitExceededError."""
    for name, length in files:
        count.add(
            files=block_count(length),
            size=length,
            folders=folders.add(encoded(name)),
            largest=large_file(length, name),
        )


class MemoryEngine:
    """An `Engine` in memory.

    Args:
        sources: Source URI to its files, or to a function that gives them at each listing. A URI that is not
            here is a missing bucket. May be changed between calls.
        workers: Worker name to capacity in bytes.
        credentials: Source URI to the key pair, or all key pairs, that may read it. URIs that are not here accept any.
        block_size: Bytes; files are cut at its multiples.
        before: Awaited before each operation: sleep in it, raise from it, or record.
        source_rate: Bytes a second that all sources together give the agents; None for no limit. May be changed.
        refuse: Asked for each block that an agent reads, with the worker and the URI of the file; a returned sentence
            makes that fail with it.

    Attributes:
        source_bytes_read: Bytes that agents have read from sources.
        copied_bytes: Bytes that agents have given each other.
    """

    def __init__(
        self,
        *,
        sources: Mapping[str, Files | Callable[[], Files]],
        workers: Mapping[str, int],
        credentials: Mapping[str, Credentials | Collection[Credentials]] | None = None,
        block_size: int = 64 * _MIB,
        before: Callable[[Operation], Awaitable[None]] | None = None,
        refuse: Callable[[str, str], str | None] | None = None,
        source_rate: float | None = None,
    ) -> None:
        self.sources = {canonical_uri(uri): files for uri, files in sources.items()}
        self.credentials: dict[str, Credentials | Collection[Credentials]] = {
            canonical_uri(uri): pairs for uri, pairs in (credentials or {}).items()
        }
        self.block_size = block_size
        self.before = before
        self.refuse = refuse
        self.source_rate = source_rate
        self._gives_again_at = 0.0
        self.available = True
        self.known_versions: dict[str, str] = {}
        self._attempted: dict[str, str] = {}
        """URIs that are being mounted, by path: a master lists a mount while it asks the source the first time."""
        self.source_bytes_read = 0
        self.copied_bytes = 0
        self.state = MemoryState(workers=workers)

    # What a test does to the world.

    def set_worker(self, *, name: str, capacity: int | None = None, live: bool = True) -> None:
        """Add a worker, change its capacity, lose it (`live=False`) or let it come back with what it held."""
        worker = self.state.workers.setdefault(name, MemoryWorker(capacity=capacity or 0))
        worker.live = live
        if capacity is not None:
            worker.capacity = capacity

    async def give(self, length: int) -> None:
        """Wait for bytes of a source as long as these take at its rate, behind what others asked for before."""
        if self.source_rate is None:
            return
        now = asyncio.get_running_loop().time()
        self._gives_again_at = max(self._gives_again_at, now) + length / self.source_rate
        await asyncio.sleep(self._gives_again_at - now)

    def holdings(self, *, worker: str) -> Mapping[int, int]:
        """Block ids that a worker holds, with their lengths; of a lost worker too."""
        return MappingProxyType(self.state.workers[worker].blocks)

    # The protocol.

    async def mount(self, *, path: str, source: Source) -> None:
        checked_path(path)
        uri = canonical_uri(source.uri)
        await self._announce(Operation(name="mount", path=path))
        current_mount = self.state.mounts.get(path)
        if current_mount is None or current_mount.uri != uri:
            mounts = {at: held.uri for at, held in self.state.mounts.items()}
            check_mountable(path=path, uri=uri, mounts=mounts)
        store = store_of(source.options)
        if current_mount is not None:
            check_same_store(path=path, uri=uri, mounted=current_mount.store, store=store)
            if current_mount.uri == uri:
                current_mount.credentials = source.credentials
                return  # as Alluxio, which asks no source when a mount is given other keys
        self._attempted[path] = uri
        try:
            await self._announce(Operation(name="ask_source", path=path))
            self._check_keys(source.credentials, uri=uri, attempted=f"mount {uri} at {path}", path=path)
            self.source_files(uri=uri, path=path)
        finally:
            self._attempted.pop(path, None)
        self.state.add_mount(path=path, uri=uri)
        mount = self.state.mounts[path]
        mount.credentials, mount.store, mount.options = source.credentials, store, source.options

    async def unmount(self, *, path: str) -> None:
        await self._announce(Operation(name="unmount", path=path))
        self.state.mounts.pop(path, None)
        self.known_versions.pop(path, None)

    async def mounts(self) -> Mapping[str, str]:
        await self._announce(Operation(name="mounts"))
        uris = {path: mount.uri for path, mount in self.state.mounts.items()}
        return dict(sorted({**self._attempted, **uris}.items()))

    async def stores(self) -> Mapping[str, str]:
        await self._announce(Operation(name="stores"))
        return {path: mount.store for path, mount in self.state.mounts.items() if mount.store}

    async def retire(self, *, worker: str) -> None:
        await self._announce(Operation(name="retire", worker=worker))
        if worker not in self.state.workers:
            self.state.live_worker(worker)
        self.state.workers[worker].live = False

    async def workers(self) -> list[WorkerInfo]:
        await self._announce(Operation(name="workers"))
        return [
            WorkerInfo(
                name=name,
                address=f"{name}:{names.WORKER_RPC_PORT}",
                capacity_bytes=worker.capacity if worker.live else 0,
                used_bytes=worker.used if worker.live else 0,
                live=worker.live,
            )
            for name, worker in sorted(self.state.workers.items())
        ]

    async def set_version(self, *, path: str, version: str) -> None:
        await self._announce(Operation(name="set_version", path=path))
        self.state.mount_at(path=checked_path(path), attempted=f"publish the version of {path}")
        self.known_versions[path] = version

    async def versions(self) -> Mapping[str, str]:
        await self._announce(Operation(name="versions"))
        return dict(self.known_versions)

    async def close(self) -> None:
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # What the operator's lister asks for.

    async def files(
        self, *, path: str, refresh: bool = False
    ) -> AsyncIterator[list[tuple[bytes, int, bytes]]]:
        """Path, length and tag of each file, in pages: as they were listed before unless `refresh`."""
        await self._announce(Operation(name="files", path=path))
        mount = self.state.mount_at(path=path, attempted=f"list {path}")
        if mount.known is None or refresh:
            self._check_keys(mount.credentials, uri=mount.uri, attempted=f"list {path}", path=path)
            self.state.learn(mount=mount, files=self.source_files(uri=mount.uri, path=path))
        files = iter(sorted((mount.known or {}).items(), key=lambda item: item[0].split("/")))
        while page := list(itertools.islice(files, _PAGE)):
            yield [(encoded(name), length, tag.encode()) for name, (length, tag) in page]

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

    def source_files(self, *, uri: str, path: str) -> Files:
        """The files of a source, or of a prefix of one, as they are now; raises SourceError when there are none."""
        held = self.sources.get(uri)
        if held is None:
            held = self._below(uri)
        if held is None:
            raise SourceError(
                attempted=f"list {uri} for {path}",
                reason="there is no such bucket or folder",
                remedy="Check spec.source.uri and spec.source.options.endpoint",
                path=path,
            )
        return held() if callable(held) else held

    async def count_source(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize | None:
        """What a source has now, as `CheckSize`; None where that is not known before it is listed."""
        uri = canonical_uri(source.uri)
        held = self.sources.get(uri)
        files = self._below(uri) if held is None else None if callable(held) else held
        if files is None or not self.available:
            return None
        count = LimitCount(limit, subject=uri, path=path)
        count_files(count, sorted(files.items()), folders=FolderCounter())
        return count.size

    async def check_keys(self, source: Source, *, namespace: str = "") -> bool:
        """Whether a source takes its keys; raises KeysRefusedError when it refuses them."""
        uri = canonical_uri(source.uri)
        if self.before is not None:
            await self.before(Operation(name="check_keys"))
        if uri not in self.sources:
            return False  # no word about keys
        self._check_keys(source.credentials, uri=uri, attempted=f"open {uri}", path="")
        return True

    def takes(self, keys: Credentials | None, *, uri: str) -> bool:
        """Whether a source lets these keys read it."""
        accepted_keys = self.credentials.get(uri)
        return accepted_keys is None or (
            keys == accepted_keys if isinstance(accepted_keys, Credentials) else keys in accepted_keys
        )

    def _check_keys(self, given: Credentials | None, *, uri: str, attempted: str, path: str) -> None:
        if not self.takes(given, uri=uri):
            raise KeysRefusedError(
                attempted=attempted,
                reason="the source refused the credentials",
                remedy="Check accessKeyId and secretAccessKey in the Secret of spec.source.secretRef",
                path=path,
            )

    def _below(self, uri: str) -> Files | None:
        """The files of a prefix of a source; None where there are none."""
        for outer, held in self.sources.items():
            if inside(inner=uri, outer=outer):
                begin = f"{uri.removeprefix(outer).strip('/')}/"
                files = held() if callable(held) else held
                files_below = {
                    name.removeprefix(begin): size for name, size in files.items() if name.startswith(begin)
                }
                if files_below:
                    return files_below
        return None
