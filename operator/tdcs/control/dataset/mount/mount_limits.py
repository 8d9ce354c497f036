"""How much a mount may take next to others: the size of its source, quotas, its store's bandwidth."""

import math
from collections.abc import Collection, Mapping, Sequence

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.quantities import to_bytes
from tdcs.api.sharing import CacheQuota
from tdcs.control.dataset.bandwidth import store_of, worth
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.decide.cache.cache_quotas import counting, quota_bytes
from tdcs.decide.cache.load_order import Load
from tdcs.decide.cache.mount_standing import CacheUser
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.source_limits import listing_limit
from tdcs.model.claim_source import NAMESPACE
from tdcs.model.listing_limit import ListingLimit, SourcesSize


def size_limit(world: World, mount: Mount, spec: CacheClusterSpec, users: Sequence[Reader]) -> ListingLimit:
    """How large the source may be, next to the other sources of its cache and of its namespaces."""
    namespaces: list[SourcesSize] = []
    if spec.limits.files_per_namespace is not None or spec.limits.bytes_per_namespace is not None:
        paths = mount_readers.paths_by_namespace(stores=world.context.stores, cluster=mount.cluster)
        user_namespaces = sorted({user.key.namespace for user in users})
        namespaces = [world.others_of(mount, paths=paths.get(name, ())) for name in user_namespaces]
    return listing_limit(
        spec,
        cluster=mount.cluster,
        others=world.others_of(mount).files,
        namespaces=namespaces,
    )


def quotas_left(world: World, mount: Mount, quotas: Sequence[CacheQuota]) -> dict[str, int]:
    """What each quota allows, less what Datasets were granted of which this process has not seen what they ask for:
    after a restart the first one to be looked at would else take all of it."""
    stores, bytes_left = world.context.stores, quota_bytes(quotas)
    decided_paths = {mount.path, *world.manager.paths(mount.cluster)} if bytes_left else set[str]()
    for (namespace, _), obj in stores.datasets.items() if bytes_left else ():
        status = obj.get("status") or {}
        granted = int((status.get("grant") or {}).get("bytes") or 0)
        if (
            not granted
            or status.get("mountPath") in decided_paths
            or names.cache_cluster_of(obj) != mount.cluster
        ):
            continue
        for quota in counting(namespace, quotas=quotas, namespaces=stores.namespaces):
            bytes_left[quota] -= granted
    return bytes_left


def source_rate(
    world: World,
    mount: Mount,
    users: Sequence[Reader],
    *,
    placements: Sequence[WantPlacement],
    uses: Collection[CacheUser],
    missing: float,
    rate: float,
) -> int | None:
    """The mount's share of the bandwidth of its store, in bytes a second; None for no limit.

    Args:
        missing: bytes that its loads have still to bring.
        rate: bytes a second that it reads from the store now.
    """
    loading = [placement for placement in placements if placement.want.load]
    waiting = sum(len(user.use.jobs.waiting) for user in uses)
    reading = sum(len(user.use.jobs.active) for user in uses)
    load_limits = [placement.want.bandwidth for placement in loading if placement.wanted_bytes]
    limits = [limit for limit in load_limits if limit is not None]
    return world.bandwidth.share(
        place=mount.place,
        store=store_of(users[0].dataset.spec.source, namespace=_namespace(mount, users)),
        declared=_declared(users),
        load=Load(
            name="/".join(mount.place),
            missing_bytes=missing,
            worth=worth(waiting=waiting, reading=reading, missing=missing),
            waiting_jobs=waiting,
            # What its own limit keeps it from reading is for the others.
            limit=float(sum(limits)) if load_limits and len(limits) == len(load_limits) else math.inf,
        ),
        rate=rate,
    )


def _namespace(mount: Mount, users: Sequence[Reader]) -> str:
    """The namespace of a claim, which may be another one's source."""
    source = mount.mounting.source
    return source.options.get(NAMESPACE, "") if source is not None else users[0].key.namespace


def _declared(users: Sequence[Reader]) -> Mapping[str, int | None]:
    """The least bandwidth that Datasets of each namespace name for the source; None where none of them does."""
    declared: dict[str, int | None] = {user.key.namespace: None for user in users}
    for user in users:
        if (text := user.dataset.spec.source.bandwidth) is not None:
            least = declared[user.key.namespace]
            declared[user.key.namespace] = min(to_bytes(text), least) if least is not None else to_bytes(text)
    return declared
