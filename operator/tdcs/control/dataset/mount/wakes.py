"""Who is looked at when something changes: Datasets, their Preloads, and the CacheCluster that serves them."""

from collections.abc import Mapping
from typing import Final

from tdcs.api import names
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset.cache_manager import CacheManager
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.dataset.mount.shared_mount import Mount, Place
from tdcs.model.kube_resources import DATASETS

ROOM_SECONDS: Final = 2.0
"""Room that comes or goes on the nodes has Datasets looked at so often at most."""

NEEDS_SECONDS: Final = 1.0
"""A CacheCluster is looked at so soon after its jobs need more or less of it; the needs of many mounts at once."""


class Wakes:
    """Has objects looked at again.

    Args:
        context: the controller's world.
        mounts: those that were worked on.
        manager: grants them their parts of the caches.
    """

    def __init__(self, *, context: Context, mounts: Mapping[Place, Mount], manager: CacheManager) -> None:
        self._context: Final = context
        self._mounts: Final = mounts
        self._manager: Final = manager
        self._needs_seen: Final[dict[str, object]] = {}

    def datasets(self, cluster: str, paths: set[str] | None, *, after: float = 0.0) -> None:
        """The Datasets of some mounts of a cluster, or of all, soon, and their Preloads."""
        for key in self._users(cluster, paths):
            if after:
                self._context.queue.add_after(key, after)
            else:
                self._context.queue.add(key)
            self.preloads(key)

    def preloads(self, dataset: WorkKey) -> None:
        for key in mount_readers.preload_keys(
            stores=self._context.stores, namespace=dataset.namespace, dataset=dataset.name
        ):
            self._context.queue.add(key)

    def needs_changed(self, cluster: str) -> None:
        """The CacheCluster, when its jobs need more or less: its status says so, and may scale it."""
        grants = self._manager.grants(cluster)
        needs = (sum(grants.needed.values()), len(grants.mounts), grants.pinned)
        if self._needs_seen.get(cluster) != needs:
            self._needs_seen[cluster] = needs
            self._context.queue.add_after(self._context.cache_cluster_key(cluster), NEEDS_SECONDS)

    def manifest_lost(self, digest: str) -> None:
        """Somebody needs a manifest that is nowhere: what it is of is listed."""
        for mount in list(self._mounts.values()):
            if mount.manifests.lost(digest):
                self.datasets(mount.cluster, {mount.path}, after=self._context.settings.survey_seconds)

    def cache_changed(self, cluster: str, paths: set[str] | None) -> None:
        """The cache says something else of some mounts, or of all."""
        self.datasets(cluster, paths)
        self._context.queue.add(self._context.cache_cluster_key(cluster))

    def agents_changed(self, cluster: str, paths: set[str] | None) -> None:
        """Agents say something else of some mounts, or of all."""
        self.datasets(cluster, paths, after=self._context.settings.progress_seconds / 4)

    def room_changed(self, cluster: str, paths: set[str]) -> None:
        """Room that frees itself is for those that have less than they ask for; where there is less, some must go."""
        self.datasets(cluster, paths | self._manager.lacking(cluster), after=ROOM_SECONDS)

    def _users(self, cluster: str, paths: set[str] | None) -> list[WorkKey]:
        """The Datasets of some mounts of a cluster, or of all."""
        stores = self._context.stores
        if paths is None:
            keys = (key for key, obj in stores.datasets.items() if names.cache_cluster_of(obj) == cluster)
            return [WorkKey(DATASETS, *key) for key in keys]
        dataset_keys: list[WorkKey] = []
        for path in paths:
            mount = self._mounts.get((cluster, path))
            users = mount_readers.users_of(stores=stores, cluster=cluster, path=path)
            dataset_keys += users if mount is None else mount.users.union(users)
        return dataset_keys
