"""The cluster that is simulated: nodes, links, caches and the store."""

from dataclasses import dataclass

from tdcs.decide.place.near_nodes import NO_PLACES, NodePlaces
from tdcs.model.nearness import ZONE_LABEL, Place
from tdcs_labs.store import StoreLimits

GBIT = 1e9 / 8

#: A store with 10 Gbit/s and 10,000 requests per second: the limits of an account at Alibaba's OSS.
DEFAULT_STORE = StoreLimits(bytes_per_second=10 * GBIT, requests_per_second=10_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """A homogeneous GPU cluster next to an object store.

    Attributes:
        nodes: number of nodes.
        gpus_per_node: GPUs of each.
        nic_rate: bytes per second of a node's link, each way.
        cache_bytes: what the cache of a node holds.
        page_cache_bytes: memory of a node that the kernel uses as page cache: 336 GB (the V100 nodes of
            the published runs) less 17 GB for each of 8 GPUs' processes.
        store: limits of the store, over the whole cluster.
        fuse_rate: bytes per second that the FUSE client of a node delivers (1.5 GB/s on an
            8-V100 node, Alluxio issue 10688).
        native_rate: bytes per second that a node reads from its own cache disk (NVMe).
        jobs_per_copy: how many jobs may read a copy of a dataset at once (`spec.access.maxConcurrentJobs`), in the
            scheme `tdcs`; 0 for no limit.
        clones: whether a further copy is made for jobs beyond that (`onLimit: Clone`); else they wait.
        clone_idle_seconds: how long such a copy stays that no job needs.
        auto_placement: whether owners leave it to the operator how many nodes hold a dataset (`spec.placement.mode`
            Auto without `nodeCount`), in the scheme `tdcs`; else each says so many that it takes a bounded share of a
            node's cache.
        grows: whether, with that, a copy grows onto the nodes of jobs that its own have no room for.
        known_ends: whether the queue knows when running jobs end (`activeDeadlineSeconds`, or what jobs of the same
            template ran), in the scheme `tdcs`: a job may wait then for a place at its data.
        fair_share: whether tenants take turns by their shares of the GPUs; else jobs come by priority and age.
        preemption: whether jobs take the place of running ones of lower priority (`operator.preemption`).
        zones: zones of the nodes, as many in each. What crosses them is counted and takes no longer.
        knows_zones: whether nodes have labels that say so.
    """

    nodes: int = 64
    gpus_per_node: int = 8
    nic_rate: float = 25 * GBIT
    cache_bytes: float = 300e9
    page_cache_bytes: float = 200e9
    store: StoreLimits = DEFAULT_STORE
    fuse_rate: float = 1.5e9
    native_rate: float = 3.0e9
    jobs_per_copy: int = 0
    clones: bool = False
    clone_idle_seconds: float = 600.0
    auto_placement: bool = False
    grows: bool = False
    known_ends: bool = False
    fair_share: bool = False
    preemption: bool = False
    zones: int = 1
    knows_zones: bool = True

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.nodes * self.gpus_per_node

    def node_names(self) -> list[str]:
        """The names of the nodes."""
        return [f"node-{i:04}" for i in range(self.nodes)]

    def zone_by_node(self) -> dict[str, Place]:
        """The zone of each node."""
        return {
            name: (f"zone-{number * self.zones // self.nodes}",)
            for number, name in enumerate(self.node_names())
        }

    def places(self) -> NodePlaces:
        """Where nodes are, as their labels say."""
        has_zones = self.zones > 1 and self.knows_zones
        return NodePlaces(keys=(ZONE_LABEL,), of=self.zone_by_node()) if has_zones else NO_PLACES


def pods_of(*, gpus: int, gpus_per_node: int) -> tuple[int, ...]:
    """GPUs of each pod of a job: one pod when a node is enough, else the fewest pods, as even as can be."""
    count = -(-gpus // gpus_per_node)
    return tuple(gpus // count + (1 if index < gpus % count else 0) for index in range(count))
