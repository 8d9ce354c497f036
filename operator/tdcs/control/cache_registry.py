"""The caches that the operator works with: of each cache cluster its engine, its agents, and what lists its mounts."""

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tdcs.decide.problem import Problem
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import Lister
from tdcs.listing.other_node import CountElsewhere, nowhere
from tdcs.listing.result import Listed, listed
from tdcs.listing.source_keys import CheckKeys, unchecked
from tdcs.listing.transfer import MANIFEST_PATH, ManifestFetcher, ManifestUnavailableError
from tdcs.model.agent_state import Agents
from tdcs.model.cache_engine import Engine, Source, WorkerInfo
from tdcs.model.export_view import ExportView
from tdcs.model.kube_objects import Key, Object
from tdcs.model.listing_limit import CheckSize, ManifestBound, uncounted

OBTAIN_SECONDS = 20.0
"""So long whoever asks for a manifest waits for its transfer from an agent, which goes on for the next one who asks."""

TRANSFER_SECONDS = 300.0
"""So long one agent may take for a manifest: others wait for their turn, and the next agent is asked."""


class ClusterObjects(Protocol):
    """What the operator sees of cache clusters on the API server."""

    @property
    def stateful_sets(self) -> Mapping[Key, Object]: ...

    def cache_cluster(self, name: str) -> Object | None:
        """The CacheCluster of this name in the operator's namespace; None when there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A manifest that is the version of a mount.

    Attributes:
        most: the manifest has no more bytes.
    """

    cluster: str
    most: int


class ClaimSources(Protocol):
    """Has PersistentVolumeClaims served that are sources."""

    def reached(
        self, source: Source, *, by: Hashable, needed: bool, on_change: Callable[[], None]
    ) -> Source | None:
        """The source of a claim as it is reached now; None while it is not, or not needed.

        Args:
            by: who asks: it is needed from now on, until the same says that it is not.
            on_change: called when the answer is another one.
        """
        ...

    def trouble(self, source: Source) -> Problem | None:
        """Why one that is needed cannot be reached; None while it can, or has just been asked for."""
        ...

    def release(self, by: Hashable) -> None:
        """Nothing is needed any more by this user."""
        ...


class _NoClaims:
    """`ClaimSources` of a cache that reads none."""

    def reached(
        self, source: Source, *, by: Hashable, needed: bool, on_change: Callable[[], None]
    ) -> Source | None:
        return None

    def trouble(self, source: Source) -> Problem | None:
        return None

    def release(self, by: Hashable) -> None:
        return None


NO_CLAIMS: ClaimSources = _NoClaims()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What of one cache cluster the operator talks to.

    Attributes:
        check_size: waits until a source can be listed; in tests, counts it.
        check_keys: asks sources whether they take keys.
        count_elsewhere: counts a source that has lost much from another node.
        claims: has claims served that are sources.
        connect: called with the cache's workers when they have changed, so that `agents` finds those next to them.
        exports: gives what Alluxio's master said last; None while there is none, or it was not asked.
        alongside: goes on for as long as the cache is used; None: nothing does.
    """

    engine: Engine
    agents: Agents
    lister: Lister
    check_size: CheckSize = uncounted
    check_keys: CheckKeys = unchecked
    count_elsewhere: CountElsewhere = nowhere
    claims: ClaimSources = NO_CLAIMS
    connect: Callable[[Sequence[WorkerInfo]], None] = lambda workers: None
    exports: Callable[[], ExportView | None] = lambda: None
    alongside: asyncio.Task[None] | None = None


class Caches(Protocol):
    """Gives the cache of a cache cluster.

    Attributes:
        folder: the manifests that the operator has.
        manifest_url: where agents and node plugins find these, without the digest; empty when they are not served.
    """

    @property
    def folder(self) -> ManifestFolder: ...

    @property
    def manifest_url(self) -> str: ...

    def get(self, *, cluster: str) -> Cache:
        """The cache of this cluster; the same object each time."""
        ...

    async def fetch(self, *, digest: str, urls: tuple[str, ...], version: Published | None) -> None:
        """Have a manifest in the folder; raises `ManifestUnavailableError` when no URL gives it, or when it is of no
        mount (`version`): an agent could name any digest and give bytes without end."""
        ...

    async def obtain(self, digest: str, *, version: Published | None) -> None:
        """As `fetch`, from the agents that work by it; when that takes long it goes on without the caller."""
        ...

    async def totals(self, *, digest: str, urls: tuple[str, ...], version: Published | None) -> Listed:
        """What decisions need of a manifest: its sums, which are added up here, since no digest proves what others say
        of them. Raises `ManifestUnavailableError` when no URL gives it."""
        ...

    async def close(self) -> None: ...


class CachePool:
    """One cache a cluster, made when it is first asked for.

    Args:
        make: makes that of a cluster.
        manifest_url: see `Caches`.
        fetcher: gets manifests that the operator has lost; None when it alone has any.
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
        self.folder = folder
        self.manifest_url = manifest_url

    def get(self, *, cluster: str) -> Cache:
        if cluster not in self._caches:
            self._caches[cluster] = self._make(cluster)
        return self._caches[cluster]

    async def fetch(self, *, digest: str, urls: tuple[str, ...], version: Published | None) -> None:
        if self._fetcher is not None:
            # The first of those that others are given is this process, which would wait for its own answer.
            remote_urls = tuple(
                url for url in urls if not self.manifest_url or not url.startswith(self.manifest_url)
            )
            await self._transfer(self._fetcher, version, digest=digest, urls=remote_urls)

    async def obtain(self, digest: str, *, version: Published | None) -> None:
        states = [state for cache in self._caches.values() for state in cache.agents.states().values()]
        urls = tuple(
            f"{state.url}{MANIFEST_PATH}{digest}"
            for state in states
            if state.url and any(mount.manifest == digest for mount in state.mounts.values())
        )
        if self._fetcher is None:
            raise ManifestUnavailableError(f"manifest {digest} is not here, and nowhere else")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OBTAIN_SECONDS):
                await self._transfer(self._fetcher, version, digest=digest, urls=urls)

    async def _transfer(
        self, fetcher: ManifestFetcher, version: Published | None, *, digest: str, urls: tuple[str, ...]
    ) -> None:
        """Take a manifest from elsewhere when it is its turn. It goes on for others when the caller is cancelled."""
        if await asyncio.to_thread(self.folder.has, digest):
            return
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

    async def totals(self, *, digest: str, urls: tuple[str, ...], version: Published | None) -> Listed:
        await self.fetch(digest=digest, urls=urls, version=version)
        return await asyncio.to_thread(lambda: listed(self.folder.open(digest)))

    async def close(self) -> None:
        transfers = list(self._transfers.values())
        for transfer in transfers:
            transfer.cancel()
        await asyncio.gather(*transfers, return_exceptions=True)
        for cache in self._caches.values():
            if cache.alongside is not None:
                cache.alongside.cancel()
                await asyncio.gather(cache.alongside, return_exceptions=True)
            await cache.agents.close()
            await cache.engine.close()
