"""A job while it is simulated: its place, its speed, and what it has read from where."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.place.reading_speed import estimate, page_cache_hit_ratio
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs_labs.workload import Dataset

#: Remaining bytes below which a job or an epoch counts as done.
EPSILON_BYTES = 1.0


@dataclass(slots=True, eq=False, kw_only=True)
class SimJob:
    """A job and its progress. Rates are bytes of training data per second.

    Attributes:
        number: its place in the trace.
        compute: what its GPUs take when data never lacks.
        work: bytes that it reads in all.
        miss: share of its reads that go to the store.
        local: share of its reads that its own nodes' caches serve.
        cross: share of its reads that come from other zones.
        ceiling: its rate when the store gives all that it asks for.
        need: parts of the store per second that it takes at its ceiling.
        mark: when it will have ended, or ended its epoch, at its present rate.
        cost: parts of the store that one byte takes.
        owner: its tenant.
        queued: the job as the operator's queue sees it.
        copy: the copy that it reads; the first one has no name.
        was_preempted: whether another job has taken its place before.
        may_preempt: whether it may take the place of others.
    """

    number: int
    submitted: float
    gpus: int
    pods: tuple[int, ...]
    dataset: Dataset
    compute: float
    work: float
    cost: float
    owner: str = ""
    priority: int = 0
    queued: QueuedJob = field(init=False)
    copy: str = ""
    nodes: tuple[str, ...] = ()
    was_preempted: bool = False
    may_preempt: bool = False
    started: float = -1.0
    ended: float = -1.0
    remaining: float = 0.0
    epoch: int = 1
    epoch_left: float = 0.0
    page_hit: float = 0.0
    cache_hit: float = 0.0
    cache_local: float = 0.0
    cache_cross: float = 0.0
    cache_rate: float = math.inf
    nic_rate: float = math.inf
    miss: float = 1.0
    local: float = 0.0
    cross: float = 0.0
    ceiling: float = 0.0
    need: float = 0.0
    rate: float = 0.0
    since: float = 0.0
    mark: float = math.inf
    version: int = 0
    remote_bytes: float = 0.0
    local_bytes: float = 0.0
    cross_bytes: float = 0.0
    read_bytes: float = 0.0

    def __post_init__(self) -> None:
        name = f"{self.number:08}"
        self.queued = QueuedJob(
            key=(self.owner, name),
            uid=name,
            priority=self.priority,
            submitted=self.submitted,
            data_ready=True,
            passed=0,
            may_preempt=self.may_preempt,
            groups=self.groups,
        )

    @property
    def asks(self) -> Mapping[str, int]:
        """What it takes of the cluster."""
        return {GPU_RESOURCE: self.gpus}

    @property
    def groups(self) -> tuple[PodGroup, ...]:
        """Its pods, as the operator's queue counts them."""
        return _groups(self.pods)

    @property
    def reads(self) -> str:
        """What it reads: its dataset, or a further copy of it."""
        return f"{self.dataset.name}#{self.copy}" if self.copy else self.dataset.name

    def start(self, *, now: float, nodes: tuple[str, ...]) -> None:
        """Begin to run, or go on after a preemption: with what is left, as from a checkpoint of that moment."""
        self.nodes, self.started, self.since = nodes, now, now
        self.remaining = self.remaining if self.was_preempted else self.work
        self.epoch_left = min(self.dataset.size_bytes, self.remaining)
        self.epoch = 1

    def advance(self, *, now: float) -> None:
        """Account for what was read since the last change of speed."""
        read = min(self.rate * (now - self.since), self.remaining)
        self.since = now
        if read <= 0.0:
            return
        self.remaining -= read
        self.epoch_left -= read
        self.read_bytes += read
        self.remote_bytes += read * self.miss
        self.local_bytes += read * self.local
        self.cross_bytes += read * self.cross

    def ends_in(self, *, now: float) -> float:
        """Seconds until it ends at its present speed; infinite when it stands still."""
        unread_bytes = self.remaining - self.rate * (now - self.since)
        return max(unread_bytes, 0.0) / self.rate if self.rate > 0 else math.inf

    def pace(self, *, rate: float, now: float) -> None:
        """Change the speed, and reckon when the next mark is reached: the end of the job or of an epoch."""
        self.advance(now=now)
        self.rate = rate
        self.mark = now + self.epoch_left / rate if rate > 0 else math.inf

    def next_epoch(self, *, page_fraction: float) -> None:
        """Begin the next pass over the data; `page_fraction` of it fits into a node's page cache."""
        self.epoch += 1
        nodes = len(self.nodes)
        self.page_hit = page_cache_hit_ratio(epoch=self.epoch, nodes=nodes, fraction=page_fraction)
        later = page_cache_hit_ratio(epoch=self.epoch + 1, nodes=nodes, fraction=page_fraction)
        # Once the page cache has settled nothing changes any more: no need to stop at every epoch.
        settled = later - self.page_hit < 1e-3
        self.epoch_left = self.remaining if settled else min(self.dataset.size_bytes, self.remaining)

    def see(self, *, now: float, hit: float, local: float, cache_rate: float, nic_rate: float) -> None:
        """Set what the shared cache gives: hits, the local part of them, and the rates of cache and links.

        The page cache of the job's nodes stands before the shared cache, so it takes its part first.
        """
        self.advance(now=now)
        self.cache_hit, self.cache_local, self.cache_rate, self.nic_rate = hit, local, cache_rate, nic_rate
        self.look()

    def look(self) -> None:
        """Renew the ceiling after the hits of the page cache or of the shared cache have changed."""
        page = self.page_hit
        from_cache = (1.0 - page) * self.cache_hit
        self.miss = (1.0 - page) * (1.0 - self.cache_hit)
        self.local = page + from_cache * self.cache_local
        self.cross = from_cache * self.cache_cross
        # The links carry all that neither the page cache nor the node's own part of the cache holds.
        self.ceiling = estimate(
            compute=self.compute,
            cache=self.cache_rate,
            nic=self.nic_rate / max(1.0 - page, 1e-12),
            hit=from_cache,
            local=self.cache_local * (1.0 - page) if page else self.cache_local,
        ).rate
        self.need = self.ceiling * self.miss * self.cost


@lru_cache(maxsize=4096)
def _groups(pods: tuple[int, ...]) -> tuple[PodGroup, ...]:
    """Pods of so many GPUs; jobs of one shape share them."""
    sizes = sorted(set(pods), reverse=True)
    return tuple(PodGroup(count=pods.count(size), request={GPU_RESOURCE: size}) for size in sizes)
