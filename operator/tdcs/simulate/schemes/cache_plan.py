"""The plan of the cache in the scheme `tdcs`: what it holds on which node, decided with the operator's policies.

The cache is given to datasets by the bandwidth that a byte saves (`allocation`), idle ones leave by the next use that
the queue shows (`eviction`), a copy is on as many nodes as its readers need (`placement`), what fits is loaded
and kept (`preload`), and a copy takes as many jobs as its links can feed and is cloned beyond that (`admission`).
"""

import math
from collections.abc import Iterable, Mapping

from tdcs.policy import admission, allocation, eviction, placement, preload
from tdcs.simulate.cluster import Cluster
from tdcs.simulate.job import SimJob
from tdcs.simulate.scenario import Scenario
from tdcs.simulate.schemes.base import Scheme
from tdcs.simulate.schemes.ledger import Cached, Copy

#: Seconds between two plans when nothing new has turned up.
PLAN_INTERVAL = 300.0
#: Held bytes count for this much more than bytes that would have to be loaded.
KEEP_MARGIN = 0.5


class CachePlan(Scheme):
    """The state of the cache, and the decisions that change it."""

    def __init__(self, *, scenario: Scenario, cluster: Cluster) -> None:
        super().__init__(scenario=scenario, cluster=cluster)
        self.cached: dict[str, Cached] = {}
        self.room = dict.fromkeys(scenario.node_names(), scenario.cache_bytes)
        self.loading: dict[str, Cached] = {}
        self._settled = 0.0
        self._plan_at = math.inf
        self._clones_at: list[float] = []
        self._changed: set[str] = set()

    def _plan_soon(self, now: float) -> None:
        self._plan_at = min(self._plan_at, max(now, self._settled) + PLAN_INTERVAL)

    def _plan(self, *, now: float) -> None:
        """Give the cache to the datasets that are read or waited for, evict, and start loads."""
        self._plan_at = math.inf
        wanted = self._wanted()
        demands, grants = self._allocate(wanted=wanted, beside=0.0)
        growing = []
        for one in demands:
            cached = self.cached[one.name]
            cached.worth = allocation.saved_per_byte(one) / (
                cached.cost * self.scenario.store.bytes_per_second
            )
            if grants[one.name] - cached.planned > 1e-6 * one.size_bytes:
                growing.append(cached)
        needed = sum(grants[one.dataset.name] - one.planned for one in growing)
        self._make_room(needed=needed, grants=grants, now=now)
        for cached in sorted(growing, key=lambda one: (-one.worth, one.dataset.name)):
            self._grow(
                cached, more=grants[cached.dataset.name] - cached.planned, demand=wanted[cached.dataset.name]
            )
        if any(self.cached[one.name].planned < one.size_bytes * (1 - 1e-6) for one in demands):
            self._plan_soon(now)

    def _allocate(
        self, *, wanted: Mapping[str, float], beside: float
    ) -> tuple[list[allocation.DatasetDemand], dict[str, float]]:
        """What each wanted dataset gets of the cache beside the clones and so many more bytes."""
        demands = [
            allocation.DatasetDemand(
                name=name,
                size_bytes=self.cached[name].dataset.size_bytes,
                demand=demand,
                held_bytes=self.cached[name].planned,
            )
            for name, demand in wanted.items()
        ]
        clones = sum(
            self._all_reserved(one) - one.planned for one in self.cached.values() if len(one.copies) > 1
        )
        total = self.scenario.cache_bytes * self.scenario.nodes - clones - beside
        return demands, allocation.allocate_cache(datasets=demands, cache_bytes=total, margin=KEEP_MARGIN)

    def _wanted(self) -> dict[str, float]:
        """Bytes per second that the running and the next waiting jobs read, by dataset."""
        wanted = {name: self.cached[name].demand for name in self.cluster.readers}
        for cached in self.cached.values():
            cached.waiting = 0
        for job in self.cluster.window():
            wanted[job.dataset.name] = wanted.get(job.dataset.name, 0.0) + job.compute
            self.cached[job.dataset.name].waiting += 1
        return wanted

    def _make_room(self, *, needed: float, grants: Mapping[str, float], now: float) -> None:
        needed -= sum(self.room.values())
        if needed > 0.0:
            needed -= self._drop_idle_clones()
        if needed <= 0.0:
            return
        next_use: dict[str, int] = {}
        for place, job in enumerate(self.cluster.window()):
            next_use.setdefault(job.dataset.name, place)
        idle = [
            eviction.Candidate(
                name=name,
                held_bytes=self._all_reserved(cached),
                active_jobs=len(self.cluster.readers.get(name, ())),
                last_used=cached.last_used,
                next_use=next_use.get(name),
            )
            for name, cached in self.cached.items()
            if cached.planned > 0.0 and name not in grants
        ]
        for victim in eviction.choose(
            candidates=idle, needed_bytes=needed, now=now, policy=eviction.next_use
        ):
            self._shrink(self.cached[victim.name], by=victim.freed_bytes)
            needed -= victim.freed_bytes
        for name, grant in sorted(grants.items(), key=lambda item: (item[1], item[0])):
            over = self.cached[name].planned - grant
            if needed > 0.0 and over > 1e-6 * self.cached[name].dataset.size_bytes:
                self._shrink(self.cached[name], by=min(over, needed))
                needed -= over

    def _drop_idle_clones(self) -> float:
        """Free the clones of datasets when their first copy can feed all readers again."""
        freed = 0.0
        for cached in self.cached.values():
            enough = len(cached.copies["0"].nodes) * self.scenario.nic_rate >= 2.0 * cached.demand
            if len(cached.copies) > 1 and enough:
                clones = self._all_reserved(cached) - cached.planned
                self._shrink(cached, by=clones)
                freed += clones
        return freed

    @staticmethod
    def _all_reserved(cached: Cached) -> float:
        return sum(copy.reserved for copy in cached.copies.values())

    def _shrink(self, cached: Cached, *, by: float) -> None:
        """Free bytes of a dataset: its clones first, then an even part of the copy, unloaded bytes first."""
        self.evictions += 1
        for number in sorted(cached.copies, reverse=True):
            copy = cached.copies[number]
            reserved = copy.reserved
            if by <= 0.0 or reserved <= 0.0:
                continue
            freed = reserved if number != "0" else min(by, reserved)
            keep = 1.0 - freed / reserved
            for node, held in list(copy.nodes.items()):
                self.room[node] += held * (1.0 - keep)
                copy.nodes[node] = held * keep
                if copy.nodes[node] < 1.0:
                    del copy.nodes[node]
            by -= freed
            if number != "0":
                del cached.copies[number]
        cached.filled = min(cached.filled, cached.planned)
        cached.scores = None
        if cached.planned - cached.filled <= 1.0:
            self.loading.pop(cached.dataset.name, None)
            cached.rate = 0.0
        self._changed.add(cached.dataset.name)

    def _grow(self, cached: Cached, *, more: float, demand: float) -> None:
        """Reserve room for more of a dataset, on as many nodes as its readers need, and load it."""
        reserved = self._reserve(cached, more=more, demand=demand, avoid=())
        if not reserved:
            return
        copy = cached.copies["0"]
        for node, held in reserved.items():
            copy.nodes[node] = copy.nodes.get(node, 0.0) + held
        cached.scores = None
        self.loading[cached.dataset.name] = cached

    def _reserve(self, cached: Cached, *, more: float, demand: float, avoid: Iterable[str]) -> dict[str, int]:
        more = preload.what_fits(missing_bytes=more, free_bytes=sum(self.room.values()))
        held = cached.copies["0"].nodes
        capacity = int(self.scenario.cache_bytes)
        banned = set(avoid)
        nodes = [
            placement.CacheNode(
                name=name,
                capacity_bytes=capacity,
                free_bytes=int(room),
                held_bytes=int(held.get(name, 0.0)),
                free_gpus=self.cluster.free[name],
            )
            for name, room in self.room.items()
            if room >= 1.0 and name not in banned
        ]
        mode = placement.Mode.PARTITION
        name = cached.dataset.name
        plan = placement.plan_copy(dataset=name, dataset_bytes=int(more), nodes=nodes, mode=mode)
        needed = placement.serving_nodes(
            demand=demand, node_rate=self.scenario.nic_rate, copy_bytes=int(more), node_bytes_total=capacity
        )
        if len(plan.nodes) < needed:
            plan = placement.plan_copy(
                dataset=name, dataset_bytes=int(more), nodes=nodes, mode=mode, node_count=needed
            )
        reserved = {node: held for node, held in placement.node_bytes(plan).items() if held > 0}
        for node, taken in reserved.items():
            self.room[node] -= taken
        return reserved

    def _choose_copy(self, job: SimJob, *, cached: Cached, now: float) -> str:
        readers = self.cluster.readers[job.dataset.name]
        active = dict.fromkeys(cached.copies, 0)
        if len(active) == 1:
            active["0"] = len(readers) - 1
        else:
            for other in readers.values():
                if other is not job:
                    active[other.copy if other.copy in active else "0"] += 1
        limit = admission.jobs_per_copy(
            holders=len(cached.copies["0"].nodes),
            node_rate=self.scenario.nic_rate,
            mean_demand=cached.demand / len(readers),
        )
        full = cached.filled >= cached.dataset.size_bytes * (1 - 1e-9)
        crowded = full and min(active.values()) >= limit
        if crowded:
            _, grants = self._allocate(wanted=self._wanted(), beside=cached.filled)
            self._make_room(needed=cached.filled, grants=grants, now=now)
        choice = admission.choose_copy(
            active=active,
            limit=limit if full else 0,
            on_limit=admission.OnLimit.CLONE,
            room_for_clone=crowded and sum(self.room.values()) >= cached.filled,
        )
        if choice.copy is None:
            return min(active, key=lambda copy: (active[copy], copy))
        return self._clone(cached, number=choice.copy, now=now) if choice.clone else choice.copy

    def _clone(self, cached: Cached, *, number: str, now: float) -> str:
        """Copy a dataset to other nodes; it travels between nodes, not from the store. Gives the copy to read."""
        taken = {node for copy in cached.copies.values() for node in copy.nodes}
        reserved = self._reserve(cached, more=cached.filled, demand=cached.demand, avoid=taken)
        if sum(reserved.values()) < cached.filled * (1 - 1e-6):
            # The free room is on nodes that hold the dataset already.
            for node, held in reserved.items():
                self.room[node] += held
            return "0"
        rate = self.scenario.nic_rate * min(len(reserved), len(cached.copies["0"].nodes)) / 2
        ready = now + cached.filled / rate if rate > 0 else math.inf
        cached.copies[number] = Copy(
            nodes={node: float(held) for node, held in reserved.items()}, ready_at=ready
        )
        if ready < math.inf:
            self._clones_at.append(ready)
        cached.scores = None
        self.clones += 1
        return number
