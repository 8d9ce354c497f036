"""What a pass over a mount is asked for and looks at, and whether there is anything to do."""

from collections.abc import Sequence
from dataclasses import dataclass

from tdcs.api.source_uri import is_claim
from tdcs.control.dataset import cache_users
from tdcs.control.dataset.mount import mount_readers, read_nodes
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import MountReport
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.decide.cache import mount_identity
from tdcs.decide.cache.mount_keys import KeysAnswer
from tdcs.decide.problem import Problem
from tdcs.model.cache_engine import Source

UNHEARD_SECONDS = 30.0
"""So long after its start the operator lets nothing be read that an agent may have and has not reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """What of a Dataset's pass concerns its mount.

    Attributes:
        me: the Dataset.
        source: its source with its keys; None when these cannot be read.
        claimed: whether it has a volume that leads to the mount.
        check_due: whether the source is to be listed for changes.
        paused: whether nothing of the source is to be read meanwhile.
        answer: what the source says of these keys.
        refused: that it refuses them, for people; None when it was not seen to.
    """

    me: Reader
    source: Source | None
    claimed: bool
    check_due: bool
    answer: KeysAnswer
    refused: Problem | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a pass over a mount looks at, as far as it comes from outside. When it is the same as for a mount at
    rest, the pass has nothing to do: a thousand mounts at rest cost next to nothing.

    Attributes:
        view: how often the cache has said something else.
        nodes: how often a node came or went, or was labelled otherwise.
        objects: versions of the Datasets, their Preloads and the CacheCluster.
        source: what tells the user's source and keys from others, and what the source says of them.
        use: who uses the Datasets and where, and how their namespaces are labelled.
        changes: how often the mount was granted something else, or another share of its store's bandwidth, by what
            other mounts need; or something came to its end in the background.
    """

    view: int
    nodes: int
    objects: tuple[object, ...]
    source: object
    use: object
    changes: int

    @classmethod
    def of(
        cls, world: World, mount: Mount, request: MountRequest, users: Sequence[Reader]
    ) -> "Snapshot | None":
        """What there is to see now; None when the source is to be listed or something is under way, or awaited."""
        stores, view = world.context.stores, world.observer.view(mount.cluster)
        if request.check_due or view.away or view.failure is not None or mount.manifests.busy:
            return None
        if world.clock() - view.since < UNHEARD_SECONDS:
            return None
        objects = [user.obj for user in users]
        objects += [
            stores.preloads[key.namespace, key.name]
            for user in users
            for key in mount_readers.preload_keys(
                stores=stores, namespace=user.key.namespace, dataset=user.key.name
            )
        ]
        cluster = stores.cache_cluster(mount.cluster)
        objects += [cluster] if cluster is not None else []
        return cls(
            view=view.generation,
            nodes=world.node_directory.labelled(nodes=stores.nodes, usage=stores.usage),
            objects=tuple(obj["metadata"].get("resourceVersion") or id(obj) for obj in objects),
            source=(mount_identity.mark(request.source), request.answer)
            if request.source is not None
            else None,
            use=_use(world, mount, users),
            changes=mount.changes,
        )


def _use(world: World, mount: Mount, users: Sequence[Reader]) -> object:
    """Who uses the Datasets of a mount and where, and the labels of their namespaces, which quotas select."""
    uses = cache_users.of_mount(context=world.context, users=users, queue=world.jobs.order())
    namespaces = world.context.stores.namespaces
    return (
        [read_nodes.nodes_read_on(stores=world.context.stores, users=[user]) for user in users]
        if (mount.report is not None and mount.report.read_on) or _reads_by_pod(mount)
        else None,
        [read_nodes.nodes_of_jobs(stores=world.context.stores, user=user) for user in users],
        [
            (key, cache_user.use, cache_user.next_use, cache_user.requested, cache_user.preloading)
            for key, cache_user in uses.items()
        ],
        [
            ((namespaces.get(("", user.key.namespace)) or {}).get("metadata") or {}).get("labels")
            for user in users
        ],
    )


def _reads_by_pod(mount: Mount) -> bool:
    """Whether its source is a claim, which is served as long as somebody reads it."""
    source = mount.mounting.source
    return source is not None and is_claim(source.uri)


def rests(world: World, mount: Mount, report: MountReport) -> bool:
    """Whether a mount is as it shall be, and no time that passes changes that."""
    return (
        report.is_mounted
        and report.decided
        and report.settled
        and not report.busy
        and report.look_at is None
        and not report.failures.count
        and report.problem is None
        and report.trouble is None
        and (report.decision is not None and report.decision.rests)
        and mount.mounting.source is not None
        and all(placement.want.load for placement in report.placements.values())
        and all(not progress.missing_bytes for progress in report.progress.values())
        and all(
            node in report.current for placement in report.placements.values() for node in placement.nodes
        )
    )
