"""The cache of the scheme `tdcs`: what it holds on which node, granted as the operator grants it.

Every dataset of the trace is a Dataset as its owner would apply it with the first job that reads it. How it stands
among the others (`mount_standing`), what it is granted (`grants`) and where that is
(`slot_nodes`) are the operator's own functions, asked with what the operator would see: sizes, the jobs that
read a dataset and those that wait, the nodes, and what was granted before. How long jobs run and how fast they read is
not among it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tdcs.api.dataset import Copy
from tdcs.api.dataset import Dataset as DatasetObject
from tdcs.api.names import GPU_RESOURCE as GPUS
from tdcs.decide.cache.eviction_order import lru
from tdcs.decide.cache.grants import GrantInput, Grants, MountDemand, MountGrant, grant
from tdcs.decide.cache.mount_standing import CacheUser, DatasetJobs, UsersOfDataset, standing
from tdcs.decide.cache.wants import Want, clone_key, dataset_key, of_clone, of_dataset
from tdcs.decide.place.copy_nodes import CacheNode, Mode
from tdcs.decide.place.data_meeting import AT_JOB, MeetingInput, Way, data_nodes, weigh
from tdcs.decide.place.gang_fit import most_that_fit
from tdcs.decide.place.placement_input import ReadOn
from tdcs.decide.place.slot_nodes import RESERVE_RATIO, Candidate
from tdcs.decide.place.wanted_clones import clones
from tdcs.decide.queue.copy_places import PlaceRequest
from tdcs.decide.queue.data_wait import JobData
from tdcs.decide.queue.pod_admission import choose_copy
from tdcs.model.manifest_format import totals_of
from tdcs.model.nearness import Place
from tdcs_labs.cluster import Cluster
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario
from tdcs_labs.schemes.base import Scheme
from tdcs_labs.schemes.ledger import Cached
from tdcs_labs.workload import Dataset

PLAN_INTERVAL = 300.0
"""Seconds between two grants while something is wanted that found no room. The operator needs seconds."""

LARGEST_SHARE = 1 / 32
"""Of a node's cache, what its owner lets one Dataset take (`spec.placement.nodeCount`). A small dataset on few nodes is
read over their links alone: with 1 / 8 a burst of 400 GPUs on ImageNet waited for four of them."""

CANDIDATES_KEPT = 1 << 16
"""Nodes, as datasets see them, that are remembered."""

GROWN_SECONDS = 600.0
"""So long a copy stays on the nodes of jobs that have ended (the default of `spec.scaling.scaleDownDelay`)."""

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
        self._without_room: dict[int, SimJob] = {}
        # Every dataset sees every node, most of them as in the last pass: the same object is compared at a glance.
        self._candidate = lru_cache(maxsize=CANDIDATES_KEPT)(_candidate_of)
        self.places = scenario.places()
        self.zones = scenario.zone_by_node() if scenario.zones > 1 else {}
        if scenario.jobs_per_copy:
            cluster.requests = self.requests
        if scenario.known_ends:
            cluster.data_of = self.data_of

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
        cached = Cached(
            dataset=dataset,
            cost=cost,
            obj=obj,
            created=time_at(now),
            totals=totals_of(int(dataset.size_bytes)),
        )
        self.cached[dataset.name] = cached
        self._plan_at = now
        return cached

    def demands(self, *, now: float) -> tuple[MountDemand, ...]:
        """What every Dataset asks for."""
        return tuple(self._demand(cached, now=now) for cached in self.cached.values() if not cached.copy)

    def requests(self, job: SimJob) -> tuple[PlaceRequest, ...]:
        """The place that a job takes at its dataset."""
        name = job.dataset.name
        clones = self.cached[name].clones.values()
        placed_clones = sum(clone.is_there for clone in clones)
        return (
            PlaceRequest(
                dataset=name,
                limit=self.scenario.jobs_per_copy,
                copies=max(placed_clones + bool(self.cached[name].nodes), 1),
                coming=len(clones) - placed_clones,
            ),
        )

    def admitted(self, job: SimJob, *, now: float) -> None:
        """Of the copies that are there it reads the one with room for most of its pods."""
        first = self.cached[job.dataset.name]
        copies = {
            copy.copy: copy
            for copy in (first, *first.clones.values())
            if (copy.is_there if copy.copy else copy.nodes)
        }
        if len(copies) < 2:
            job.copy = next(iter(copies), "")
            return
        room = {}
        for copy, cached in copies.items():
            free = {node: {GPUS: self.cluster.free[node]} for node in cached.nodes}
            room[copy] = sum(most_that_fit(group=group, free=free) for group in job.groups)
        active = {
            copy: len(self.cluster.readers.get(cached_copy.reads, ())) for copy, cached_copy in copies.items()
        }
        chosen = choose_copy(active=active, room=room, limit=self.scenario.jobs_per_copy)
        job.copy = chosen or min(active, key=lambda copy: (active[copy], copy))

    def active(self, name: str) -> int:
        """How many jobs read a dataset, by whichever copy."""
        first = self.cached[name]
        return sum(
            len(self.cluster.readers.get(cached_copy.reads, ()))
            for cached_copy in (first, *first.clones.values())
        )

    def _plan_soon(self, now: float) -> None:
        self._plan_at = min(self._plan_at, max(now, self._settled) + PLAN_INTERVAL)

    def _plan(self, *, now: float) -> None:
        """Grant every Dataset its part of the cache, and begin to load what is new."""
        self._plan_at = math.inf
        usable = dict.fromkeys(self.scenario.node_names(), usable_bytes(self.scenario))
        inputs = GrantInput(mounts=self.demands(now=now), usable=usable)
        grants = self._grants = grant(inputs, before=self._grants)
        short = False
        for name, mount_grant in grants.mounts.items():
            cached = self.cached[name]
            self._take_grant(cached, mount_grant)
            needed = cached.waiting > 0 or name in self.cluster.readers
            idle = [clone for clone in cached.clones.values() if clone.idle_since is not None]
            if idle:
                self._plan_at = min(self._plan_at, now + self.scenario.clone_idle_seconds)
            short = short or (needed and cached.planned < cached.totals.block_bytes)
        if short:
            self._plan_soon(now)

    def _take_grant(self, first: Cached, mount_grant: MountGrant) -> None:
        """Hold what was granted of each copy of a dataset."""
        whole = any(
            copy.mode is Mode.REPLICATE for placement in mount_grant.placements for copy in placement.copies
        )
        if not first.clones and len(mount_grant.placements) < 2:
            nodes = {node: float(held) for node, held in mount_grant.node_bytes.items() if held}
            self._take(first, nodes, replicated=whole)
            return
        granted: dict[str, dict[str, float]] = {"": {}}
        for placement in mount_grant.placements:
            copy = placement.want.ids[0] if placement.want.alongside else ""
            held = {node: float(placement.bytes_for(node)) for node in placement.nodes}
            granted[copy] = {node: size for node, size in held.items() if size}
        self._take(first, granted[""], replicated=whole)
        for copy, nodes in granted.items():
            if copy and nodes and copy not in first.clones:
                clone = replace(first, nodes={}, filled=0.0, visible=0.0, rate=0.0, demand=0.0, away=0.0)
                clone.copy, clone.clones, clone.scores, clone.waiting = copy, {}, None, 0
                clone.on_node, clone.growing = {}, {}
                first.clones[copy] = self.cached[clone.reads] = clone
        for copy, clone in list(first.clones.items()):
            self._take(clone, granted.get(copy, {}), replicated=whole)
            if not clone.nodes and clone.reads not in self.cluster.readers:
                del first.clones[copy], self.cached[clone.reads]
                self._changed.discard(clone.reads)

    def _take(self, cached: Cached, nodes: dict[str, float], *, replicated: bool) -> None:
        """Hold what was granted: what more there is now is loaded, what is less has left."""
        if nodes == cached.nodes:
            return
        name, before = cached.reads, cached.planned
        cached.place(nodes, replicated=replicated)
        cached.scores = None
        if cached.planned < before:
            self.evictions += 1
            cached.filled = min(cached.filled, cached.planned)
        if cached.planned - cached.filled > 1.0 or cached.behind > 1.0:
            self.loading[name] = cached
        else:
            cached.filled = cached.planned
            cached.rate = 0.0
            self.loading.pop(name, None)
        self._changed.add(name)

    def _demand(self, cached: Cached, *, now: float) -> MountDemand:
        name = cached.dataset.name
        readers = self.active(name)
        if cached.growing or cached.read_on.last:
            read_on = cached.read_on if cached.read_on.last else ReadOn.at_first(cached.nodes, now=now)
            grown = {node for nodes in cached.growing.values() for node in nodes}
            cached.read_on = read_on.then(grown, now=now, delay=GROWN_SECONDS)
        cache_user = CacheUser(
            dataset=cached.obj,
            created=cached.created,
            use=UsersOfDataset(
                jobs=DatasetJobs(active=_jobs(readers), waiting=_jobs(cached.waiting)),
                mounted=readers > 0,
                last_used=cached.last_used,
            ),
            requested=cached.last_submitted if cached.waiting else None,
        )
        time = time_at(now)
        stands = standing([cache_user], size=cached.totals.block_bytes, policies=POLICIES, now=time)
        want = of_dataset(namespace=NAMESPACE, name=name, dataset=cached.obj, now=time)
        wants = () if want is None else (want, *self._clone_wants(cached, want, jobs=readers, now=time))
        copies = (cached, *cached.clones.values())
        return MountDemand(
            path=name,
            manifest=name,
            wants=wants,
            totals={(): cached.totals},
            candidates=self._candidates(copies),
            readers={_key_of(cached): cached.read_on.nodes} if cached.read_on.last else {},
            tier=stands.tier,
            value=stands.value,
            held_before={
                _key_of(copy): {copy.copy or COPY: frozenset(copy.nodes)} for copy in copies if copy.nodes
            },
        )

    def _clone_wants(self, first: Cached, want: Want, *, jobs: int, now: str) -> Iterator[Want]:
        """The further copies that there shall be for the jobs of a dataset."""
        if not self.scenario.clones:
            return
        wanted_clones = clones(
            access=first.obj.spec.access,
            copies=first.obj.spec.placement.copies,
            existing_copies=[
                Copy(id=id_, idle_since=clone.idle_since) for id_, clone in first.clones.items()
            ],
            readers={
                id_: len(self.cluster.readers.get(clone.reads, ())) for id_, clone in first.clones.items()
            },
            jobs=jobs + first.waiting,
            now=now,
            idle_seconds=self.scenario.clone_idle_seconds,
        )
        for clone in wanted_clones:
            if clone.id in first.clones:
                first.clones[clone.id].idle_since = clone.idle_since
            yield of_clone(want, namespace=NAMESPACE, name=first.dataset.name, copy=clone.id)

    def _candidates(self, copies: Sequence[Cached]) -> tuple[Candidate, ...]:
        capacity = int(self.scenario.cache_bytes)
        held: dict[str, int] = {}
        for copy in copies:
            for node, size in copy.on_node.items():
                held[node] = held.get(node, 0) + int(size)
            if copy.replicated:
                continue
            loaded = copy.filled / copy.planned if copy.planned else 0.0
            for node, size in copy.nodes.items():
                held[node] = held.get(node, 0) + int(size * loaded)
        return tuple(
            [
                self._candidate(name, capacity, held.get(name, 0), gpus, self.places.of.get(name, ()))
                for name, gpus in self.cluster.free.items()
            ]
        )

    def data_of(self, job: SimJob) -> JobData | None:
        """Where the data of a waiting job is, as the operator's queue sees it."""
        cached = self.cached[job.reads]
        at_data = data_nodes([self._meets(cached, {}, job=job)])
        if not at_data:
            return None
        return JobData(
            nodes=at_data,
            alongside=tuple(replace(group, nodes=at_data) for group in job.groups),
            readers=job.groups,
            scores=self.scores(job),
            meets=lambda pods: {cached.dataset.name: self._meets(cached, pods, job=job)},
        )

    def _meets(self, cached: Cached, pods: Mapping[str, int], *, job: SimJob) -> MeetingInput:
        """How a dataset is placed for pods on these nodes."""
        held, _ = cached.held
        coming = {node: size for node, size in cached.nodes.items() if node not in pods}
        grows = self.scenario.grows and not cached.copy
        return MeetingInput(
            size=cached.totals.block_bytes,
            held={node: int(max(held.get(node, 0), coming.get(node, 0))) for node in {*held, *coming}},
            pods=pods,
            room=self._room_for(cached, set(pods)) if grows else {},
            grows=grows,
            peer_rate=self.scenario.nic_rate,
            run_seconds=job.work / job.compute if self.scenario.known_ends else None,
        )

    def _meet(self, job: SimJob, *, now: float) -> None:
        """Have the copy come to the nodes of a job that runs, where that costs it less than reading remotely, or stay
        there as long as it does. What finds no room is weighed again when there may be some."""
        cached = self.cached[job.reads]
        if not self.scenario.grows or cached.copy:
            return
        meeting = weigh(self._meets(cached, Counter(job.nodes), job=job))
        if meeting.way in AT_JOB:
            cached.growing[job.number] = job.nodes
        if meeting.way is Way.GROW:
            self._plan_at = now
        if meeting.way is Way.REMOTE and meeting.without_room:
            self._without_room[job.number] = job
        else:
            self._without_room.pop(job.number, None)

    def _meet_again(self, ended_job: SimJob, *, now: float) -> None:
        """A job has ended: others on its nodes may find room for their data there. (The operator looks each minute.)"""
        self._without_room.pop(ended_job.number, None)
        for job in list(self._without_room.values()):
            if not set(job.nodes).isdisjoint(ended_job.nodes):
                self._meet(job, now=now)

    def _room_for(self, mine: Cached, nodes: set[str]) -> dict[str, int]:
        """Bytes that the caches of some nodes could hold of a dataset next to those of others that are in use."""
        room = dict.fromkeys(nodes, float(usable_bytes(self.scenario)))
        for other_cached in self.cached.values():
            if other_cached is not mine and (
                other_cached.waiting > 0 or other_cached.reads in self.cluster.readers
            ):
                for node in nodes & other_cached.nodes.keys():
                    room[node] -= other_cached.nodes[node]
        return {node: int(size) for node, size in room.items()}

    def _waits(self, job: SimJob, *, now: float) -> None:
        cached = self.cached[job.dataset.name]
        cached.waiting += 1
        cached.last_submitted = time_at(now)


def _candidate_of(name: str, capacity: int, held: int, gpus: int, zone: Place) -> Candidate:
    node = CacheNode(
        name=name, capacity_bytes=capacity, free_bytes=0, held_bytes=held, free_gpus=gpus, zone=zone
    )
    return Candidate(node=node)


def _key_of(cached: Cached) -> str:
    """The key of what a copy is wanted for."""
    name = cached.dataset.name
    if cached.copy:
        return clone_key(namespace=NAMESPACE, name=name, copy=cached.copy)
    return dataset_key(namespace=NAMESPACE, name=name)


def spec_of(dataset: Dataset, *, scenario: Scenario) -> dict[str, object]:
    """The spec with which its owner applies a dataset: on so many nodes that it takes a bounded share of each."""
    count = math.ceil(dataset.size_bytes / max(scenario.cache_bytes * LARGEST_SHARE, 1.0))
    partition = {"mode": "Partition", "nodeCount": min(max(count, 1), scenario.nodes)}
    limit = scenario.jobs_per_copy
    access = {"maxConcurrentJobs": limit, "onLimit": "Clone" if scenario.clones else "Suspend"}
    return {
        "source": {"uri": "s3://bucket/" + dataset.name.replace("/", "-").lower()},
        "placement": {"mode": "Auto"} if scenario.auto_placement else partition,
        **({"access": access} if limit else {}),
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
