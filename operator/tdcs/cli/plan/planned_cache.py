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
        found: dict[str, int] = {}
        for dataset in self.datasets.values():
            for copy in copies_of(dataset).values():
                for node, size in copy.node_bytes.items():
                    found[node] = max(found.get(node, 0), size)
        return found

    @property
    def size(self) -> int:
        return max((one.status.total_bytes for one in self.datasets.values() if one.status), default=0)


def cache_outlook(
    *,
    cluster: str,
    own: Sequence[Key],
    without: Stores,
    having: Stores,
    free_gpus: Mapping[str, int],
    policies: Mapping[str, Policy],
    now: str,
) -> CacheOutlook | None:
    """The cache cluster of this name without the job and with it; None when it has no workers that are known."""
    obj = having.cache_cluster(cluster)
    try:
        parsed = CacheCluster.model_validate(obj) if obj is not None else None
    except ValidationError:
        parsed = None
    if parsed is None or parsed.status is None:
        return None
    capacities = {one.node: one.capacity_bytes for one in parsed.status.workers if one.state == "Ready"}
    if not capacities:
        return None
    mounts = _mounts(having, cluster)
    usable = {node: size - int(size * RESERVE_RATIO) for node, size in capacities.items()}

    def granted(stores: Stores, before: Grants | None) -> Grants:
        demands = tuple(
            _demand(
                one,
                stores=stores,
                capacities=capacities,
                free_gpus=free_gpus,
                policies=policies,
                cluster=parsed,
                now=now,
            )
            for one in mounts
        )
        quotas = quota_bytes(parsed.spec.quotas) if stores.namespaces else {}
        return grant(GrantInput(mounts=demands, usable=usable, quotas=quotas), before=before)

    before = granted(without, None)
    after = granted(having, before)
    return CacheOutlook(
        granted={
            key[1]: found
            for key in own
            for one in mounts
            if key in one.datasets and (found := _granted(after, one, key)) is not None
        },
        leaving=tuple(
            sorted(
                (left for one in mounts if (left := _leaving(before, after, one)) is not None),
                key=lambda left: (-left.bytes, left.datasets),
            )
        ),
    )


def _mounts(stores: Stores, cluster: str) -> list[_Mount]:
    found: dict[str, dict[Key, Dataset]] = {}
    for key, obj in sorted(stores.datasets.items()):
        path = str((obj.get("status") or {}).get("mountPath") or "")
        if not path or names.cache_cluster_of(obj) != cluster:
            continue
        try:
            found.setdefault(path, {})[key] = Dataset.model_validate(obj)
        except ValidationError:
            continue  # its own status says what is wrong
    return [_Mount(path=path, datasets=datasets) for path, datasets in found.items()]


def _demand(
    mount: _Mount,
    *,
    stores: Stores,
    capacities: Mapping[str, int],
    free_gpus: Mapping[str, int],
    policies: Mapping[str, Policy],
    cluster: CacheCluster,
    now: str,
) -> MountDemand:
    """What a mount asks for, as the operator would see it."""
    cache_users, wanted, before = [], list[Want](), dict[str, dict[str, frozenset[str]]]()
    for (namespace, name), dataset in mount.datasets.items():
        jobs = jobs_of(namespace=namespace, dataset=name, jobs=stores.training_jobs)
        asked = [
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
                asked=max(asked, default=None),
            )
        )
        mine = wants.of_dataset(namespace=namespace, name=name, dataset=dataset, now=now)
        if mine is None:
            continue
        wanted.append(mine)
        copies = {id_: one for id_, one in copies_of(dataset).items() if one.worth and not one.brought}
        before[mine.key] = {
            id_: frozenset(one.worth) for id_, one in copies.items() if not id_.startswith(names.CLONE_COPY)
        }
        for id_, one in copies.items():
            if id_.startswith(names.CLONE_COPY):
                clone = wants.of_clone(mine, namespace=namespace, name=name, copy=id_)
                wanted.append(clone)
                before[clone.key] = {id_: frozenset(one.worth)}
        for kept in dataset.status.kept if dataset.status is not None else ():
            wanted.append(wants.of_kept(namespace=namespace, name=name, dataset=dataset, kept=kept))
    stands = standing(cache_users, size=mount.size, policies=policies, now=now)
    held = mount.held
    return MountDemand(
        path=mount.path,
        manifest=mount.path,
        wants=tuple(wanted),
        totals={want.paths: totals_of(_size(mount, want)) for want in wanted},
        candidates=tuple(
            Candidate(
                node=CacheNode(
                    name=node,
                    capacity_bytes=capacity,
                    free_bytes=0,  # what it may take there is for the grants to say
                    held_bytes=held.get(node, 0),
                    free_gpus=max(free_gpus.get(node, 0), 0),
                ),
                labels=(stores.nodes.get(("", node), {}).get("metadata") or {}).get("labels") or {},
            )
            for node, capacity in sorted(capacities.items())
        ),
        tier=stands.tier,
        value=stands.value,
        held_before=before,
        payers=payers(wanted, quotas=cluster.spec.quotas, namespaces=stores.namespaces)
        if stores.namespaces
        else {},
        filled={} if wanted else held,
    )


def _size(mount: _Mount, want: Want) -> int:
    """Bytes of what is wanted of a mount. How large single folders are is not known here: at most as large as what
    their Dataset asks to be cached of them."""
    if not want.paths:
        return mount.size
    asked = [
        one.status.wanted_bytes for one in mount.datasets.values() if one.status and one.spec.preload.paths
    ]
    return min(max(asked, default=mount.size), mount.size)


def _granted(grants: Grants, mount: _Mount, key: Key) -> GrantedData | None:
    own = wants.dataset_key(namespace=key[0], name=key[1])
    found = grants.mounts.get(mount.path)
    mine = [one for one in found.placements if own in (one.want.key, one.want.beside)] if found else []
    if not mine:
        return None
    return GrantedData(
        copies={
            copy.id: {node: slots.bytes_in(held, one.totals.sizes) for node, held in copy.nodes.items()}
            for one in mine
            for copy in one.copies
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
