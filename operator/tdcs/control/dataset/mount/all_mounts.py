"""All mounts of the operator, and what passes over them work with."""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from pydantic import ValidationError

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cache_observer import CacheObserver
from tdcs.control.cache_registry import Published
from tdcs.control.context import Context
from tdcs.control.dataset.assigner import Assigner
from tdcs.control.dataset.bandwidth import SourceBandwidth
from tdcs.control.dataset.cache_manager import CacheManager
from tdcs.control.dataset.installed_policies import installed_policies
from tdcs.control.dataset.mount.listing_gate import ListingGate
from tdcs.control.dataset.mount.mounting import Mounting
from tdcs.control.dataset.mount.published_version import PublishedVersion
from tdcs.control.dataset.mount.shared_mount import Mount, Place
from tdcs.control.dataset.mount.source_versions import MountManifests
from tdcs.control.dataset.mount.wakes import Wakes
from tdcs.control.node_view import NodeDirectory
from tdcs.decide.place import placement_input
from tdcs.decide.place.placement_input import CacheNodes
from tdcs.decide.source_limits import manifest_bytes
from tdcs.model.cache_engine import EngineError
from tdcs.model.kube_objects import Key
from tdcs.model.listing_limit import SourcesSize

_log = logging.getLogger(__name__)

LOOKS = 20
"""So often a new operator asks whether it has looked at all mounts, before it sends assignments anyway."""


class WaitingJobs(Protocol):
    """The queue of jobs, as far as mounts ask for it."""

    def order(self) -> Sequence[Key]:
        """The jobs that wait, the first first."""

    def awaited_nodes(self, dataset: Key) -> Collection[str]:
        """The nodes that the jobs which wait for a Dataset are expected on."""


class World:
    """The mounts of all cache clusters, with what they share.

    Args:
        context: the controller's world.
        jobs: those that wait.
        clock: seconds that only grow.

    Attributes:
        observer: what every cache cluster says of itself.
        wakes: has Datasets looked at again.
        manager: grants the mounts their parts of their caches.
        bandwidth: shares the bandwidth of their stores.
        policies: the eviction policies that are installed.
        node_directory: the cluster's nodes.
    """

    def __init__(
        self,
        *,
        context: Context,
        jobs: WaitingJobs,
        clock: Callable[[], float],
    ) -> None:
        self.context = context
        self.jobs = jobs
        self.clock = clock
        self._mounts: dict[Place, Mount] = {}
        self.manager = CacheManager(on_change=self._changed)
        self.wakes = Wakes(context=context, mounts=self._mounts, manager=self.manager)
        self.observer = CacheObserver(
            caches=context.caches,
            poll_seconds=context.settings.poll_seconds,
            patience=context.settings.learning_seconds / 4,
            on_cache=self.wakes.cache_changed,
            on_agents=self.wakes.agents_changed,
            on_room=self.wakes.room_changed,
            clock=clock,
        )
        self.bandwidth = SourceBandwidth(on_change=self._changed, clock=clock)
        self.policies = installed_policies()
        self.node_directory = NodeDirectory(topology_labels=context.settings.topology_labels)
        self._gate = ListingGate(stuck_seconds=context.settings.listing_seconds)
        self._assigners: dict[str, Assigner] = {}
        self._first_looks: dict[str, asyncio.Task[None]] = {}
        """Of assigners whose agents are not those of their cluster any more."""
        self._cache_nodes: dict[str, tuple[object, CacheNodes]] = {}
        self._cluster_specs: dict[str, tuple[object, CacheClusterSpec | None]] = {}

    def __iter__(self) -> Iterator[Mount]:
        return iter(list(self._mounts.values()))

    def find(self, *, cluster: str, path: str) -> Mount | None:
        return self._mounts.get((cluster, path))

    def get(self, *, cluster: str, path: str) -> Mount:
        """A mount; what is not known yet begins with nothing known of it."""
        place = (cluster, path)
        if place not in self._mounts:
            self._mounts[place] = self._made(cluster, path)
        return self._mounts[place]

    def unmount(self, mount: Mount) -> EngineError | bool:
        """One step towards a mount that is gone with its blocks: whether it is, or why not just now."""
        view = self.observer.view(mount.cluster)
        assigner = self.assigner(mount.cluster)
        if not view.answered or view.failure is not None:
            return False

        async def before() -> None:
            self._release_claim(mount)
            assigner.drop_mount(mount.path)
            await mount.manifests.close()

        return mount.mounting.unmount(mounts=view.mounts, before=before)

    async def drop(self, mount: Mount) -> None:
        self._mounts.pop(mount.place, None)
        self._release_claim(mount)
        self._drop_shares(mount)
        await mount.close()

    def drop_loads(self, mount: Mount) -> None:
        """Have agents drop what was loaded of a mount that stays, and give back what it was granted."""
        self.assigner(mount.cluster).drop_mount(mount.path)
        self._drop_shares(mount)

    def _drop_shares(self, mount: Mount) -> None:
        self.manager.drop_mount(cluster=mount.cluster, path=mount.path)
        self.bandwidth.drop_mount(mount.place)

    def _release_claim(self, mount: Mount) -> None:
        self.context.caches.get(cluster=mount.cluster).claims.release(mount.place)

    async def close(self) -> None:
        looks = list(self._first_looks.values())
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        for mount in self:
            await mount.close()
        for assigner in self._assigners.values():
            await assigner.close()

    def others_of(self, mount: Mount, *, paths: Collection[str] | None = None) -> SourcesSize:
        """How large the other mounts of its cluster are together, as far as these have been counted or listed. `paths`:
        those that count; None: all."""
        sizes = [
            other_mount.size
            for other_mount in self
            if other_mount.cluster == mount.cluster
            and other_mount is not mount
            and (paths is None or other_mount.path in paths)
        ]
        return SourcesSize(files=sum(size.files for size in sizes), bytes=sum(size.bytes for size in sizes))

    def assigner(self, cluster: str) -> Assigner:
        existing = self._assigners.get(cluster)
        if existing is not None:
            return existing
        assigner = Assigner(
            agents=self.context.caches.get(cluster=cluster).agents,
            retry_first=min(self.context.settings.survey_seconds / 10, 1.0),
            held=True,
        )
        self._assigners[cluster] = assigner
        name = f"first look at the mounts of {cluster}"
        self._first_looks[cluster] = asyncio.create_task(self._release(cluster, assigner), name=name)
        return assigner

    def is_complete(self, cluster: str) -> bool:
        """Whether it is known of every mounted Dataset of a cluster what it asks for."""
        expected = placement_input.expected_paths(datasets=self.context.stores.datasets, cluster=cluster)
        return expected <= self.manager.grants(cluster).mounts.keys()

    async def _release(self, cluster: str, assigner: Assigner) -> None:
        """Let assignments go out once all mounts of a cluster were looked at, or no further one is, and after a while
        anyway."""
        count = 0
        try:
            for _ in range(LOOKS):
                before, count = count, len(self.manager.paths(cluster))
                if self.is_complete(cluster) or (count and count == before):
                    break
                await asyncio.sleep(self.context.settings.learning_seconds / LOOKS)
        except Exception:
            _log.exception("it is not known whether all mounts of CacheCluster %s were looked at", cluster)
        assigner.release()

    def spec_of(self, cluster: str) -> CacheClusterSpec | None:
        """The spec of a cache cluster, read again when its object has changed; None while it cannot be read, which its
        own status says."""
        obj = self.context.stores.cache_cluster(cluster)
        cached = self._cluster_specs.get(cluster)
        if cached is not None and cached[0] is obj:
            return cached[1]
        try:
            # Not the whole object: the status of hundreds of workers is no matter of a pass over a mount.
            spec = CacheClusterSpec.model_validate((obj or {}).get("spec") or {})
        except ValidationError:
            spec = None
        self._cluster_specs[cluster] = (obj, spec)
        return spec

    def nodes_of(self, cluster: str) -> CacheNodes:
        """The nodes of a cache cluster, made again when something of them has changed."""
        stores, view = self.context.stores, self.observer.view(cluster)
        obj = stores.cache_cluster(cluster)
        nodes = self.node_directory.of(nodes=stores.nodes, usage=stores.usage)
        cached = self._cache_nodes.get(cluster)
        if cached is not None and cached[0] is obj and cached[1].view is view and cached[1].nodes is nodes:
            return cached[1]
        before = cached[1] if cached is not None else None
        cache_nodes = placement_input.cache_nodes(view=view, nodes=nodes, cluster=obj, before=before)
        self._cache_nodes[cluster] = (obj, cache_nodes)
        return cache_nodes

    def changed(self, mount: Mount) -> None:
        """Something of a mount has changed next to its passes."""
        self._changed(mount.cluster, mount.path)

    def _changed(self, cluster: str, path: str) -> None:
        """Something of a mount has changed next to its passes."""
        mount = self.find(cluster=cluster, path=path)
        if mount is not None:
            mount.changes += 1
        self.wakes.datasets(cluster, {path})

    def published(self, digest: str) -> Published | None:
        """The version with this digest: of a listed mount, or that a cache has; None: of no mount."""
        listed = ((mount.cluster, mount.manifests.view().listed) for mount in self)
        clusters = (
            cluster for cluster, version in listed if version is not None and version.digest == digest
        )
        cluster = next(clusters, None) or self.observer.with_version(digest)
        if cluster is None:
            return None
        spec = self.spec_of(cluster) or CacheClusterSpec()
        return Published(cluster=cluster, most=manifest_bytes(spec))

    def _made(self, cluster: str, path: str) -> Mount:
        context, cache = self.context, self.context.caches.get(cluster=cluster)
        pause = context.settings.survey_seconds

        changed = functools.partial(self._changed, cluster, path)
        mounting = Mounting(
            path=path,
            engine=cache.engine,
            pause=pause,
            check_size=cache.check_size,
            count_elsewhere=cache.count_elsewhere,
            observe=lambda: self.observer.look(cluster),
            on_change=changed,
            clock=self.clock,
        )
        manifests = MountManifests(
            path=path,
            caches=context.caches,
            published=self.published,
            lister=cache.lister,
            count=mounting.count,
            count_elsewhere=mounting.count_on_another_node,
            gate=self._gate,
            pause=pause,
            now=context.now,
            on_done=changed,
            on_refused=mounting.suspect,
            clock=self.clock,
        )
        version = PublishedVersion(path=path, engine=cache.engine, on_done=changed)
        return Mount(cluster=cluster, path=path, mounting=mounting, manifests=manifests, version=version)
