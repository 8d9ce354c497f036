"""Like Fluid: a cache of its own for each dataset, boolean affinity, no limits.

The first job of a dataset reserves a cache for it: the whole dataset over at least four nodes (the
replicas of Fluid's own examples) when there is room, what is left otherwise. When a later job starts and room is free
by then, a cache that is too small grows (as its owner scales the runtime). Each cache is loaded at once (as by a
DataLoad), next to the jobs' reads, which fill it as well.
Nothing is evicted for another dataset; when no job has read a dataset for a day its owner is assumed to
delete it. A cache smaller than its dataset evicts its own least recently used blocks. Nodes that hold any
of the dataset are preferred, all equally. There is no limit of jobs per cache and no second copy.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.decide.cache import load_order
from tdcs.decide.place import copy_nodes, node_score
from tdcs.decide.place.reading_speed import lru_hit_ratio, no_evict_hit_ratio
from tdcs_labs.cluster import Cluster
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario
from tdcs_labs.schemes import links
from tdcs_labs.schemes.base import Scheme
from tdcs_labs.workload import Dataset

#: Seconds without a reader after which the owner deletes the dataset's cache.
IDLE_BEFORE_DELETION = 86_400.0
#: The fewest nodes of a cache.
REPLICAS = 4
#: The jobs' view is renewed when this part of a dataset has been read into its cache.
STEP = 0.05
#: The next step of a load is reckoned again when its rate has changed by this part.
RATE_CHANGE = 0.1
#: Seconds after which a cache that fills is looked at again whatever its rate.
LONGEST_STEP = 3600.0


@dataclass(slots=True, eq=False)
class RuntimeCache:
    """The cache of one dataset.

    `missing` is, for each reader, the share of what it has still to read in this epoch that is not
    cached: its own reads do not change it, those of others and loading do. `counted` are the bytes from the store
    that each reader has put into the cache, `loaded` those that were loaded since it was last looked at; `rate` is the
    speed of loading, and `cost` the parts of the store that one byte takes.
    """

    dataset: Dataset
    cost: float
    nodes: dict[str, float]
    rate: float = 0.0
    loaded: float = 0.0
    filled: float = 0.0
    due: float = 0.0
    missing: dict[int, float] = field(default_factory=dict)
    epoch_end: dict[int, float] = field(default_factory=dict)
    counted: dict[int, float] = field(default_factory=dict)
    idle_since: float = math.inf

    @property
    def quota(self) -> float:
        """Bytes that it may hold."""
        return sum(self.nodes.values())

    @property
    def full(self) -> bool:
        """Whether it holds all that it may."""
        return self.quota - self.filled <= 1.0


class Fluid(Scheme):
    """A cache per dataset."""

    name = "fluid-like"

    def __init__(self, *, scenario: Scenario, cluster: Cluster) -> None:
        super().__init__(scenario=scenario, cluster=cluster)
        self.caches: dict[str, RuntimeCache] = {}
        self.room = dict.fromkeys(scenario.node_names(), scenario.cache_bytes)
        self.loading: dict[str, RuntimeCache] = {}
        self._settled = 0.0
        self._changed: set[str] = set()
        self._filling: set[str] = set()
        self._renewed: set[str] = set()

    def scores(self, job: SimJob) -> dict[str, int]:
        """Any node that holds data is as good as any other that does."""
        cache = self.caches.get(job.dataset.name)
        return dict.fromkeys(cache.nodes, node_score.MAX_SCORE) if cache is not None else {}

    def settle(self, *, now: float) -> None:
        """Load at the rates that held until now."""
        passed, self._settled = now - self._settled, now
        for cache in self.loading.values():
            more = min(cache.rate * passed, max(cache.quota - cache.filled - cache.loaded, 0.0))
            cache.loaded += more
            self.loaded_bytes += more

    def started(self, job: SimJob, *, now: float) -> None:
        """The first reader makes the cache; a later one enlarges it where there is room by then."""
        name = job.dataset.name
        if name not in self.caches:
            self._delete_idle(now=now)
            self.caches[name] = RuntimeCache(dataset=job.dataset, cost=job.cost, nodes={})
        cache = self.caches[name]
        self._fill(cache, now=now)
        if self._enlarge(cache):
            for reader in self.cluster.readers[name].values():
                reader.advance(now=now)
                cache.counted[reader.number] = reader.remote_bytes
                self._new_epoch(cache, reader)
        cache.idle_since = math.inf
        self._new_epoch(cache, job)
        self.see(job, now=now, hit=0.0, local=0.0)
        self._changed.add(name)
        if not cache.full:
            self._filling.add(name)
            self.loading[name] = cache

    def finished(self, job: SimJob, *, now: float) -> None:
        """The last reader leaves an idle cache behind."""
        cache = self.caches[job.dataset.name]
        self._fill(cache, now=now, ended=job)
        cache.missing.pop(job.number, None)
        cache.epoch_end.pop(job.number, None)
        cache.counted.pop(job.number, None)
        if job.dataset.name in self.cluster.readers:
            self._changed.add(job.dataset.name)
        else:
            cache.idle_since = now

    def update(self, *, now: float) -> Iterable[SimJob]:
        """Let the jobs see what their reads have filled."""
        names, self._changed = self._changed, set()
        for name in list(self._filling):
            cache = self.caches[name]
            if not cache.full and (cache.due <= now or name in names):
                names.add(name)
                self._fill(cache, now=now)
                for job in self.cluster.readers.get(name, {}).values():
                    if job.read_bytes >= cache.epoch_end[job.number] - 1.0:
                        self._new_epoch(cache, job)
            if cache.full:
                self._stop(name)
                names.add(name)
        changed: list[SimJob] = []
        for name in sorted(names):
            changed += self._show(self.caches[name], now=now)
        self._renewed = names & self._filling
        return changed

    def loads(self) -> Sequence[load_order.Load]:
        """The caches that are not full; none is preferred."""
        return [
            load_order.Load(
                name=name,
                missing_bytes=max(cache.quota - cache.filled - cache.loaded, 0.0) * cache.cost,
                worth=0.0,
                waiting_jobs=len(self.cluster.readers.get(name, ())),
            )
            for name, cache in self.loading.items()
        ]

    def set_load_rates(self, rates: Mapping[str, float], *, now: float) -> None:
        """Load at these rates from now on."""
        for name, rate in rates.items():
            cache = self.loading[name]
            before, cache.rate = cache.rate, rate / cache.cost
            if abs(cache.rate - before) > RATE_CHANGE * before:
                self._renewed.add(name)

    def next_change(self, *, now: float) -> float:
        """The next step of a cache that fills, or the end of an epoch of one of its readers.

        A cache's next step is reckoned from the rates at its last one; when they change it comes a
        little early or late.
        """
        for name in self._renewed & self._filling:
            self.caches[name].due = self._due(self.caches[name], now=now)
        self._renewed = set()
        return min((self.caches[name].due for name in self._filling), default=math.inf)

    def _due(self, cache: RuntimeCache, *, now: float) -> float:
        readers = self.cluster.readers.get(cache.dataset.name, {})
        due = math.inf
        rate = cache.rate + sum(job.rate * job.miss for job in readers.values())
        if rate > 0.0:
            missing = max(cache.quota - cache.filled - cache.loaded, 0.0)
            step = max(STEP * cache.dataset.size_bytes - cache.loaded, 0.0)
            due = now + min(step, missing) / rate
        for number, job in readers.items():
            if job.rate > 0.0:
                due = min(due, now + (cache.epoch_end[number] - job.read_bytes) / job.rate)
        # A shared store may slow all readers down to almost nothing: look again after a while in any case.
        return min(max(due, now + 1.0), now + LONGEST_STEP)

    def _new_epoch(self, cache: RuntimeCache, job: SimJob) -> None:
        cache.missing[job.number] = 1.0 - no_evict_hit_ratio(fraction=cache.filled / cache.dataset.size_bytes)
        cache.epoch_end[job.number] = job.read_bytes + cache.dataset.size_bytes

    def _fill(self, cache: RuntimeCache, *, now: float, ended: SimJob | None = None) -> None:
        """Put what was read since the last time into the cache; the others find it there."""
        if cache.full:
            return
        readers = dict(self.cluster.readers.get(cache.dataset.name, {}))
        if ended is not None:
            readers[ended.number] = ended
        own_reads: dict[int, float] = {}
        for number, job in readers.items():
            job.advance(now=now)
            own_reads[number] = job.remote_bytes - cache.counted.get(number, 0.0)
            cache.counted[number] = job.remote_bytes
        total = sum(own_reads.values()) + cache.loaded
        cache.loaded = 0.0
        absent = cache.dataset.size_bytes - cache.filled
        added = min(total, cache.quota - cache.filled)
        for number, mine in own_reads.items():
            if number in cache.missing:
                cache.missing[number] *= max(1.0 - max(added - mine, 0.0) / absent, 0.0)
        cache.filled += added

    def _show(self, cache: RuntimeCache, *, now: float) -> list[SimJob]:
        readers = list(self.cluster.readers.get(cache.dataset.name, {}).values())
        if not readers:
            return readers
        fraction = cache.quota / cache.dataset.size_bytes
        if not cache.full:
            hits = [1.0 - cache.missing[job.number] for job in readers]
        elif fraction >= 1.0 - 1e-9:
            hits = [1.0] * len(readers)
        else:
            # One reader thrashes the cache; many readers find more of what the others have just read.
            alone = lru_hit_ratio(fraction=fraction)
            hits = [fraction - (fraction - alone) / len(readers)] * len(readers)
        locals_ = [links.share_on_nodes(job, held=cache.nodes, total=cache.quota) for job in readers]
        factor = links.supply_factor(
            away=links.away_rate(readers, hits=hits, locals_=locals_),
            holders=len(cache.nodes),
            nic_rate=self.scenario.nic_rate,
        )
        return [
            job
            for job, hit, local in zip(readers, hits, locals_, strict=True)
            if self.see(job, now=now, hit=hit, local=local, supply=links.given(job, hit=hit, factor=factor))
        ]

    def _stop(self, name: str) -> None:
        """Neither reads nor loading fill a cache any more."""
        self._filling.discard(name)
        cache = self.loading.pop(name, None)
        if cache is not None:
            cache.rate = 0.0

    def _enlarge(self, cache: RuntimeCache) -> bool:
        """Reserve what its dataset lacks, as far as there is room; gives whether there was any."""
        before = cache.quota
        missing = int(cache.dataset.size_bytes - before)
        if missing <= 0:
            return False
        nodes = [
            copy_nodes.CacheNode(
                name=name,
                capacity_bytes=int(self.scenario.cache_bytes),
                free_bytes=int(room),
                held_bytes=int(cache.nodes.get(name, 0.0)),
                free_gpus=self.cluster.free[name],
            )
            for name, room in self.room.items()
            if room >= 1.0
        ]
        held = self._spread(cache.dataset, missing, nodes=nodes, count=None)
        if len(cache.nodes.keys() | held.keys()) < REPLICAS:
            held = self._spread(cache.dataset, missing, nodes=nodes, count=REPLICAS)
        for name, taken_bytes in held.items():
            if taken_bytes:
                self.room[name] -= taken_bytes
                cache.nodes[name] = cache.nodes.get(name, 0.0) + taken_bytes
        return cache.quota > before

    @staticmethod
    def _spread(
        dataset: Dataset, missing: int, *, nodes: Sequence[copy_nodes.CacheNode], count: int | None
    ) -> dict[str, int]:
        return copy_nodes.node_bytes(
            copy_nodes.plan_copy(
                dataset=dataset.name,
                dataset_bytes=missing,
                nodes=nodes,
                mode=copy_nodes.Mode.PARTITION,
                node_count=count,
            )
        )

    def _delete_idle(self, *, now: float) -> None:
        for name in [
            n for n, idle_cache in self.caches.items() if now - idle_cache.idle_since > IDLE_BEFORE_DELETION
        ]:
            self.evictions += 1
            self._stop(name)
            for node, held in self.caches.pop(name).nodes.items():
                self.room[node] += held
