"""What the engine asks of a scheme. A scheme owns the state of the caches; it never moves time itself."""

import math
from collections.abc import Iterable, Mapping, Sequence

from tdcs.decide.cache.load_order import Load
from tdcs_labs.cluster import Cluster
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario


class Scheme:
    """No cache at all: the base of the schemes, and by itself the scheme `direct`.

    Order of calls at each event: `settle` brings the caches up to now at the old rates; then jobs
    arrive, finish and start; then `update` changes what the jobs see; then the engine shares the store
    among `loads` and the jobs and tells the loads their rates by `set_load_rates`.
    """

    name = "direct"
    leaves_nodes = False
    """Whether pods keep off the nodes that the queue leaves to larger pods, which the extender sees to."""

    def __init__(self, *, scenario: Scenario, cluster: Cluster) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.evictions = 0
        self.loaded_bytes = 0.0
        self.cross_zone_bytes = 0.0

    def settle(self, *, now: float) -> None:
        """Advance the caches to `now` at the rates that held until now."""

    def arrived(self, job: SimJob, *, now: float) -> None:
        """A job was submitted."""

    def admitted(self, job: SimJob, *, now: float) -> None:
        """A job is about to be placed; which copy it reads is chosen here."""

    def scores(self, job: SimJob) -> dict[str, int]:
        """The scores of the nodes for a job that is about to be placed."""
        return {}

    def started(self, job: SimJob, *, now: float) -> None:
        """A job began to run; its view of the cache must be set."""
        self.see(job, now=now, hit=0.0, local=0.0)

    def finished(self, job: SimJob, *, now: float) -> None:
        """A job ended."""

    def update(self, *, now: float) -> Iterable[SimJob]:
        """Decide, and set what the running jobs see; gives the jobs with a changed view."""
        return ()

    def loads(self) -> Sequence[Load]:
        """What shall be loaded ahead of the jobs."""
        return ()

    def set_load_rates(self, rates: Mapping[str, float], *, now: float) -> None:
        """Parts of the store per second that each load gets from now on."""

    def next_change(self, *, now: float) -> float:
        """When the caches will have changed so much that the jobs' view must be renewed."""
        return math.inf

    def client_rate(self, *, local: float) -> float:
        """Bytes per second that the clients of one node deliver from the cache."""
        return self.scenario.fuse_rate

    def place_scores(self, job: SimJob) -> Mapping[str, int]:
        """The scores by which its pods are placed: those of nodes with data, and less for others that are near them."""
        return self.scores(job)

    def see(
        self,
        job: SimJob,
        *,
        now: float,
        hit: float,
        local: float,
        supply: float = math.inf,
        cross: float = 0.0,
    ) -> bool:
        """Set the cache hits of a job, the local part of them, that from other zones, and what the holders' links give.

        Gives whether that is a change; most of the time it is none, and then it costs nothing.
        """
        nodes = job.gpus / self.scenario.gpus_per_node
        cache_rate = min(self.client_rate(local=local) * nodes, supply)
        is_unchanged = (
            hit == job.cache_hit
            and local == job.cache_local
            and cache_rate == job.cache_rate
            and cross == job.cache_cross
        )
        if is_unchanged and job.ceiling > 0.0:
            return False
        job.advance(now=now)  # what was read until now came from where it came from
        job.cache_cross = cross
        job.see(now=now, hit=hit, local=local, cache_rate=cache_rate, nic_rate=self.scenario.nic_rate * nodes)
        return True
