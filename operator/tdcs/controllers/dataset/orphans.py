"""Mounts that no Dataset has any more: of Datasets whose finalizer somebody removed by hand.

Left alone they would hold their room, and their bucket, which a cache can mount only once, for ever.
"""

import logging
from collections.abc import Callable, Mapping

from tdcs.api import names
from tdcs.controllers.context import Context
from tdcs.controllers.dataset import volumes
from tdcs.controllers.dataset.background import Background
from tdcs.controllers.dataset.data import MountedData
from tdcs.engine.protocol import EngineError
from tdcs.kube.api import Object
from tdcs.kube.errors import KubeError
from tdcs.kube.resources import PERSISTENT_VOLUMES

_log = logging.getLogger(__name__)

Place = tuple[str, str]
"""Cache cluster and engine path."""


class Orphans:
    """Unmounts what no Dataset names and no pod uses, once it has been seen so for a while.

    Args:
        context: the controller's world; its views must be full.
        datas: what is remembered of each mount; entries of what was unmounted are removed.
        clock: seconds that only grow.
    """

    def __init__(
        self, *, context: Context, datas: dict[Place, MountedData], clock: Callable[[], float]
    ) -> None:
        self._context = context
        self._datas = datas
        self._clock = clock
        self._looked: dict[str, float] = {}
        self._seen: dict[Place, float] = {}
        self._leaving: dict[Place, Background[None]] = {}

    async def sweep(self, cluster: str) -> None:
        """Look at the mounts of a cache cluster, unless that was done a moment ago."""
        now, pause = self._clock(), self._context.settings.survey_seconds
        if now - self._looked.get(cluster, float("-inf")) < pause / 2:
            return
        self._looked[cluster] = now
        try:
            mounts = await self._context.engines.get(cluster=cluster).mounts()
            found = {(cluster, path) for path in mounts if await self._is_orphan((cluster, path))}
        except (EngineError, KubeError) as error:
            _log.info("the mounts of CacheCluster %s could not be looked at: %s", cluster, error)
            return
        self._seen = {
            place: since for place, since in self._seen.items() if place[0] != cluster or place in found
        }
        for place in found:
            known = self._leaving.get(place)
            if self._clock() - self._seen.setdefault(place, now) >= pause and not (known and known.running):
                self._leaving[place] = Background(self._unmount(place), name="orphan", on_done=lambda: None)

    async def close(self) -> None:
        """Stop what is under way."""
        for work in self._leaving.values():
            await work.cancel()

    async def _is_orphan(self, place: Place) -> bool:
        """Whether nobody has, makes or uses a mount."""
        cluster, path = place
        data = self._datas.get(place)
        if not path.startswith(f"{names.ENGINE_DATASETS_ROOT}/"):
            return False
        if data is not None and (data.users or data.lock.locked() or data.mounting is not None):
            return False
        for (namespace, name), dataset in list(self._context.stores.datasets.items()):
            if dataset.get("spec", {}).get("cacheCluster", names.DEFAULT_CACHE_CLUSTER) != cluster:
                continue
            known = (dataset.get("status") or {}).get("mountPath")
            if known == path:
                return False
            if not known and volumes.mounted_path(await self._volume(namespace, name)) == path:
                return False  # restored without its status: it finds its mount with its first pass
        volumes_of = await self._context.api.list(
            PERSISTENT_VOLUMES, labels=f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        )
        return not any(
            _leads_to(volume, place) and (volume.get("status") or {}).get("phase") == "Bound"
            for volume in volumes_of.items
        )

    async def _volume(self, namespace: str, name: str) -> Object | None:
        volume = names.volume_name(namespace=namespace, dataset=name)
        return await self._context.api.get(PERSISTENT_VOLUMES, name=volume)

    async def _unmount(self, place: Place) -> None:
        cluster, path = place
        data = self._datas.get(place)
        try:
            if data is not None:
                await data.close()
            if not await self._is_orphan(place):
                return
            _log.warning("unmounting %s of CacheCluster %s: no Dataset has it any more", path, cluster)
            await self._context.engines.get(cluster=cluster).unmount(path=path)
        except (EngineError, KubeError) as error:
            _log.warning("%s of CacheCluster %s, which no Dataset has, stays: %s", path, cluster, error)
            return
        if data is not None and not data.users:
            self._datas.pop(place, None)


def _leads_to(volume: Mapping[str, object], place: Place) -> bool:
    spec = volume.get("spec")
    csi = spec.get("csi") if isinstance(spec, dict) else None
    told = csi.get("volumeAttributes") if isinstance(csi, dict) else None
    return isinstance(told, dict) and (told.get(names.VOLUME_CLUSTER), told.get(names.VOLUME_PATH)) == place
