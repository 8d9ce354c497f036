"""Stock Alluxio: one cache shared by all, filled by reads, least recently used leaves.

As its defaults have it: a block that is not on the reader's own worker is cached there, wherever it
came from (local-first writes and passive caching), so the same block is on many nodes; and each
worker evicts its least recently used blocks. Pods are placed without regard to data.

Mean-field: of each node, the bytes that it holds of each dataset. What a job has read leaves its node
when newer reads need the room: datasets that no job on the node reads first, then those that are read
there, in proportion to what they hold. The part of a dataset that a job finds on its own nodes follows
the least-recently-used formula (a job finds none of what it read in its first pass itself); what it
does not find there it finds on other nodes as if those held independent samples.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tdcs.decide.place.reading_speed import lru_hit_ratio
from tdcs_labs.cluster import Cluster
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario
from tdcs_labs.schemes import links
from tdcs_labs.schemes.base import Scheme

#: Seconds between two renewals of the caches' state.
INTERVAL = 600.0
#: A job's view is renewed when its hits have changed by this much.
VISIBLE = 0.005


@dataclass(slots=True, eq=False)
class Worker:
    """A node's cache: bytes held of each dataset, when each was last read, and how many jobs read it."""

    held: dict[str, float] = field(default_factory=dict)
    last_used: dict[str, float] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    total: float = 0.0


class AlluxioLru(Scheme):
    """One shared cache with stock settings."""

    name = "alluxio-lru"

    def __init__(self, *, scenario: Scenario, cluster: Cluster) -> None:
        super().__init__(scenario=scenario, cluster=cluster)
        self.workers = {name: Worker() for name in scenario.node_names()}
        self._holders: dict[str, dict[str, float]] = {}
        self._sizes: dict[str, float] = {}
        self._counted: dict[int, float] = {}
        self._next = math.inf
        self._absent: dict[str, float] = {}

    def started(self, job: SimJob, *, now: float) -> None:
        """The job finds what its dataset has left on the nodes."""
        name = job.dataset.name
        self._sizes[name] = job.dataset.size_bytes
        self._counted[job.number] = 0.0
        for node in job.nodes:
            worker = self.workers[node]
            worker.readers[name] = worker.readers.get(name, 0) + 1
        hit, local = self._hits(job)
        self.see(job, now=now, hit=hit, local=local)
        self._next = min(self._next, now + INTERVAL)

    def finished(self, job: SimJob, *, now: float) -> None:
        """What the job has read stays until others need the room."""
        self._insert(job, now=now)
        del self._counted[job.number]
        for node in job.nodes:
            worker = self.workers[node]
            worker.readers[job.dataset.name] -= 1
            if not worker.readers[job.dataset.name]:
                del worker.readers[job.dataset.name]

    def update(self, *, now: float) -> Iterable[SimJob]:
        """Put what was read into the workers, and renew the jobs' views."""
        if now < self._next:
            return ()
        self._next = now + INTERVAL if self.cluster.running else math.inf
        for job in self.cluster.running.values():
            job.advance(now=now)
            self._insert(job, now=now)
        self._absent.clear()
        changed = []
        for name, readers in self.cluster.readers.items():
            jobs = list(readers.values())
            views = [self._hits(job) for job in jobs]
            factor = links.supply_factor(
                away=links.away_rate(jobs, hits=[v[0] for v in views], locals_=[v[1] for v in views]),
                holders=len(self._holders.get(name, ())),
                nic_rate=self.scenario.nic_rate,
            )
            for job, (hit, local) in zip(jobs, views, strict=True):
                difference = abs(hit - job.cache_hit) + abs(hit * local - job.cache_hit * job.cache_local)
                if difference > VISIBLE or factor < 1.0:
                    self.see(
                        job, now=now, hit=hit, local=local, supply=links.given(job, hit=hit, factor=factor)
                    )
                    changed.append(job)
        return changed

    def next_change(self, *, now: float) -> float:
        """The next renewal."""
        return self._next

    def _hits(self, job: SimJob) -> tuple[float, float]:
        """The share of reads that any cache serves, and the local part of it."""
        size, holders = job.dataset.size_bytes, self._holders.get(job.dataset.name)
        if not holders:
            return 0.0, 0.0
        first_pass = job.read_bytes < size
        hit_share = 0.0
        absent = self._absent_share(job.dataset.name, holders=holders, size=size)
        share = 1.0 / len(job.nodes)
        for node, gpus in zip(job.nodes, job.pods, strict=True):
            held = holders.get(node, 0.0)
            absent -= math.log(max(1.0 - held / size, 1e-9))
            if first_pass:
                # Own reads of this pass are not read again in it; only what others left is found.
                worker_share = max(held - job.read_bytes * share, 0.0) / size
            else:
                worker_share = lru_hit_ratio(fraction=min(held / size, 1.0), share=share)
            hit_share += worker_share * gpus / job.gpus
        hit_share = min(hit_share, 1.0)
        elsewhere = 1.0 - math.exp(min(absent, 0.0))
        hit = hit_share + (1.0 - hit_share) * elsewhere
        return hit, hit_share / hit if hit > 0.0 else 0.0

    def _absent_share(self, name: str, *, holders: Mapping[str, float], size: float) -> float:
        """The logarithm of the share of a dataset that is on no node."""
        absent = self._absent.get(name)
        if absent is None:
            absent = sum(math.log(max(1.0 - held / size, 1e-9)) for held in holders.values())
            self._absent[name] = absent
        return absent

    def _insert(self, job: SimJob, *, now: float) -> None:
        """Cache what the job has read since last time on its nodes, except what was there already."""
        read = job.read_bytes - self._counted[job.number]
        self._counted[job.number] = job.read_bytes
        if read <= 0.0:
            return
        name, size = job.dataset.name, job.dataset.size_bytes
        holders = self._holders.setdefault(name, {})
        new = read * (1.0 - job.cache_hit * job.cache_local)
        for node, gpus in zip(job.nodes, job.pods, strict=True):
            worker = self.workers[node]
            held = worker.held.get(name, 0.0)
            added = min(new * gpus / job.gpus, size - held, self.scenario.cache_bytes)
            worker.held[name] = held + added
            worker.last_used[name] = now
            worker.total += added
            if worker.total > self.scenario.cache_bytes:
                self._evict(worker, node=node)
            holders[node] = worker.held[name]
        self._absent.pop(name, None)

    def _evict(self, worker: Worker, *, node: str) -> None:
        needed = worker.total - self.scenario.cache_bytes
        idle = [name for name, held in worker.held.items() if name not in worker.readers and held > 0]
        for name in sorted(idle, key=lambda name: (worker.last_used[name], name)):
            if needed <= 0:
                break
            lost = min(worker.held[name], needed)
            self._lose(worker, node=node, name=name, lost=lost)
            needed -= lost
        if needed > 1.0:
            keep = 1.0 - needed / worker.total
            for name, held in list(worker.held.items()):
                self._lose(worker, node=node, name=name, lost=held * (1.0 - keep))

    def _lose(self, worker: Worker, *, node: str, name: str, lost: float) -> None:
        self.evictions += 1
        worker.total -= lost
        worker.held[name] -= lost
        if worker.held[name] <= 1.0:
            worker.total -= worker.held.pop(name)
            self._holders[name].pop(node, None)
        else:
            self._holders[name][node] = worker.held[name]
        self._absent.pop(name, None)
