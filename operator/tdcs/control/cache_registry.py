"""The caches that the operator works with: of each cache cluster its engine, its agents, and what lists its mounts."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import Lister
from tdcs.listing.result import Listed, listed
from tdcs.listing.source_keys import CheckKeys, unchecked
from tdcs.listing.transfer import MANIFEST_PATH, ManifestFetcher, ManifestUnavailableError
from tdcs.model.agent_state import Agents
from tdcs.model.cache_engine import Engine, WorkerInfo
from tdcs.model.listing_limit import CheckSize, ManifestBound, uncounted

_log = logging.getLogger(__name__)

OBTAIN_SECONDS = 20.0
"""So long whoever asks for a manifest waits for its transfer from an agent, which goes on for the next one who asks."""

TRANSFER_SECONDS = 300.0
"""So long one agent may take for a manifest: others wait for their turn, and the next agent is asked."""

PATIENCE = 5.0
"""Seconds that one engine call waits for a master that is away; then it is reported and tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A manifest that is the version of a mount.

    Attributes:
        most: the manifest has no more bytes.
    """

    cluster: str
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What of one cache cluster the operator talks to.

    Attributes:
        check_size: counts sources before they are mounted.
        check_keys: asks sources whether they take keys.
        connect: called with the cache's workers when they have changed, so that `agents` finds those beside them.
    """

    engine: Engine
    agents: Agents
    lister: Lister
    check_size: CheckSize = uncounted
    check_keys: CheckKeys = unchecked
    connect: Callable[[Sequence[WorkerInfo]], None] = lambda workers: None


class Caches(Protocol):
    """Gives the cache of a cache cluster.

    Attributes:
        folder: the manifests that the operator has.
        manifest_url: where agents and node plugins find these, without the digest; empty when they are not served.
        on_lost: called with the digest of a manifest that is asked for, and that no agent gives either.
        published: says of a digest which version it is; None: of no mount. No other manifest is taken from an agent,
            which could name any digest and give bytes without end.
    """

    on_lost: Callable[[str], None]
    published: Callable[[str], Published | None]

    @property
    def folder(self) -> ManifestFolder: ...

    @property
    def manifest_url(self) -> str: ...

    def get(self, *, cluster: str) -> Cache:
        """The cache of this cluster; the same object each time."""
        ...

    async def fetch(self, *, digest: str, urls: tuple[str, ...]) -> None:
        """Have a manifest in the folder; raises `ManifestUnavailableError` when no URL gives it."""
        ...

    async def totals(self, *, digest: str, urls: tuple[str, ...]) -> Listed:
        """What decisions need of a manifest: its sums, which are added up here, since no digest proves what others say
        of them. Raises `ManifestUnavailableError` when no URL gives it."""
        ...

    async def close(self) -> None: ...


class CachePool:
    """One cache a cluster, made when it is first asked for.

    Args:
        manifest_url: see `Caches`.
        fetcher: gets manifests that the operator has lost; None when it alone has any.

    Attributes:
        on_lost, published: see `Caches`.
    """

    def __init__(
        self,
        *,
        make: Callable[[str], Cache],
        folder: ManifestFolder,
        manifest_url: str = "",
        fetcher: ManifestFetcher | None = None,
    ) -> None:
        self._make = make
        self._caches: dict[str, Cache] = {}
        self._fetcher = fetcher
        self._transfers: dict[str, asyncio.Task[None]] = {}
        """By digest."""
        self._turns: dict[str, asyncio.Lock] = {}
        """By cluster."""
        self.on_lost: Callable[[str], None] = lambda digest: None
        self.published: Callable[[str], Published | None] = lambda digest: None
        self.folder = folder
        self.manifest_url = manifest_url

    def get(self, *, cluster: str) -> Cache:
        if cluster not in self._caches:
            self._caches[cluster] = self._make(cluster)
        return self._caches[cluster]

    async def fetch(self, *, digest: str, urls: tuple[str, ...]) -> None:
        if self._fetcher is not None:
            # The first of those that others are given is this process, which would wait for its own answer.
            others = tuple(
                url for url in urls if not self.manifest_url or not url.startswith(self.manifest_url)
            )
            await self._transfer(self._fetcher, digest=digest, urls=others)

    async def obtain(self, digest: str) -> None:
        """Take a manifest that this process has lost from an agent that works by it."""
        states = [state for cache in self._caches.values() for state in cache.agents.states().values()]
        urls = tuple(
            f"{state.url}{MANIFEST_PATH}{digest}"
            for state in states
            if state.url and any(mount.manifest == digest for mount in state.mounts.values())
        )
        try:
            if self._fetcher is None:
                raise ManifestUnavailableError(f"manifest {digest} is not here, and nowhere else")
            async with asyncio.timeout(OBTAIN_SECONDS):
                await self._transfer(self._fetcher, digest=digest, urls=urls)
        except TimeoutError:
            return
        except ManifestUnavailableError as error:
            _log.info("%s", error)
            self.on_lost(digest)

    async def _transfer(self, fetcher: ManifestFetcher, *, digest: str, urls: tuple[str, ...]) -> None:
        """Take a manifest from elsewhere when it is its turn. It goes on for others when the caller is cancelled."""
        if await asyncio.to_thread(self.folder.has, digest):
            return
        version = self.published(digest)
        if version is None:
            raise ManifestUnavailableError(f"manifest {digest} is of no mount: it is taken from nowhere")
        task = self._transfers.get(digest)
        if task is None:
            work = self._in_turn(fetcher, version, digest=digest, urls=urls)
            task = self._transfers[digest] = asyncio.create_task(work, name=f"manifest {digest}")
            task.add_done_callback(lambda _: self._transfers.pop(digest, None))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    async def _in_turn(
        self, fetcher: ManifestFetcher, version: Published, *, digest: str, urls: tuple[str, ...]
    ) -> None:
        async with self._turns.setdefault(version.cluster, asyncio.Lock()):
            most = ManifestBound(version.most, "spec.limits.files of its CacheCluster allow no more")
            await fetcher.fetch(digest=digest, urls=urls, most=most, seconds=TRANSFER_SECONDS)

    async def totals(self, *, digest: str, urls: tuple[str, ...]) -> Listed:
        await self.fetch(digest=digest, urls=urls)
        return await asyncio.to_thread(lambda: listed(self.folder.open(digest)))

    async def close(self) -> None:
        transfers = list(self._transfers.values())
        for transfer in transfers:
            transfer.cancel()
        await asyncio.gather(*transfers, return_exceptions=True)
        for cache in self._caches.values():
            await cache.agents.close()
            await cache.engine.close()
