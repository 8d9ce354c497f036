"""TDCS: the operator's policies, called as the operator calls them.

What the cache holds is planned by :mod:`tdcs.simulate.schemes.cache_plan`. Here jobs come and go: pods go to nodes
that hold their data (`scoring`), loading shares the store with the jobs that read it (`preload`), reads that miss
are not cached, and what a job sees of its dataset follows what was loaded.
"""

from collections.abc import Iterable, Mapping, Sequence

from tdcs.policy import preload, scoring, throughput
from tdcs.simulate.job import SimJob
from tdcs.simulate.schemes import ledger, links
from tdcs.simulate.schemes.cache_plan import CachePlan
from tdcs.simulate.schemes.ledger import Cached

#: The jobs' view of a dataset is renewed when this part of it has been loaded.
STEP = 0.05


class Tdcs(CachePlan):
    """The operator's policies."""

    name = "tdcs"

    def settle(self, *, now: float) -> None:
        """Fill what is being loaded."""
        passed, self._settled = now - self._settled, now
        for cached in self.loading.values():
            loaded = min(cached.rate * passed, cached.planned - cached.filled)
            cached.filled += loaded
            self.loaded_bytes += loaded

    def arrived(self, job: SimJob, *, now: float) -> None:
        """A dataset that is new to the cache is planned at once."""
        cached = self.cached.get(job.dataset.name)
        if cached is None:
            self.cached[job.dataset.name] = Cached(dataset=job.dataset, cost=job.cost)
            self._plan_at = now
        elif cached.planned < job.dataset.size_bytes:
            self._plan_soon(now)

    def scores(self, job: SimJob) -> dict[str, int]:
        """The extender's scores of the nodes, for the copy that the job reads."""
        cached = self.cached[job.dataset.name]
        if cached.scores is None:
            total = int(job.dataset.size_bytes)
            cached.scores = scoring.node_scores(
                [
                    scoring.CopyOnNodes(
                        total_bytes=total, node_bytes={node: int(held) for node, held in copy.nodes.items()}
                    )
                    for copy in cached.copies.values()
                ]
            )
        return cached.scores

    def data_first(self, job: SimJob) -> bool:
        """Whether the job's demand is such that it gains from local data."""
        link = self.scenario.nic_rate * job.gpus / self.scenario.gpus_per_node
        return scoring.locality_matters(demand=job.compute, link=link)

    def started(self, job: SimJob, *, now: float) -> None:
        """Give the job a copy, making one when all have as many jobs as they can feed."""
        cached = self.cached[job.dataset.name]
        cached.demand += job.compute
        cached.last_used = now
        job.copy = self._choose_copy(job, cached=cached, now=now)
        self._show_new(job, cached=cached, now=now)
        if cached.planned < cached.dataset.size_bytes:
            self._plan_soon(now)

    def finished(self, job: SimJob, *, now: float) -> None:
        """What the job read may leave once no job reads it."""
        cached = self.cached[job.dataset.name]
        cached.demand = max(cached.demand - job.compute, 0.0)
        cached.last_used = now
        cached.away = max(cached.away - job.compute * job.cache_hit * (1.0 - job.cache_local), 0.0)
        if job.dataset.name not in self.cluster.readers:
            cached.demand = cached.away = 0.0
        elif cached.factor < 1.0:
            self._changed.add(job.dataset.name)

    def update(self, *, now: float) -> Iterable[SimJob]:
        """Plan when it is time, and renew the jobs' view of what has changed."""
        if now >= self._plan_at:
            self._plan(now=now)
        for name, cached in list(self.loading.items()):
            full = cached.planned - cached.filled <= 1.0
            if full:
                cached.filled = cached.planned
                cached.rate = 0.0
                del self.loading[name]
            if full or cached.filled - cached.shown >= STEP * cached.dataset.size_bytes * (1 - 1e-9):
                self._changed.add(name)
        if any(at <= now for at in self._clones_at):
            self._clones_at = [at for at in self._clones_at if at > now]
            self._changed.update(name for name, one in self.cached.items() if len(one.copies) > 1)
        changed: list[SimJob] = []
        for name in sorted(self._changed):
            changed += self._show(self.cached[name], now=now)
        self._changed.clear()
        return changed

    def loads(self) -> Sequence[preload.Load]:
        """The datasets that are being loaded; bytes are counted in parts of the store."""
        return [
            preload.Load(
                name=name,
                missing_bytes=(cached.planned - cached.filled) * cached.cost,
                worth=cached.worth,
                waiting_jobs=cached.waiting + len(self.cluster.readers.get(name, ())),
            )
            for name, cached in self.loading.items()
        ]

    def set_load_rates(self, rates: Mapping[str, float], *, now: float) -> None:
        """Load at these rates from now on."""
        for name, rate in rates.items():
            cached = self.loading[name]
            cached.rate = rate / cached.cost

    def next_change(self, *, now: float) -> float:
        """The next step of a load, the next plan, or the next clone that becomes readable."""
        change = min([self._plan_at, *self._clones_at])
        for cached in self.loading.values():
            if cached.rate > 0.0:
                step = STEP * cached.dataset.size_bytes - (cached.filled - cached.shown)
                left = min(max(step, 1.0), cached.planned - cached.filled)
                change = min(change, now + max(left / cached.rate, 1e-3))
        return change

    def client_rate(self, *, local: float) -> float:
        """Local bytes are hard links read at disk speed; the rest comes through FUSE."""
        return ledger.client_rate(local=local, native=self.scenario.native_rate, fuse=self.scenario.fuse_rate)

    # --- the view of the jobs

    def _show_new(self, job: SimJob, *, cached: Cached, now: float) -> None:
        """Set what a job that starts sees; the others see a change only when links become scarce."""
        held = self._holders(cached, now=now)
        hit = throughput.no_evict_hit_ratio(fraction=cached.shown / cached.dataset.size_bytes)
        local = links.share_on_nodes(job, held=held, total=cached.planned)
        cached.away += job.compute * hit * (1.0 - local)
        self.see(job, now=now, hit=hit, local=local)
        if links.supply_factor(away=cached.away, holders=len(held), nic_rate=self.scenario.nic_rate) < 1.0:
            self._changed.add(job.dataset.name)

    def _show(self, cached: Cached, *, now: float) -> list[SimJob]:
        """Set what all jobs of a dataset see of it: the cached part, and what the holders' links give."""
        cached.shown = cached.filled
        readers = list(self.cluster.readers.get(cached.dataset.name, {}).values())
        hit = throughput.no_evict_hit_ratio(fraction=cached.filled / cached.dataset.size_bytes)
        held = self._holders(cached, now=now)
        planned = cached.planned
        locals_ = [links.share_on_nodes(job, held=held, total=planned) for job in readers]
        cached.away = links.away_rate(readers, hits=[hit] * len(readers), locals_=locals_)
        cached.factor = links.supply_factor(
            away=cached.away, holders=len(held), nic_rate=self.scenario.nic_rate
        )
        return [
            job
            for job, local in zip(readers, locals_, strict=True)
            if self.see(
                job, now=now, hit=hit, local=local, supply=links.given(job, hit=hit, factor=cached.factor)
            )
        ]

    @staticmethod
    def _holders(cached: Cached, *, now: float) -> Mapping[str, float]:
        """Bytes by node of all copies that can be read; their nodes differ."""
        if len(cached.copies) == 1:
            return cached.copies["0"].nodes
        held: dict[str, float] = {}
        for copy in cached.copies.values():
            if copy.ready_at <= now:
                held.update(copy.nodes)
        return held
