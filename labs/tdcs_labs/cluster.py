"""The nodes and their GPUs: who runs where. Whose turn it is says the operator's own pass over the queue."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.queue import fair_share, gang_turn
from tdcs.decide.queue.copy_places import CopyPlaces, Key, PlaceRequest
from tdcs.decide.queue.data_wait import DataOf, JobData, no_data
from tdcs.decide.queue.occupants import Occupant
from tdcs.decide.queue.queue_nodes import EmptyNodes, Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.model.pod_resources import Amounts
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario
from tdcs_labs.scheduling import NOTHING_LEFT, place_pods

#: How many waiting jobs a pass looks at: those further back would only pass these.
WINDOW = 64


class Cluster:
    """Free GPUs by node, the queue, and the running jobs by dataset."""

    def __init__(self, *, scenario: Scenario) -> None:
        self.scenario = scenario
        self.free = dict.fromkeys(scenario.node_names(), scenario.gpus_per_node)
        self.queue: list[SimJob] = []
        self.holder = ""
        self.aside: frozenset[str] = frozenset()
        self.running: dict[int, SimJob] = {}
        self.readers: dict[str, dict[int, SimJob]] = {}
        self.requests: Callable[[SimJob], tuple[PlaceRequest, ...]] | None = None
        self.data_of: Callable[[SimJob], JobData | None] | None = None
        self.waits_until: dict[str, float] = {}
        self._capacity: Mapping[str, Amounts] = {
            node: {GPU_RESOURCE: gpus} for node, gpus in self.free.items()
        }
        self._empty = EmptyNodes()

    def enqueue(self, job: SimJob) -> None:
        """Put a job into the queue, which is in the order of the operator's."""
        self.queue.append(job)
        if len(self.queue) > 1 and self.queue[-2].queued.order > job.queued.order:
            self.queue.sort(key=lambda job: job.queued.order)

    def next_turns(self, *, now: float) -> Schedule:
        """The queue after one pass: whose turn it is now. Those that are admitted stay in the queue until `place`."""
        if not self.queue:
            self.holder, self.aside = "", frozenset()
            return Schedule()
        used = self._used() if self.scenario.fair_share else {}
        if self.scenario.fair_share:
            self._take_turns(used)
        schedule = gang_turn.schedule(
            waiting=self._waiting(),
            nodes=Nodes(
                free={node: {GPU_RESOURCE: gpus} for node, gpus in self.free.items()},
                capacity=self._capacity,
                empty=self._empty,
            ),
            holder=self.holder,
            aside=self.aside,
            places=self._places(),
            running=[job.queued for job in self.running.values()],
            shares=fair_share.Shares(used=used) if self.scenario.fair_share else None,
            occupants=[
                _occupant(job, now=now if self.scenario.known_ends else None) for job in self.running.values()
            ]
            if self.scenario.preemption or self.scenario.known_ends
            else (),
            preempts=self.scenario.preemption,
            data_of=self._data_of(now),
        )
        for uid, choice in schedule.data_waits.items():
            self.waits_until[uid] = now + choice.longest_seconds
        for uid in schedule.waited_in_vain:
            self.waits_until[uid] = now
        self.holder, self.aside = schedule.holder, schedule.aside
        if schedule.passed:
            for job in self.queue[: WINDOW if self.requests is None else None]:
                if (passed := schedule.passed.get(job.queued.uid)) is not None:
                    job.queued = replace(job.queued, passed=passed)
        return schedule

    def _data_of(self, now: float) -> DataOf:
        """Where the data of the waiting jobs is, and how long they may wait for a place there."""
        data_of = self.data_of
        if data_of is None:
            return no_data
        jobs = {job.queued.uid: job for job in self.queue}

        def found(job: QueuedJob) -> JobData | None:
            data, until = data_of(jobs[job.uid]), self.waits_until.get(job.uid)
            return data if data is None or until is None else replace(data, seconds_left=until - now)

        return found

    def next_end_of_wait(self, *, now: float) -> float:
        """When the next job has waited long enough for a place at its data; infinite when none waits."""
        waits = (self.waits_until.get(job.queued.uid, math.inf) for job in self.queue if self.waits_until)
        return min((until for until in waits if until > now), default=math.inf)

    def _waiting(self) -> list[QueuedJob]:
        """The waiting jobs that are looked at, first first; all of them where they wait for places at datasets, too."""
        if self.requests is None:
            return [job.queued for job in self.queue[:WINDOW]]
        return [replace(job.queued, access=self.requests(job)) for job in self.queue]

    def _places(self) -> CopyPlaces:
        readers: dict[str, list[Key]] = {}
        if self.requests is not None:
            for job in self.running.values():
                readers.setdefault(job.dataset.name, []).append(job.queued.key)
        return CopyPlaces(readers)

    def _used(self) -> dict[str, Amounts]:
        used: dict[str, int] = {}
        for job in self.running.values():
            used[job.owner] = used.get(job.owner, 0) + job.gpus
        return {owner: {GPU_RESOURCE: gpus} for owner, gpus in used.items()}

    def _take_turns(self, used: Mapping[str, Amounts]) -> None:
        """Order the queue by the shares of the tenants: of a long one a pass looks at the first jobs only."""
        self.queue = fair_share.turns(
            self.queue,
            order=lambda job: job.queued.order,
            used=used,
            total={GPU_RESOURCE: self.scenario.gpus},
            weights={},
        )

    def place(
        self,
        job: SimJob,
        *,
        scores: Mapping[str, int],
        now: float,
        leave: Mapping[int, Collection[str]] = NOTHING_LEFT,
    ) -> bool:
        """Start a job whose turn it is, on the nodes with the best scores; `leave`: see `place_pods`.

        False: its pods do not fit any more, because those of jobs before it went to other nodes than the pass reckoned
        with. It stays in the queue, as a job does that gives its places back.
        """
        nodes = place_pods(pods=job.pods, free_gpus=self.free, scores=scores, leave=leave)
        if nodes is None:  # by score they may stand in each other's way
            nodes = place_pods(pods=job.pods, free_gpus=self.free, scores={}, leave=leave)
        if nodes is None:
            return False
        self.queue.remove(job)
        self.waits_until.pop(job.queued.uid, None)
        for node, gpus in zip(nodes, job.pods, strict=True):
            self.free[node] -= gpus
        job.start(now=now, nodes=nodes)
        self.running[job.number] = job
        self.readers.setdefault(job.reads, {})[job.number] = job
        return True

    def victims_of(self, turns: Schedule) -> list[SimJob]:
        """The jobs that give way to another one now."""
        return (
            [job for job in self.running.values() if job.queued.uid in turns.victims] if turns.victims else []
        )

    def jobs_of(self, turns: Sequence[QueuedJob]) -> list[SimJob]:
        """The jobs of the simulation for those of a pass, in its order."""
        by_uid = {job.queued.uid: job for job in self.queue} if turns else {}
        return [by_uid[turn.uid] for turn in turns]

    def release(self, job: SimJob) -> None:
        """Give a finished job's GPUs back."""
        for node, gpus in zip(job.nodes, job.pods, strict=True):
            self.free[node] += gpus
        del self.running[job.number]
        del self.readers[job.reads][job.number]
        if not self.readers[job.reads]:
            del self.readers[job.reads]


def _occupant(job: SimJob, *, now: float | None) -> Occupant:
    """A running job as the operator sees it; `now`: where it is known when it ends, at its present speed."""
    takes: dict[str, dict[str, int]] = {}
    for node, gpus in zip(job.nodes, job.pods, strict=True):
        takes.setdefault(node, {GPU_RESOURCE: 0})[GPU_RESOURCE] += gpus
    queued = job.queued
    return Occupant(
        key=queued.key,
        uid=queued.uid,
        priority=queued.priority,
        takes=takes,
        started=job.started,
        measured_in=job.ends_in(now=now) if now is not None else math.inf,
    )
