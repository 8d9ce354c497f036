"""Manifests on the operator's disk that nothing refers to any more."""

import asyncio
import logging
from typing import Final

from tdcs.api import names
from tdcs.control.dataset.mount.all_mounts import World

_log: Final = logging.getLogger(__name__)

UNUSED_SECONDS: Final = 600.0
"""A manifest that is so young may be of a listing that has only just ended."""


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
    states += [one.state for view in views.values() for one in view.away.values()]
    listed = [mount.manifests.view().listed for mount in world]
    digests = {
        *(digest for view in views.values() for digest in view.versions.values()),
        *(mount.manifest for state in states for mount in state.mounts.values()),
        *(one.digest for one in listed if one is not None),
    }
    silent = {cluster for cluster, view in views.items() if not view.answered or view.failure is not None}
    mounts = {
        str(path)
        for obj in stores.datasets.values()
        if names.cache_cluster_of(obj) in silent and (path := (obj.get("status") or {}).get("mountPath"))
    }
    return digests, mounts
