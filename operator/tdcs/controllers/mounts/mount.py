"""One mounted path of a cache, shared by all Datasets of one source, in parts that each look after one matter of it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from tdcs.controllers.cachemanager.bandwidth import SourceBandwidth
from tdcs.controllers.cachemanager.manager import CacheManager
from tdcs.controllers.caches import Caches
from tdcs.controllers.context import WorkKey
from tdcs.controllers.mounts.agents import Assigner
from tdcs.controllers.mounts.manifests import ListingGate, MountManifests
from tdcs.controllers.mounts.mounting import Mounting
from tdcs.controllers.mounts.path_settings import PathSettings
from tdcs.controllers.mounts.report import LastPass, MountDecision, MountReport

Place = tuple[str, str]
"""Cache cluster and engine path."""


class Mount:
    """What is known of one mount between passes. All of it is found again after a restart.

    Attributes:
        lock: held by the pass that works on it.
        mounting: that it is mounted, with the right keys.
        manifests: its versions.
        settings: how it is read and protected.
        last: the last pass; only `reconcile` replaces it.
        users: the Datasets of the last pass; only the pass of a Dataset replaces them. What the mount says next is for
            them, whether their statuses, in which its path is written, have been seen or not.
    """

    def __init__(
        self,
        *,
        cluster: str,
        path: str,
        mounting: Mounting,
        manifests: MountManifests,
        settings: PathSettings,
    ) -> None:
        self.cluster = cluster
        self.path = path
        self.lock = asyncio.Lock()
        self.mounting = mounting
        self.manifests = manifests
        self.settings = settings
        self.last: LastPass | None = None
        self.users: frozenset[WorkKey] = frozenset()

    @property
    def report(self) -> MountReport | None:
        """What the last pass found; None before one, and when it was mounted anew since: its blocks are others then."""
        last = self.last
        return last.report if last is not None and last.times == self.mounting.times else None

    @property
    def decision(self) -> MountDecision | None:
        """The last placement."""
        return self.report.decision if self.report is not None else None

    @property
    def place(self) -> Place:
        """Its cache cluster and path."""
        return self.cluster, self.path

    def forget(self) -> None:
        """It was mounted anew: nothing that was known of its blocks holds any more."""
        self.manifests.forget()
        self.settings.forget()

    async def close(self) -> None:
        """Stop what goes on in the background."""
        await self.mounting.close()
        await self.manifests.close()
        await self.settings.close()


class Mounts:
    """All mounts of the operator, and what their assignments go through, by cache cluster.

    Args:
        caches: gives the cache of a cluster.
        pause: seconds between two tries of what has failed.
        stuck_seconds: after so long a listing lets others go on.
        looked: looks at what a cluster has mounted, after a change of that.
        on_change: called when something of a mount has come to its end in the background.
        now: the time of day.
        clock: seconds that only grow.

    Attributes:
        manager: grants them their parts of their caches.
        bandwidth: shares the bandwidth of their stores.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        pause: float,
        stuck_seconds: float,
        looked: Callable[[str], Coroutine[Any, Any, None]],
        on_change: Callable[[str, str], None],
        now: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._pause = pause
        self._looked = looked
        self._on_change = on_change
        self._now = now
        self._clock = clock
        self._gate = ListingGate(stuck_seconds=stuck_seconds)
        self._mounts: dict[Place, Mount] = {}
        self._assigners: dict[str, Assigner] = {}
        self.manager = CacheManager(on_change=on_change)
        self.bandwidth = SourceBandwidth(on_change=on_change, clock=clock)

    def __iter__(self) -> Iterator[Mount]:
        return iter(list(self._mounts.values()))

    def find(self, *, cluster: str, path: str) -> Mount | None:
        """A mount that was worked on before."""
        return self._mounts.get((cluster, path))

    def get(self, *, cluster: str, path: str) -> Mount:
        """A mount; what is not known yet begins with nothing known of it."""
        place = (cluster, path)
        if place not in self._mounts:
            self._mounts[place] = self._made(cluster, path)
        return self._mounts[place]

    def files_of_others(self, mount: Mount) -> int:
        """Files of the other mounts of a mount's cluster, as far as these have been listed."""
        return sum(
            each.manifests.files for each in self if each.cluster == mount.cluster and each is not mount
        )

    def assigner(self, cluster: str) -> Assigner:
        """What brings assignments to the agents of a cluster."""
        if cluster not in self._assigners:
            self._assigners[cluster] = Assigner(
                agents=self._caches.get(cluster=cluster).agents, retry_first=min(self._pause / 10, 1.0)
            )
        return self._assigners[cluster]

    async def drop(self, mount: Mount) -> None:
        """No Dataset reads a mount any more."""
        self._mounts.pop(mount.place, None)
        self.manager.forget(cluster=mount.cluster, path=mount.path)
        self.bandwidth.forget(mount.place)
        await mount.close()

    async def close(self) -> None:
        """Stop what goes on in the background."""
        for mount in self:
            await mount.close()
        for assigner in self._assigners.values():
            await assigner.close()

    def _made(self, cluster: str, path: str) -> Mount:
        cache = self._caches.get(cluster=cluster)

        def changed() -> None:
            self._on_change(cluster, path)

        mounting = Mounting(
            path=path,
            engine=cache.engine,
            pause=self._pause,
            check_size=cache.check_size,
            looked=lambda: self._looked(cluster),
            on_change=changed,
            clock=self._clock,
        )
        return Mount(
            cluster=cluster,
            path=path,
            mounting=mounting,
            manifests=MountManifests(
                path=path,
                caches=self._caches,
                lister=cache.lister,
                gate=self._gate,
                pause=self._pause,
                now=self._now,
                on_done=changed,
                on_refused=mounting.suspect,
                clock=self._clock,
            ),
            settings=PathSettings(path=path, engine=cache.engine, on_done=changed),
        )
