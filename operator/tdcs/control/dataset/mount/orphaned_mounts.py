"""Mounts that no Dataset has any more, for their Datasets lost the finalizer by hand, and manifests that nothing names.

Left alone they would hold their room, and their bucket, which a cache can mount only once, forever.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from tdcs.api import names
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.shared_mount import Place
from tdcs.kube.errors import KubeError
from tdcs.model.cache_engine import EngineError
from tdcs.model.kube_resources import PERSISTENT_VOLUMES

_log = logging.getLogger(__name__)

UNUSED_SECONDS = 600.0
"""A manifest that is so young may be of a listing that has only just ended."""


class Orphans:
    """Unmounts what no Dataset names and no pod uses, once it has been seen so for a while, and lets agents forget what
    is not mounted any more.

    Args:
        world: what to work with; its views must be full.
    """

    def __init__(self, *, world: World) -> None:
        self._world = world
        self._swept_at: dict[str, float] = {}
        self._orphaned_since: dict[Place, float] = {}
        self._used: set[Place] = set()

    def is_due(self, cluster: str) -> bool:
        """Whether the mounts of a cache cluster were not looked at for a while."""
        pause = self._world.context.settings.survey_seconds
        return self._world.clock() - self._swept_at.get(cluster, float("-inf")) >= pause / 2

    async def sweep(self, cluster: str) -> bool:
        """Look at the mounts of a cache cluster, unless that was done a moment ago; gives whether something of it is
        still to go.
        """
        world, now = self._world, self._world.clock()
        pause = world.context.settings.survey_seconds
        view = world.observer.view(cluster)
        if not view.answered or view.failure is not None:
            return False
        if not self.is_due(cluster):
            own_mounts = {mount.place for mount in world if mount.cluster == cluster}
            orphans = {place for place in self._orphaned_since if place[0] == cluster}
            return bool(self._without_dataset((own_mounts | orphans) - self._used))
        self._swept_at[cluster] = now
        agent_mounts = {(cluster, path) for state in view.agents.values() for path in state.mounts}
        mounted = {(cluster, path) for path in view.mounts}
        own_mounts = {mount.place for mount in world if mount.cluster == cluster}
        nameless = self._without_dataset(agent_mounts | mounted | own_mounts)
        try:
            used = await self._in_use(cluster) if nameless else set()
        except KubeError as error:
            _log.info("the mounts of CacheCluster %s could not be looked at: %s", cluster, error)
            return True
        self._used = {place for place in self._used if place[0] != cluster} | used
        orphans = nameless - used
        self._orphaned_since = {
            place: since
            for place, since in self._orphaned_since.items()
            if place[0] != cluster or place in orphans
        }
        for place in orphans:
            if now - self._orphaned_since.setdefault(place, now) >= pause:
                await self._remove(place, mounted=place in mounted, on_agents=place in agent_mounts)
        return bool(orphans)

    def _without_dataset(self, places: Iterable[Place]) -> set[Place]:
        """The mounts that no Dataset names, and on which no pass works."""
        world = self._world
        stores = world.context.stores
        named = stores.paths.places(stores.datasets)
        locked = {mount.place for mount in world if mount.lock.locked()}
        return {
            place
            for place in places
            if place[1].startswith(f"{names.ENGINE_DATASETS_ROOT}/")
            and place not in named
            and place not in locked
        }

    async def _in_use(self, cluster: str) -> set[Place]:
        """The mounts that pods can read, or that a Dataset that was restored without its status finds by its volume."""
        restored = {
            names.volume_name(namespace=namespace, dataset=name)
            for (namespace, name), dataset in self._world.context.stores.datasets.items()
            if names.cache_cluster_of(dataset) == cluster
            and not (dataset.get("status") or {}).get("mountPath")
        }
        volumes = await self._world.context.api.list(
            PERSISTENT_VOLUMES, labels=f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        )
        return {
            _place_of(volume)
            for volume in volumes.items
            if volume["metadata"]["name"] in restored or (volume.get("status") or {}).get("phase") == "Bound"
        }

    async def _remove(self, place: Place, *, mounted: bool, on_agents: bool) -> None:
        cluster, path = place
        if not mounted:
            if on_agents:
                self._world.assigner(cluster).drop_mount(path)
            leftover = self._world.find(cluster=cluster, path=path)
            if leftover is not None:
                await self._world.drop(leftover)
            return
        mount = self._world.get(cluster=cluster, path=path)
        if not mount.mounting.busy:
            _log.warning("unmounting %s of CacheCluster %s: no Dataset has it any more", path, cluster)
        done = self._world.unmount(mount)
        if isinstance(done, EngineError):
            _log.warning("%s of CacheCluster %s, which no Dataset has, stays: %s", path, cluster, done)
        if done is True:
            await self._world.drop(mount)


def _place_of(volume: Mapping[str, object]) -> Place:
    """The mount to which a volume leads; an empty one when it leads to none."""
    spec = volume.get("spec")
    csi = spec.get("csi") if isinstance(spec, dict) else None
    attributes = csi.get("volumeAttributes") if isinstance(csi, dict) else None
    fields = attributes if isinstance(attributes, dict) else {}
    return str(fields.get(names.VOLUME_CLUSTER, "")), str(fields.get(names.VOLUME_PATH, ""))


async def remove_unused(world: World) -> None:
    """Remove the manifests that no mount, no agent and no published version names. Of a cache that does not answer all
    those of its Datasets' mounts stay, and no others."""
    digests, mounts = used(world)
    folder = world.context.caches.folder
    try:
        await asyncio.to_thread(folder.prune, keep=digests, mounts=mounts, unused_seconds=UNUSED_SECONDS)
    except OSError as error:
        _log.warning("manifests that are not used any more stay in %s: %s", folder.path, error)


def used(world: World) -> tuple[set[str], set[str]]:
    """Digests of manifests that are used, and paths of mounts of which that cannot be said now."""
    stores = world.context.stores
    views = {cluster: world.observer.view(cluster) for _, cluster in stores.cache_clusters}
    states = [state for view in views.values() for state in view.agents.values()]
    states += [agent.state for view in views.values() for agent in view.away.values()]
    listed = [mount.manifests.view().listed or mount.manifests.early for mount in world]
    digests = {
        *(digest for view in views.values() for digest in view.versions.values()),
        *(mount.manifest for state in states for mount in state.mounts.values()),
        *(version.digest for version in listed if version is not None),
    }
    silent = {cluster for cluster, view in views.items() if not view.answered or view.failure is not None}
    mounts = {
        str(path)
        for obj in stores.datasets.values()
        if names.cache_cluster_of(obj) in silent and (path := (obj.get("status") or {}).get("mountPath"))
    }
    return digests, mounts
