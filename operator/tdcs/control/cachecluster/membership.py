"""Which nodes have a cache worker: as many as spec.replicas asks for, or where the jobs are. Reads the live views."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster
from tdcs.api.conditions import Finding
from tdcs.control.cachecluster.draining import is_leaving, node_of
from tdcs.control.context import Context
from tdcs.control.dataset.cached_data import CachedData
from tdcs.decide import job_followers, leaving_workers, worker_nodes
from tdcs.decide.cache.cache_quotas import within_quotas
from tdcs.decide.leaving_workers import ScaleInInput
from tdcs.decide.node_departure import may_cache
from tdcs.decide.place import placement_input
from tdcs.decide.place.slot_nodes import RESERVE_RATIO
from tdcs.model.cache_view import CacheView
from tdcs.model.kube_objects import Object
from tdcs.model.nearness import Place, level_of_zones, place_of, zone_of

LEDGER_PATIENCE = 60.0
"""Seconds after which who leaves is chosen though not every mounted Dataset has been looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The nodes that shall have a worker, and what is where, as far as a worker has to go for it. With `unmatched` no
    node matches the selector, and the workers stay where they are."""

    nodes: list[str]
    holdings: ScaleInInput
    idle_since: Mapping[str, str] = field(default_factory=dict)
    finding: Finding | None = None
    unmatched: bool = False


class Membership:
    """Chooses the nodes of every cache cluster.

    Args:
        data: what of its mounts is on which workers, what is needed of a cache cluster, and who reads it.
        clock: seconds that only grow.
    """

    def __init__(self, *, context: Context, data: CachedData, clock: Callable[[], float]) -> None:
        self._context = context
        self._data = data
        self._clock = clock
        self._unknown_since: dict[str, float] = {}
        self._incomplete_since: dict[str, float] = {}

    def members(self, cluster: CacheCluster, sets: list[Object], name: str, view: CacheView) -> Members:
        """The nodes that shall have a worker."""
        answering = {worker.name for worker in view.workers if worker.live}
        nodes = {
            name: node
            for (_, name), node in self._context.stores.nodes.items()
            if may_cache(node, answers=name in answering)
        }
        present = [node_of(child) for child in sets]
        # Nodes that go, and those that are gone, keep no worker, whatever the selector says.
        stays = not nodes.keys().isdisjoint(present)
        unmatched = stays and not worker_nodes.matching_nodes(spec=cluster.spec, nodes=nodes, present=present)
        return replace(
            self._chosen(cluster, sets, name, view, nodes=nodes, present=present), unmatched=unmatched
        )

    def _chosen(
        self,
        cluster: CacheCluster,
        sets: list[Object],
        name: str,
        view: CacheView,
        *,
        nodes: Mapping[str, Object],
        present: Sequence[str],
    ) -> Members:
        nothing = ScaleInInput(
            draining=frozenset(node_of(child) for child in sets if is_leaving(child)),
            zones=self._zones(nodes),
        )
        if cluster.spec.scaling.follow_jobs:
            return self._followed(cluster, sets, name, view, nodes=nodes, nothing=nothing)
        conditions = cluster.status.conditions if cluster.status is not None else ()
        off = (
            job_followers.off()
            if any(condition.type == names.FOLLOWS_JOBS for condition in conditions)
            else None
        )
        chosen = leaving_workers.choose_nodes(
            spec=cluster.spec, nodes=nodes, present=present, holdings=nothing
        )
        if set(present) <= set(chosen):
            self._incomplete_since.pop(name, None)
            return Members(nodes=chosen, holdings=nothing, finding=off)
        holdings = self._holdings(name, sets, zones=nothing.zones)
        chosen = leaving_workers.choose_nodes(
            spec=cluster.spec, nodes=nodes, present=present, holdings=holdings
        )
        return Members(nodes=chosen, holdings=holdings, finding=off)

    def _followed(
        self,
        cluster: CacheCluster,
        sets: list[Object],
        name: str,
        view: CacheView,
        *,
        nodes: Mapping[str, Object],
        nothing: ScaleInInput,
    ) -> Members:
        """The same for a cache that follows its jobs."""
        needs = self._data.needs(name)
        since = self._clock() if needs.complete else self._unknown_since.setdefault(name, self._clock())
        if needs.complete:
            self._unknown_since.pop(name, None)
        sizes = [worker.capacity_bytes for worker in view.workers if worker.live and worker.capacity_bytes]
        size = min(sizes, default=cluster.spec.storage.tiers[0].capacity_bytes)
        observed = job_followers.Seen(
            nodes=nodes,
            present=frozenset(node_of(child) for child in sets),
            readers=self._data.readers_on(name),
            idle_since=job_followers.idle_since_of(
                cluster.status.workers if cluster.status is not None else []
            ),
            needed_bytes=needs.bytes if needs.complete or self._clock() - since > LEDGER_PATIENCE else None,
            worker_bytes=int(size * (1 - RESERVE_RATIO)),
            now=self._context.now(),
        )
        holdings = nothing
        chosen = job_followers.choose(spec=cluster.spec, observed=observed, holdings=holdings)
        if job_followers.needs_holdings(chosen, observed):
            holdings = self._holdings(name, sets, zones=nothing.zones)
            if not (holdings.complete or holdings.overdue):
                observed = replace(observed, needed_bytes=None)
            chosen = job_followers.choose(spec=cluster.spec, observed=observed, holdings=holdings)
        else:
            self._incomplete_since.pop(name, None)
        return Members(
            nodes=list(chosen.nodes),
            holdings=holdings,
            idle_since=chosen.idle_since,
            finding=job_followers.follows(chosen, limits=cluster.spec.scaling),
        )

    def within_quotas(self, cluster: CacheCluster, name: str) -> Finding | None:
        """The condition WithinQuotas; None where there are no quotas and were none."""
        conditions = cluster.status.conditions if cluster.status is not None else ()
        if not cluster.spec.quotas and not any(
            condition.type == names.WITHIN_QUOTAS for condition in conditions
        ):
            return None
        needs = self._data.needs(name)
        knows_quotas = not needs.has_mounts or all(
            quota.name in needs.pinned for quota in cluster.spec.quotas
        )
        # What it says stands until all mounted Datasets are known, and a pass over them knew all quotas.
        if not needs.complete or not knows_quotas:
            return None
        over = {
            quota.name: size
            for quota in cluster.spec.quotas
            if (size := needs.pinned.get(quota.name, 0) - quota.limit_bytes) > 0
        }
        return within_quotas(cluster.spec.quotas, beyond=over)

    def wanted_bytes(self, cluster: CacheCluster, name: str) -> int:
        """For the status: what it says stands until all mounted Datasets are known."""
        needs = self._data.needs(name)
        return needs.bytes if needs.complete or cluster.status is None else cluster.status.wanted_bytes

    def _zones(self, nodes: Mapping[str, Object]) -> dict[str, Place]:
        keys = self._context.settings.topology_labels
        return {
            node: zone_of(place_of(obj["metadata"].get("labels"), keys), level=level_of_zones(keys))
            for node, obj in nodes.items()
        }

    def _holdings(self, name: str, sets: list[Object], *, zones: Mapping[str, Place]) -> ScaleInInput:
        stores, mounts = self._context.stores, self._data.ledgers(name)
        expected = placement_input.expected_paths(datasets=stores.datasets, cluster=name)
        complete = expected <= {mount.path for mount in mounts}
        since = self._clock() if complete else self._incomplete_since.setdefault(name, self._clock())
        if complete:
            self._incomplete_since.pop(name, None)
        return ScaleInInput(
            draining=frozenset(node_of(child) for child in sets if is_leaving(child)),
            busy=leaving_workers.busy_nodes(pods=stores.pods),
            mounts=mounts,
            complete=complete,
            overdue=self._clock() - since > LEDGER_PATIENCE,
            readers=leaving_workers.readers_of(mounts=mounts, jobs=stores.live_jobs()),
            zones=zones,
        )
