"""The cache of the scheme `tdcs`: what it holds on which node, granted as the operator grants it.

Every dataset of the trace is a Dataset as its owner would apply it with the first job that reads it. How it stands
among the others (`planning.standing`), what it is granted (`planning.grants`) and where that lies
(`planning.placement`) are the operator's own functions, asked with what the operator would see: sizes, the jobs that
read a dataset and those that wait, the nodes, and what was granted before. How long jobs run and how fast they read is
not among it.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from tdcs.api.dataset import Dataset as DatasetObject
from tdcs.planning.grants import GrantInput, Grants, MountDemand, MountGrant, grant
from tdcs.planning.placement import RESERVE_RATIO, Candidate
from tdcs.planning.standing import Claimant, DatasetJobs, DatasetUse, standing
from tdcs.planning.wants import dataset_key, of_dataset
from tdcs.policy.eviction import lru
from tdcs.policy.placement import CacheNode
from tdcs.simulate.cluster import Cluster
from tdcs.simulate.job import SimJob
from tdcs.simulate.scenario import Scenario
from tdcs.simulate.schemes.base import Scheme
from tdcs.simulate.schemes.ledger import Cached, totals_of
from tdcs.simulate.workload import Dataset

PLAN_INTERVAL = 300.0
"""Seconds between two grants while something is wanted that found no room. The operator needs seconds."""

LARGEST_SHARE = 1 / 32
"""Of a node's cache, what its owner lets one Dataset take (`spec.placement.nodeCount`). A small dataset on few nodes is
read over their links alone: with 1 / 8 a burst of 400 GPUs on ImageNet waited for four of them."""

NAMESPACE = "n"
COPY = "0"
START = datetime(2017, 1, 1, tzinfo=UTC)
POLICIES = {"LRU": lru}


class CachePlan(Scheme):
    """The state of the cache, and the grants that change it."""

    def __init__(self, *, scenario: Scenario, cluster: Cluster) -> None:
        super().__init__(scenario=scenario, cluster=cluster)
        self.cached: dict[str, Cached] = {}
        self.loading: dict[str, Cached] = {}
        self._grants: Grants | None = None
        self._settled = 0.0
        self._plan_at = math.inf
        self._changed: set[str] = set()

    @property
    def room(self) -> dict[str, float]:
        """Bytes of each node's cache that no dataset was granted."""
        free = dict.fromkeys(self.scenario.node_names(), self.scenario.cache_bytes)
        for cached in self.cached.values():
            for node, held in cached.nodes.items():
                free[node] -= held
        return free

    def add(self, dataset: Dataset, *, cost: float, now: float) -> Cached:
        """A Dataset is applied."""
        obj = DatasetObject.model_validate({"spec": spec_of(dataset, scenario=self.scenario)})
        made = Cached(
            dataset=dataset,
            cost=cost,
            obj=obj,
            created=time_at(now),
            totals=totals_of(int(dataset.size_bytes)),
        )
        self.cached[dataset.name] = made
        self._plan_at = now
        return made

    def demands(self, *, now: float) -> tuple[MountDemand, ...]:
        """What every Dataset asks for."""
        return tuple(self._demand(cached, now=now) for cached in self.cached.values())

    def _plan_soon(self, now: float) -> None:
        self._plan_at = min(self._plan_at, max(now, self._settled) + PLAN_INTERVAL)

    def _plan(self, *, now: float) -> None:
        """Grant every Dataset its part of the cache, and begin to load what is new."""
        self._plan_at = math.inf
        usable = dict.fromkeys(self.scenario.node_names(), usable_bytes(self.scenario))
        inputs = GrantInput(mounts=self.demands(now=now), usable=usable)
        grants = self._grants = grant(inputs, before=self._grants)
        short = False
        for name, found in grants.mounts.items():
            cached = self.cached[name]
            self._take(cached, found)
            needed = cached.waiting > 0 or name in self.cluster.readers
            short = short or (needed and cached.planned < cached.totals.block_bytes)
        if short:
            self._plan_soon(now)

    def _take(self, cached: Cached, found: MountGrant) -> None:
        """Hold what was granted: what more there is now is loaded, what is less has left."""
        nodes = {node: float(held) for node, held in found.node_bytes.items() if held}
        if nodes == cached.nodes:
            return
        name, before = cached.dataset.name, cached.planned
        cached.nodes = nodes
        cached.scores = None
        if cached.planned < before:
            self.evictions += 1
            cached.filled = min(cached.filled, cached.planned)
        if cached.planned - cached.filled > 1.0:
            self.loading[name] = cached
        else:
            cached.filled = cached.planned
            cached.rate = 0.0
            self.loading.pop(name, None)
        self._changed.add(name)

    def _demand(self, cached: Cached, *, now: float) -> MountDemand:
        name = cached.dataset.name
        readers = len(self.cluster.readers.get(name, ()))
        claimant = Claimant(
            dataset=cached.obj,
            created=cached.created,
            use=DatasetUse(
                jobs=DatasetJobs(active=_jobs(readers), waiting=_jobs(cached.waiting)),
                mounted=readers > 0,
                last_used=cached.last_used,
            ),
            asked=cached.asked if cached.waiting else None,
        )
        time = time_at(now)
        stands = standing([claimant], size=cached.totals.block_bytes, policies=POLICIES, now=time)
        want = of_dataset(namespace=NAMESPACE, name=name, dataset=cached.obj, now=time)
        loaded = cached.filled / cached.planned if cached.planned else 0.0
        return MountDemand(
            path=name,
            manifest=name,
            wants=() if want is None else (want,),
            totals={(): cached.totals},
            candidates=tuple(self._candidates(cached.nodes, loaded=loaded)),
            tier=stands.tier,
            value=stands.value,
            held_before=(
                {dataset_key(namespace=NAMESPACE, name=name): {COPY: frozenset(cached.nodes)}}
                if cached.nodes
                else {}
            ),
        )

    def _candidates(self, held: Mapping[str, float], *, loaded: float) -> Iterable[Candidate]:
        capacity = int(self.scenario.cache_bytes)
        for name, gpus in self.cluster.free.items():
            yield Candidate(
                node=CacheNode(
                    name=name,
                    capacity_bytes=capacity,
                    free_bytes=0,
                    held_bytes=int(held.get(name, 0.0) * loaded),
                    free_gpus=gpus,
                )
            )

    def _waits(self, job: SimJob, *, now: float) -> None:
        cached = self.cached[job.dataset.name]
        cached.waiting += 1
        cached.asked = time_at(now)


def spec_of(dataset: Dataset, *, scenario: Scenario) -> dict[str, object]:
    """The spec with which its owner applies a dataset: on so many nodes that it takes a bounded share of each."""
    count = math.ceil(dataset.size_bytes / max(scenario.cache_bytes * LARGEST_SHARE, 1.0))
    return {
        "source": {"uri": "s3://bucket/" + dataset.name.replace("/", "-").lower()},
        "placement": {"mode": "Partition", "nodeCount": min(max(count, 1), scenario.nodes)},
    }


def usable_bytes(scenario: Scenario) -> int:
    """What of a node's cache can be granted."""
    capacity = int(scenario.cache_bytes)
    return capacity - int(capacity * RESERVE_RATIO)


def time_at(now: float) -> str:
    """A moment of the run as Kubernetes writes it."""
    return (START + timedelta(seconds=int(now))).strftime("%Y-%m-%dT%H:%M:%SZ")


def _jobs(count: int) -> tuple[tuple[str, str], ...]:
    return ((NAMESPACE, "job"),) * count
