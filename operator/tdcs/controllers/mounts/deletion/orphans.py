"""Mounts that no Dataset has any more: of Datasets whose finalizer somebody removed by hand.

Left alone they would hold their room, and their bucket, which a cache can mount only once, for ever.
"""

import logging
from collections.abc import Mapping

from tdcs.api import names
from tdcs.controllers.mounts import readers, volumes
from tdcs.controllers.mounts.deletion.dataset import end_mount
from tdcs.controllers.mounts.mount import Place
from tdcs.controllers.mounts.reconcile import World
from tdcs.engine.protocol import EngineError
from tdcs.kube.api import Object
from tdcs.kube.errors import KubeError
from tdcs.kube.resources import PERSISTENT_VOLUMES

_log = logging.getLogger(__name__)


class Orphans:
    """Unmounts what no Dataset names and no pod uses, once it has been seen so for a while, and lets agents forget what
    is not mounted any more.

    Args:
        world: what to work with; its views must be full.
    """

    def __init__(self, *, world: World) -> None:
        self._world = world
        self._looked: dict[str, float] = {}
        self._seen: dict[Place, float] = {}

    async def sweep(self, cluster: str) -> None:
        """Look at the mounts of a cache cluster, unless that was done a moment ago."""
        world, now = self._world, self._world.clock()
        pause = world.context.settings.survey_seconds
        view = world.observer.view(cluster)
        if not view.answered or view.failure is not None:
            return
        if now - self._looked.get(cluster, float("-inf")) < pause / 2:
            return
        self._looked[cluster] = now
        known = {path for state in view.agents.values() for path in state.mounts}
        try:
            found = {
                (cluster, path) for path in {*view.mounts, *known} if await self._is_orphan((cluster, path))
            }
        except KubeError as error:
            _log.info("the mounts of CacheCluster %s could not be looked at: %s", cluster, error)
            return
        self._seen = {
            place: since for place, since in self._seen.items() if place[0] != cluster or place in found
        }
        for place in found:
            if now - self._seen.setdefault(place, now) >= pause:
                await self._remove(place, mounted=place[1] in view.mounts)

    async def _is_orphan(self, place: Place) -> bool:
        """Whether nobody has, makes or uses a mount."""
        cluster, path = place
        stores = self._world.context.stores
        if not path.startswith(f"{names.ENGINE_DATASETS_ROOT}/"):
            return False
        mount = self._world.mounts.find(cluster=cluster, path=path)
        if mount is not None and mount.lock.locked():
            return False
        if readers.users_of(stores=stores, cluster=cluster, path=path):
            return False
        for (namespace, name), dataset in list(stores.datasets.items()):
            if dataset.get("spec", {}).get("cacheCluster", names.DEFAULT_CACHE_CLUSTER) != cluster:
                continue
            known = (dataset.get("status") or {}).get("mountPath")
            if not known and volumes.mounted_path(await self._volume(namespace, name)) == path:
                return False  # restored without its status: it finds its mount with its first pass
        volumes_of = await self._world.context.api.list(
            PERSISTENT_VOLUMES, labels=f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        )
        return not any(
            _leads_to(volume, place) and (volume.get("status") or {}).get("phase") == "Bound"
            for volume in volumes_of.items
        )

    async def _remove(self, place: Place, *, mounted: bool) -> None:
        cluster, path = place
        if not mounted:
            self._world.mounts.assigner(cluster).forget(path)
            return
        mount = self._world.mounts.get(cluster=cluster, path=path)
        if not mount.mounting.busy:
            _log.warning("unmounting %s of CacheCluster %s: no Dataset has it any more", path, cluster)
        done = end_mount(world=self._world, mount=mount)
        if isinstance(done, EngineError):
            _log.warning("%s of CacheCluster %s, which no Dataset has, stays: %s", path, cluster, done)
        if done is True:
            await self._world.mounts.drop(mount)

    async def _volume(self, namespace: str, name: str) -> Object | None:
        volume = names.volume_name(namespace=namespace, dataset=name)
        return await self._world.context.api.get(PERSISTENT_VOLUMES, name=volume)


def _leads_to(volume: Mapping[str, object], place: Place) -> bool:
    spec = volume.get("spec")
    csi = spec.get("csi") if isinstance(spec, dict) else None
    attributes = csi.get("volumeAttributes") if isinstance(csi, dict) else None
    return (
        isinstance(attributes, dict)
        and (attributes.get(names.VOLUME_CLUSTER), attributes.get(names.VOLUME_PATH)) == place
    )
