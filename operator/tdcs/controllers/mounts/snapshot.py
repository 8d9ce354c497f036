"""What a pass over a mount is given and looks at, and whether there is anything to do."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.controllers.cache_observer import CacheObserver
from tdcs.controllers.cachemanager import claimants
from tdcs.controllers.cachemanager.policies import installed_policies
from tdcs.controllers.caches import Caches
from tdcs.controllers.context import Context
from tdcs.controllers.mounts import identity, placement, readers
from tdcs.controllers.mounts.mount import Mount, Mounts
from tdcs.controllers.mounts.placement import CacheNodes
from tdcs.controllers.mounts.readers import Reader
from tdcs.controllers.mounts.report import MountReport
from tdcs.controllers.nodes import NodeDirectory
from tdcs.engine.protocol import Source
from tdcs.kube.objects import Key
from tdcs.policy.eviction import Policy

UNHEARD_SECONDS = 30.0
"""So long after its start the operator lets nothing be read that an agent may have and has not reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What passes over mounts work with."""

    context: Context
    caches: Caches
    observer: CacheObserver
    mounts: Mounts
    clock: Callable[[], float] = time.monotonic
    queue_order: Callable[[], Sequence[Key]] = lambda: ()
    policies: Mapping[str, Policy] = field(default_factory=installed_policies)
    nodes: NodeDirectory = field(default_factory=NodeDirectory)
    cache_nodes: dict[str, tuple[object, CacheNodes]] = field(default_factory=dict)
    cluster_specs: dict[str, tuple[object, CacheClusterSpec]] = field(default_factory=dict)

    def spec_of(self, cluster: str) -> CacheClusterSpec:
        """The spec of a cache cluster, read anew when its object has changed; the default one while it cannot be read,
        which its own status says."""
        obj = self.context.stores.cache_cluster(cluster)
        known = self.cluster_specs.get(cluster)
        if known is not None and known[0] is obj:
            return known[1]
        try:
            # Not the whole object: the status of hundreds of workers is no matter of a pass over a mount.
            spec = CacheClusterSpec.model_validate((obj or {}).get("spec") or {})
        except ValidationError:
            spec = CacheClusterSpec()
        self.cluster_specs[cluster] = (obj, spec)
        return spec

    def nodes_of(self, cluster: str) -> CacheNodes:
        """The nodes of a cache cluster, made anew when something of them has changed."""
        stores, view = self.context.stores, self.observer.view(cluster)
        obj = stores.cache_cluster(cluster)
        nodes = self.nodes.of(nodes=stores.nodes, usage=stores.usage)
        known = self.cache_nodes.get(cluster)
        if known is not None and known[0] is obj and known[1].view is view and known[1].nodes is nodes:
            return known[1]
        before = known[1] if known is not None else None
        found = placement.cache_nodes(view=view, nodes=nodes, cluster=obj, before=before)
        self.cache_nodes[cluster] = (obj, found)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """What of a Dataset's pass concerns its mount.

    Attributes:
        me: the Dataset.
        source: its source with its keys; None when these cannot be read.
        claimed: whether it has a volume that leads to the mount.
        check_due: whether the source is to be listed for changes.
        paused: whether nothing of the source is to be read meanwhile.
        answers: the value with which each user of the mount asks for that.
    """

    me: Reader
    source: Source | None
    claimed: bool
    check_due: bool
    answers: Mapping[object, str | None]
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a pass over a mount looks at, as far as it comes from outside. When it is the same as for a mount at
    rest, the pass has nothing to do: a thousand mounts at rest cost next to nothing.

    Attributes:
        view: how often the cache has said something else.
        nodes: how often a node came or went, or was labelled otherwise.
        objects: versions of the Datasets, their Preloads and the CacheCluster.
        source: what tells the user's source and keys from others.
        use: who uses the Datasets and where, and how their namespaces are labelled.
        granted: how often the mount was granted something else.
        shared: how often it got another share of its store's bandwidth by what other mounts lack.
    """

    view: int
    nodes: int
    objects: tuple[object, ...]
    source: object
    use: object
    granted: int
    shared: int

    @classmethod
    def of(
        cls, world: World, mount: Mount, asked: MountRequest, users: Sequence[Reader]
    ) -> "Snapshot | None":
        """What there is to see now; None when the source is to be listed or something is under way."""
        stores, view = world.context.stores, world.observer.view(mount.cluster)
        if asked.check_due or view.away or view.failure is not None or mount.manifests.busy:
            return None
        objects = [user.obj for user in users]
        objects += [
            stores.preloads[key.namespace, key.name]
            for user in users
            for key in readers.preload_keys(
                stores=stores, namespace=user.key.namespace, dataset=user.key.name
            )
        ]
        cluster = stores.cache_cluster(mount.cluster)
        objects += [cluster] if cluster is not None else []
        return cls(
            view=view.generation,
            nodes=world.nodes.labelled(nodes=stores.nodes, usage=stores.usage),
            objects=tuple(one["metadata"].get("resourceVersion") or id(one) for one in objects),
            source=identity.mark(asked.source) if asked.source is not None else None,
            use=_use(world, mount, users),
            granted=world.mounts.manager.changes(cluster=mount.cluster, path=mount.path),
            shared=world.mounts.bandwidth.changes(mount.place),
        )


def _use(world: World, mount: Mount, users: Sequence[Reader]) -> object:
    """Who uses the Datasets of a mount and where, and the labels of their namespaces, which quotas select."""
    claims = claimants.of_mount(context=world.context, users=users, queue=world.queue_order())
    namespaces = world.context.stores.namespaces
    return (
        readers.nodes_read_on(stores=world.context.stores, users=users)
        if mount.report is not None and mount.report.read_on is not None
        else None,
        [(key, one.use, one.next_use, one.asked, one.preloading) for key, one in claims.items()],
        [
            ((namespaces.get(("", user.key.namespace)) or {}).get("metadata") or {}).get("labels")
            for user in users
        ],
    )


def rests(world: World, mount: Mount, report: MountReport) -> bool:
    """Whether a mount is as it shall be, and no time that passes changes that."""
    return (
        report.there
        and report.decided
        and report.settled
        and not report.busy
        and report.look_at is None
        and not report.failures.count
        and report.problem is None
        and report.trouble is None
        and (report.decision is not None and report.decision.rests)
        and mount.mounting.source is not None
        and all(one.want.load for one in report.placements.values())
        and all(not one.missing_bytes for one in report.progress.values())
        and all(node in report.current for one in report.placements.values() for node in one.nodes)
        and world.clock() - world.observer.view(mount.cluster).since >= UNHEARD_SECONDS
    )
