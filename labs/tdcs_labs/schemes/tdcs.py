"""TDCS: the operator's decisions, called as the operator calls them.

What the cache holds is granted by :mod:`tdcs_labs.schemes.cache_plan`. Here jobs come and go: pods go to nodes
that hold their data (`scoring`), loading shares the store with the jobs that read it (`preload`), reads that miss
are not cached, and what a job sees of its dataset follows what was loaded.
"""

from collections.abc import Iterable, Mapping, Sequence

from tdcs.decide.cache import load_order
from tdcs.decide.place import node_score, reading_speed
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import near_scores, nearer_first
from tdcs_labs.job import SimJob
from tdcs_labs.schemes import ledger, links, zones
from tdcs_labs.schemes.cache_plan import CachePlan, time_at
from tdcs_labs.schemes.ledger import Cached

#: The jobs' view of a dataset is renewed when this part of it has been loaded.
STEP = 0.05


class Tdcs(CachePlan):
    """The operator's decisions."""

    name = "tdcs"
    leaves_nodes = True

    def settle(self, *, now: float) -> None:
        """Fill what is being loaded."""
        passed, self._settled = now - self._settled, now
        for cached in self.loading.values():
            loaded = min(cached.rate * passed, cached.planned - cached.filled)
            cached.filled += loaded
            if not cached.copy:
                self.loaded_bytes += loaded  # further copies come from the nodes of the first
            brought = cached.follow(most=self.scenario.nic_rate * passed)
            if self.zones:
                self._count_crossings(cached, loaded=loaded, brought=brought)

    def _count_crossings(self, cached: Cached, *, loaded: float, brought: float) -> None:
        """Count what crossed zones while a copy was brought."""
        if cached.copy:
            first = self.cached[cached.dataset.name]
            self.cross_zone_bytes += loaded * zones.crossings_of_clone(cached, first, zones=self.zones)
        if brought:
            nodes = list(cached.nodes)
            crossings = zones.crossings_of_replicas(nodes, zones=self.zones, near=bool(self.places.of))
            self.cross_zone_bytes += brought / len(nodes) * crossings

    def _across(self, job: SimJob) -> float:
        """The share of what a job reads of the cache that comes from other zones."""
        if not self.zones:
            return 0.0
        first, mine = self.cached[job.dataset.name], self.cached[job.reads]
        present_copies = [copy for copy in (first, *first.clones.values()) if copy is mine or copy.is_there]
        return zones.share_across(job, copies=present_copies, zones=self.zones, near=bool(self.places.of))

    def arrived(self, job: SimJob, *, now: float) -> None:
        """A dataset that is new to the cache is granted its part at once."""
        cached = self.cached.get(job.dataset.name)
        if cached is None:
            cached = self.add(job.dataset, cost=job.cost, now=now)
        elif cached.planned < job.dataset.size_bytes - 1.0:
            self._plan_soon(now)
        self._waits(job, now=now)
        if self.scenario.clones:
            self._plan_at = now

    def scores(self, job: SimJob) -> dict[str, int]:
        """The extender's scores of the nodes."""
        cached = self.cached[job.reads]
        if cached.scores is None:
            bytes_on = cached.on_node if cached.replicated else cached.nodes
            held = {node: int(size) for node, size in bytes_on.items()}
            coming = {node: int(size) - held[node] for node, size in cached.nodes.items()}
            copy = CopyOnNodes(
                total_bytes=int(job.dataset.size_bytes),
                node_bytes=held,
                arriving={node: size for node, size in coming.items() if size > 0},
            )
            data = node_score.combined([copy], places=[0])
            cached.scores = node_score.combined_scores(nearer_first(data, [copy], places=self.places))
            cached.near = near_scores([copy], candidates=self.cluster.free, places=self.places, awaited={})
        return cached.scores

    def place_scores(self, job: SimJob) -> Mapping[str, int]:
        """As kube-scheduler places pods one after another: while a node with data has room the extender says nothing of
        others, and then the near ones come first."""
        scores, near = self.scores(job), self.cached[job.reads].near
        if not near:
            return scores
        beyond = node_score.MAX_SCORE + 1
        return {**near, **{node: score * beyond for node, score in scores.items()}}

    def started(self, job: SimJob, *, now: float) -> None:
        """The job reads the copy."""
        cached, first = self.cached[job.reads], self.cached[job.dataset.name]
        first.waiting -= 1
        cached.demand += job.compute
        if self.active(job.dataset.name) == 1:
            first.last_used = time_at(now)
        self._show_new(job, cached=cached, now=now)
        self._meet(job, now=now)
        if cached.planned < job.dataset.size_bytes - 1.0:
            self._plan_soon(now)

    def finished(self, job: SimJob, *, now: float) -> None:
        """What the job read may leave once no job reads it."""
        cached = self.cached[job.reads]
        cached.demand = max(cached.demand - job.compute, 0.0)
        cached.growing.pop(job.number, None)
        cached.away = max(cached.away - job.compute * job.cache_hit * (1.0 - job.cache_local), 0.0)
        if job.reads not in self.cluster.readers:
            cached.demand = cached.away = 0.0
        elif cached.factor < 1.0:
            self._changed.add(job.reads)
        if not self.active(job.dataset.name):
            self.cached[job.dataset.name].last_used = time_at(now)
        if self.scenario.clones:
            self._plan_at = now
        self._meet_again(job, now=now)

    def update(self, *, now: float) -> Iterable[SimJob]:
        """Grant when it is time, and renew the jobs' view of what has changed."""
        if now >= self._plan_at:
            self._plan(now=now)
        if self.scenario.clones:
            self._pace_clones()
        for name, cached in list(self.loading.items()):
            full = cached.planned - cached.filled <= 1.0
            if full:
                cached.filled = cached.planned
                cached.rate = 0.0
            if full and cached.behind <= 1.0:
                del self.loading[name]
                # With zones the readers of other copies may have a nearer one now.
                self._changed.update({name, cached.dataset.name} if self.zones else {name})
            step = STEP * cached.dataset.size_bytes * (1 - 1e-9)
            near = sum(cached.on_node.values()) - cached.shown_near
            if cached.filled - cached.visible >= step or near >= step:
                self._changed.add(name)
        changed: list[SimJob] = []
        for name in sorted(self._changed):
            changed += self._show(self.cached[name], now=now)
        self._changed.clear()
        return changed

    def loads(self) -> Sequence[load_order.Load]:
        """The datasets that are being loaded; bytes are counted in parts of the store."""
        loads = []
        for name, cached in self.loading.items():
            if cached.copy or cached.planned - cached.filled <= 1.0:
                continue
            jobs = cached.waiting + self.active(name)
            saved = load_order.saved_per_byte(size_bytes=cached.dataset.size_bytes, demand=float(jobs))
            loads.append(
                load_order.Load(
                    name=name,
                    missing_bytes=(cached.planned - cached.filled) * cached.cost,
                    worth=saved / cached.cost,
                    waiting_jobs=jobs,
                )
            )
        return loads

    def set_load_rates(self, rates: Mapping[str, float], *, now: float) -> None:
        """Load at these rates from now on."""
        for name, rate in rates.items():
            cached = self.loading[name]
            cached.rate = rate / cached.cost

    def next_change(self, *, now: float) -> float:
        """The next step of a load, or the next grants."""
        change = self._plan_at
        for cached in self.loading.values():
            if cached.rate > 0.0:
                step = STEP * cached.dataset.size_bytes - (cached.filled - cached.visible)
                remaining = min(max(step, 1.0), cached.planned - cached.filled)
                change = min(change, now + max(remaining / cached.rate, 1e-3))
            if (behind := cached.behind) > 1.0:
                remaining = min(STEP * cached.dataset.size_bytes, behind)
                change = min(change, now + max(remaining / self.scenario.nic_rate, 1e-3))
        return change

    def client_rate(self, *, local: float) -> float:
        """Local bytes are hard links read at disk speed; the rest comes through FUSE."""
        return ledger.client_rate(local=local, native=self.scenario.native_rate, fuse=self.scenario.fuse_rate)

    def _pace_clones(self) -> None:
        """Further copies come over the links of the nodes of the first, once that is there."""
        for cached in self.loading.values():
            if cached.copy:
                first = self.cached[cached.dataset.name]
                links_ = min(len(first.nodes), len(cached.nodes)) if first.is_there else 0
                cached.rate = links_ * self.scenario.nic_rate

    # --- the view of the jobs

    def _show_new(self, job: SimJob, *, cached: Cached, now: float) -> None:
        """Set what a job that starts sees; the others see a change only when links become scarce."""
        hit = reading_speed.no_evict_hit_ratio(fraction=cached.visible / cached.dataset.size_bytes)
        held, total = cached.held
        local = links.share_on_nodes(job, held=held, total=total)
        cached.away += job.compute * hit * (1.0 - local)
        self.see(job, now=now, hit=hit, local=local, cross=self._across(job))
        factor = links.supply_factor(
            away=cached.away, holders=len(cached.nodes), nic_rate=self.scenario.nic_rate
        )
        if factor < 1.0:
            self._changed.add(job.reads)

    def _show(self, cached: Cached, *, now: float) -> list[SimJob]:
        """Set what all jobs of a dataset see of it: the cached part, and what the holders' links give."""
        cached.visible = cached.filled
        cached.shown_near = sum(cached.on_node.values())
        if cached.replicated:
            cached.scores = None
        readers = list(self.cluster.readers.get(cached.reads, {}).values())
        hit = reading_speed.no_evict_hit_ratio(fraction=cached.filled / cached.dataset.size_bytes)
        held, total = cached.held
        locals_ = [links.share_on_nodes(job, held=held, total=total) for job in readers]
        cached.away = links.away_rate(readers, hits=[hit] * len(readers), locals_=locals_)
        cached.factor = links.supply_factor(
            away=cached.away, holders=len(held), nic_rate=self.scenario.nic_rate
        )
        return [
            job
            for job, local in zip(readers, locals_, strict=True)
            if self.see(
                job,
                now=now,
                hit=hit,
                local=local,
                supply=links.given(job, hit=hit, factor=cached.factor),
                cross=self._across(job),
            )
        ]


class TdcsOptedOut(Tdcs):
    """The same, with pods labelled `tdcs.io/place-by-data: "false"`: the extender does not rank their nodes."""

    name = "tdcs-opted-out"
    leaves_nodes = False

    def scores(self, job: SimJob) -> dict[str, int]:
        """None: pods go to the fullest node that has room."""
        return {}

    def place_scores(self, job: SimJob) -> Mapping[str, int]:
        """None."""
        return {}
