"""What the cache manager would grant with a job and without it: what would be brought, and what would leave. No I/O.

The grants are the operator's own (`tdcs.decide.cache.grants`), from what the statuses say. What only the cache itself
knows is not seen: sizes of single files (the bytes of a Dataset are taken as spread evenly), and disks that others
fill.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster
from tdcs.api.dataset import Dataset
from tdcs.control.context import Stores
from tdcs.decide.cache import wants
from tdcs.decide.cache.cache_quotas import payers, quota_bytes
from tdcs.decide.cache.dataset_demand import jobs_of, use_of
from tdcs.decide.cache.eviction_order import Policy
from tdcs.decide.cache.grants import GrantInput, Grants, MountDemand, grant
from tdcs.decide.cache.mount_standing import CacheUser, standing
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.copy_nodes import CacheNode
from tdcs.decide.place.data_location import copies_of
from tdcs.decide.place.slot_nodes import RESERVE_RATIO, Candidate
from tdcs.model import slots
from tdcs.model.kube_objects import Key
from tdcs.model.manifest_format import totals_of
from tdcs.model.nearness import level_of_zones, place_of, rack_of, zone_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What would leave the cache: Datasets of one source, and how many of their bytes that are there."""

    datasets: tuple[str, ...]
    bytes: int
    all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedData:
    """What a Dataset of the job would be granted: bytes on each node of each copy, by the copy's id."""

    copies: Mapping[str, Mapping[str, int]]

    @property
    def bytes(self) -> int:
        return sum(size for nodes in self.copies.values() for size in nodes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOutlook:
    """The cache with the job: what its Datasets are granted, by name, and what leaves for it."""

    granted: Mapping[str, GrantedData]
    leaving: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """Datasets of one source, which share a mount."""

    path: str
    datasets: Mapping[Key, Dataset]

    @property
    def held(self) -> dict[str, int]:
        bytes_on: dict[str, int] = {}
        for dataset in self.datasets.values():
            for copy in copies_of(dataset).values():
                for node, size in copy.node_bytes.items():
                    bytes_on[node] = max(bytes_on.get(node, 0), size)
        return bytes_on

    @property
    def size(self) -> int:
        return max(
            (dataset.status.total_bytes for dataset in self.datasets.values() if dataset.status), default=0
        )


def cache_outlook(
    *,
    cluster: str,
    own_keys: Sequence[Key],
    without: Stores,
    having: Stores,
    free_gpus: Mapping[str, int],
    policies: Mapping[str, Policy],
    topology_labels: Sequence[str],
    now: str,
) -> CacheOutlook | None:
    """The cache cluster of this name without the job and with it; None when it has no workers that are known.

    Args:
        topology_labels: labels that say where nodes are, the nearest level first.
    """
    obj = having.cache_cluster(cluster)
    try:
        parsed = CacheCluster.model_validate(obj) if obj is not None else None
    except ValidationError:
        parsed = None
    if parsed is None or parsed.status is None:
        return None
    capacities = {
        worker.node: worker.capacity_bytes for worker in parsed.status.workers if worker.state == "Ready"
    }
    if not capacities:
        return None
    mounts = _mounts(having, cluster)
    usable = {node: size - int(size * RESERVE_RATIO) for node, size in capacities.items()}

    def granted(stores: Stores, before: Grants | None) -> Grants:
        demands = tuple(
            _demand(
                mount,
                stores=stores,
                capacities=capacities,
                free_gpus=free_gpus,
                policies=policies,
                topology_labels=topology_labels,
                cluster=parsed,
                now=now,
            )
            for mount in mounts
        )
        quotas = quota_bytes(parsed.spec.quotas) if stores.namespaces else {}
        return grant(GrantInput(mounts=demands, usable=usable, quotas=quotas), before=before)

    before = granted(without, None)
    after = granted(having, before)
    return CacheOutlook(
        granted={
            key[1]: granted_data
            for key in own_keys
            for mount in mounts
            if key in mount.datasets and (granted_data := _granted(after, mount, key)) is not None
        },
        leaving=tuple(
            sorted(
                (leaving for mount in mounts if (leaving := _leaving(before, after, mount)) is not None),
                key=lambda leaving: (-leaving.bytes, leaving.datasets),
            )
        ),
    )


def _mounts(stores: Stores, cluster: str) -> list[_Mount]:
    datasets_by_path: dict[str, dict[Key, Dataset]] = {}
    for key, obj in sorted(stores.datasets.items()):
        path = str((obj.get("status") or {}).get("mountPath") or "")
        if not path or names.cache_cluster_of(obj) != cluster:
            continue
        try:
            datasets_by_path.setdefault(path, {})[key] = Dataset.model_validate(obj)
        except ValidationError:
            continue  # its own status says what is wrong
    return [_Mount(path=path, datasets=datasets) for path, datasets in datasets_by_path.items()]


def _demand(
    mount: _Mount,
    *,
    stores: Stores,
    capacities: Mapping[str, int],
    free_gpus: Mapping[str, int],
    policies: Mapping[str, Policy],
    topology_labels: Sequence[str],
    cluster: CacheCluster,
    now: str,
) -> MountDemand:
    """What a mount asks for, as the operator would see it."""
    cache_users, want_list, before = [], list[Want](), dict[str, dict[str, frozenset[str]]]()
    for (namespace, name), dataset in mount.datasets.items():
        jobs = jobs_of(namespace=namespace, dataset=name, jobs=stores.training_jobs)
        waiting_since = [
            str(stores.training_jobs[job]["metadata"].get("creationTimestamp", "")) for job in jobs.waiting
        ]
        obj = stores.datasets[namespace, name]
        cache_users.append(
            CacheUser(
                dataset=dataset,
                created=str(obj["metadata"].get("creationTimestamp") or now),
                use=use_of(
                    status=dataset.status,
                    jobs=jobs,
                    mounted=stores.usage.is_mounted((namespace, name)),
                    now=now,
                ),
                next_use=float(len(jobs.active)) if jobs.waiting else None,
                requested=max(waiting_since, default=None),
            )
        )
        mine = wants.of_dataset(namespace=namespace, name=name, dataset=dataset, now=now)
        if mine is None:
            continue
        want_list.append(mine)
        copies = {id_: copy for id_, copy in copies_of(dataset).items() if copy.worth and not copy.brought}
        before[mine.key] = {
            id_: frozenset(copy.worth) for id_, copy in copies.items() if not id_.startswith(names.CLONE_COPY)
        }
        for id_, copy in copies.items():
            if id_.startswith(names.CLONE_COPY):
                clone = wants.of_clone(mine, namespace=namespace, name=name, copy=id_)
                want_list.append(clone)
                before[clone.key] = {id_: frozenset(copy.worth)}
        for kept_data in dataset.status.kept if dataset.status is not None else ():
            want_list.append(
                wants.of_kept(namespace=namespace, name=name, dataset=dataset, kept_preload=kept_data)
            )
    stands = standing(cache_users, size=mount.size, policies=policies, now=now)
    held = mount.held
    return MountDemand(
        path=mount.path,
        manifest=mount.path,
        wants=tuple(want_list),
        totals={want.paths: totals_of(_size(mount, want)) for want in want_list},
        candidates=tuple(
            _candidate(
                node,
                capacity,
                held=held.get(node, 0),
                free_gpus=max(free_gpus.get(node, 0), 0),
                labels=(stores.nodes.get(("", node), {}).get("metadata") or {}).get("labels") or {},
                topology_labels=topology_labels,
            )
            for node, capacity in sorted(capacities.items())
        ),
        tier=stands.tier,
        value=stands.value,
        held_before=before,
        payers=payers(want_list, quotas=cluster.spec.quotas, namespaces=stores.namespaces)
        if stores.namespaces
        else {},
        filled={} if want_list else held,
    )


def _candidate(
    node: str,
    capacity: int,
    *,
    held: int,
    free_gpus: int,
    labels: Mapping[str, str],
    topology_labels: Sequence[str],
) -> Candidate:
    place = place_of(labels, topology_labels)
    zone = zone_of(place, level=level_of_zones(topology_labels))
    cache_node = CacheNode(
        name=node,
        capacity_bytes=capacity,
        free_bytes=0,  # what it may take there is for the grants to say
        held_bytes=held,
        free_gpus=free_gpus,
        zone=zone,
        rack=rack_of(place, zone=zone),
    )
    return Candidate(node=cache_node, labels=labels)


def _size(mount: _Mount, want: Want) -> int:
    """Bytes of what is wanted of a mount. How large single folders are is not known here: at most as large as what
    their Dataset asks to be cached of them."""
    if not want.paths:
        return mount.size
    wanted_bytes = [
        dataset.status.wanted_bytes
        for dataset in mount.datasets.values()
        if dataset.status and dataset.spec.preload.paths
    ]
    return min(max(wanted_bytes, default=mount.size), mount.size)


def _granted(grants: Grants, mount: _Mount, key: Key) -> GrantedData | None:
    own_key = wants.dataset_key(namespace=key[0], name=key[1])
    grant = grants.mounts.get(mount.path)
    mine = (
        [
            placement
            for placement in grant.placements
            if own_key in (placement.want.key, placement.want.alongside)
        ]
        if grant
        else []
    )
    if not mine:
        return None
    return GrantedData(
        copies={
            copy.id: {node: slots.bytes_in(held, placement.totals.sizes) for node, held in copy.nodes.items()}
            for placement in mine
            for copy in placement.copies
        }
    )


def _leaving(before: Grants, after: Grants, mount: _Mount) -> Leaving | None:
    """What of a mount is there, may stay without the job, and may not with it."""
    held = mount.held
    stays, stayed = after.mounts[mount.path].node_bytes, before.mounts[mount.path].node_bytes
    lost = sum(max(min(size, stayed.get(node, 0)) - stays.get(node, 0), 0) for node, size in held.items())
    # Spread evenly over the slots, sizes are right to a slot or so.
    if lost <= 2 * max(mount.size // slots.SLOTS, 1):
        return None
    return Leaving(
        datasets=tuple("/".join(key) for key in mount.datasets),
        bytes=lost,
        all=not any(stays.get(node, 0) for node in held),
    )
