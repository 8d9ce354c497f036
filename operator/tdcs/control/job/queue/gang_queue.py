"""The queue of the whole cluster: admits every job that fits, and remembers which until the API server says so.

Everything it decides from is observed again each time: which jobs wait, which were admitted and how often a job was
passed is in the jobs' own statuses. A restart loses what the last pass has admitted that no status says yet, and
decides that again; since when gangs are short of places, so that they wait for their whole patience again; and which
nodes pods leave to larger ones.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tdcs.api import names
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.control.context import Settings, Stores, WorkKey
from tdcs.control.job.queue import queue_snapshot
from tdcs.control.job.queue.gang_requeue import PLACEMENT_SECONDS, Requeues
from tdcs.control.job.queue.job_room import JobRoom
from tdcs.control.job.queue.pod_demand import PodDemands
from tdcs.control.job.queue.queue_entries import Collector, Entries, queues
from tdcs.control.job.queue.queue_passes import QueuePasses
from tdcs.control.job.queue.turns import Turns
from tdcs.control.operator_metrics import OperatorMetrics
from tdcs.decide.queue import copy_places, node_requests
from tdcs.decide.queue.job_turn import data_wait_of, ends_by
from tdcs.decide.queue.node_requests import NodeProvisioning
from tdcs.decide.queue.pod_admission import MAX_PASSES, Admission, Reason
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queue_stop import StopPolicy, stop_policy
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.share_owners import ShareOwners, parsed_weights
from tdcs.decide.queue.wait_message import admission_of, released_admission, waiting_admission
from tdcs.kube.events import utc_now
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import TRAINING_JOBS

REPORTED_AT_ONCE = 10
"""Jobs at the head of the queue whose new position is reported at once; that of the others with the next resync."""


class GangQueue:
    """Says which jobs may start, and how many workers an elastic one may have.

    It looks at the whole queue once for many changes, and admits every job that fits then; a pass of a job only
    asks for its own answer. Until `start` it admits none: an operator that stands by must not.

    Args:
        queue: where the passes of jobs are asked for.
        max_passes: how often a job may be passed by later ones before nodes are set aside for it.
        patience: seconds that the pods of a job that was admitted have to get their nodes.
        fair: whether namespaces take turns by their shares.
        share_owners: whose shares these are; None: each namespace has its own.
        preempts: whether jobs may take the place of running ones of lower priority.
        aging: seconds of waiting after which a job counts as of the next higher priority; 0: never.
        kueue: whether jobs with the label of a queue are Kueue's: then they are not in this one.
        provisioning: how gangs ask for nodes that are not there.
        metrics: of the operator, which measure the passes over the queue; None: nobody does.

    Attributes:
        turns: what is known of each job.
        requeues: the jobs with pods that got no node in time, and pause.
        job_room: where the pods of a job find room.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        queue: KeyedQueue[WorkKey],
        max_passes: int = MAX_PASSES,
        patience: float = PLACEMENT_SECONDS,
        fair: bool = True,
        share_owners: ShareOwners | None = None,
        preempts: bool = False,
        aging: float = 0.0,
        kueue: bool = False,
        provisioning: NodeProvisioning = "Off",
        metrics: OperatorMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self.turns = Turns(clock=clock, now=now)
        self.requeues = Requeues(patience=patience, turns=self.turns)
        self._stores = stores
        self._max_passes = max_passes
        self._fair = fair
        self._preempts = preempts
        self._aging = aging
        self._provisioning = provisioning
        self._queue = queue
        self._clock = clock
        self._demands = PodDemands(stores=stores)
        self._room = queue_snapshot.NodeRoom(stores=stores)
        self._collector = Collector(
            stores=stores,
            demands=self._demands,
            room=self._room,
            turns=self.turns,
            max_passes=max_passes,
            kueue=kueue,
            share_owners=share_owners,
        )
        self.job_room = JobRoom(
            stores=stores, demands=self._demands, nodes=self._room, collector=self._collector
        )
        self._schedule: Schedule | None = None
        self._withdrawn: set[str] = set()
        self._places_taken = False
        self._passes = QueuePasses(self._admit, metrics=metrics, clock=clock)

    @classmethod
    def by(
        cls, settings: Settings, *, stores: Stores, queue: KeyedQueue[WorkKey], **more: Any
    ) -> "GangQueue":
        """The queue as these settings of the operator have it: for the operator, and for whoever asks what it says."""
        return cls(
            stores=stores,
            queue=queue,
            patience=settings.gang_patience_seconds,
            fair=settings.queue_order == "FairShare",
            share_owners=ShareOwners(
                label=settings.fair_share_label, weights=parsed_weights(settings.fair_share_weights)
            ),
            preempts=settings.preemption,
            aging=settings.queue_aging_seconds,
            kueue=settings.kueue,
            provisioning=settings.node_provisioning,
            **more,
        )

    def start(self) -> None:
        self._passes.start()

    def touch(self, *, nodes: bool = False, overheads: bool = False) -> None:
        """Something changed on which the queue may depend.

        Args:
            nodes: labels, taints or sizes of nodes did.
            overheads: what RuntimeClasses add to pods did.
        """
        if overheads:
            self._demands.clear()
        if nodes:
            self._room.clear()
        self._passes.ask()

    def close(self) -> None:
        self._passes.close()

    def overdue_seconds(self) -> float:
        """How long changes have waited for a pass over the queue that succeeds; 0 when none waits."""
        return self._passes.overdue_seconds()

    def admission(self, obj: Object) -> Admission | None:
        """Whether a job whose data is ready may start now; None: the answer comes with another pass.

        The answer yes is binding until it is withdrawn.
        """
        metadata = obj["metadata"]
        uid = metadata["uid"]
        turn = self.turns.learn(uid, obj)
        if turn.admitted is not None and turn.awaits_nodes and self._provisioning == "Release":
            return released_admission(turn.admitted)
        if turn.admitted is not None:
            return admission_of(turn.admitted)
        if (pausing := self.requeues.admission(uid)) is not None:
            return pausing
        if not turn.asks:
            self.turns.change(uid, asks=True)
            self.touch()
        if turn.unreadable:
            return Admission(admitted=False, data_ready=True, reason=Reason.INVALID, message=turn.unreadable)
        demand = self._demands.of(obj)
        missing = self._demands.missing_class(demand.priority_class) if demand is not None else ""
        if missing:
            return Admission(admitted=False, data_ready=True, reason=Reason.NO_PRIORITY, message=missing)
        waiting = self._schedule.waiting if self._schedule is not None else ()
        if self._schedule is None or not any(job.uid == uid and job.data_ready for job in waiting):
            return None
        return waiting_admission(self._schedule, uid, data_wait=turn.data_wait)

    def awaited_nodes(self, dataset: Key) -> frozenset[str]:
        """See `JobRoom.awaited_nodes`."""
        return self.job_room.awaited_nodes(dataset)

    def awaits_data(self, uid: str) -> bool:
        """Whether a job that could start waits for room on the nodes of its data."""
        return self._schedule is not None and uid in self._schedule.awaits_data

    def queues(self, obj: Object, spec: TrainingJobSpec) -> bool:
        """Whether a job enters through the queue: a gang does, and one with a dataset that has a limit of jobs."""
        requests = copy_places.requests_of(
            namespace=obj["metadata"].get("namespace", ""),
            datasets=[use.name for use in spec.datasets],
            dataset_objects=self._stores.datasets,
        )
        return queues(spec, requests)

    def stop_policy(self, namespace: str) -> StopPolicy:
        """Whether jobs of a namespace may start."""
        return stop_policy(self._stores.namespaces, namespace)

    def order(self) -> list[Key]:
        waiting = self._schedule.waiting if self._schedule is not None else ()
        return [job.key for job in waiting if not job.runs]

    def workers(self, uid: str) -> int | None:
        """How many workers an elastic job may have, where its status does not say so yet; None when it does."""
        return self.turns.of(uid).workers

    def growth(self, uid: str) -> Admission | None:
        """What a job that runs waits for before it gets more workers; None when it waits for none."""
        waiting = self._schedule.waiting if self._schedule is not None else ()
        if self._schedule is None or not any(job.uid == uid and job.runs for job in waiting):
            return None
        return waiting_admission(self._schedule, uid)

    def nodes_to_leave(self, obj: Object, role: Role) -> frozenset[str]:
        """The nodes that pods of a role leave to larger ones, as it was when the job was admitted. An operator that has
        started since knows of none."""
        by_gpus, demand = self.turns.of(obj["metadata"]["uid"]).leave, self._demands.of(obj)
        if not by_gpus or demand is None:
            return frozenset()
        return by_gpus.get(demand.requests[role].get(names.GPU_RESOURCE, 0), frozenset())

    def clear_nodes_to_leave(self, uid: str) -> None:
        """The pods of a job may exist: what they carry about nodes changes no more."""
        if self.turns.of(uid).leave:
            self.turns.change(uid, leave={})

    def withdraw(self, uid: str) -> None:
        """The job does not start now: its data went, it was suspended, or its children are refused."""
        turn = self.turns.of(uid)
        self._withdrawn.add(uid)
        if (after := turn.withdrawn()) != turn:
            self.turns.put(uid, after)
        if turn.asks or turn.admitted is not None:
            self.touch()

    def missing_place(self, obj: Object) -> str:
        """Why a job that another admitter decides about has no place at its datasets now; empty when it has."""
        metadata = obj["metadata"]
        uid = str(metadata["uid"])
        requests = self._collector.requests_of(obj)
        if self.turns.of(uid).admitted is not None or not any(request.limit for request in requests):
            return ""
        places = self._collector.places_but(uid)
        full = places.full(requests)
        return "" if full is None else places.sentence(full)

    def take_places(self, obj: Object) -> str:
        """The places at its datasets are taken by a job that another admitter lets start; gives why there are none,
        empty when it has them. They are its own until its status says that it was admitted, or it withdraws."""
        if short := self.missing_place(obj):
            return short
        self.turns.change(str(obj["metadata"]["uid"]), admitted=0, awaits_place=False)
        self._places_taken = True
        return ""

    def await_place(self, obj: Object) -> None:
        """Have a pass of a job that another admitter decides about, once its datasets may have a place for it."""
        self.turns.change(str(obj["metadata"]["uid"]), awaits_place=True)

    def return_workers(self, uid: str) -> None:
        """Workers that were admitted got no node; the job goes on without them."""
        self.turns.change(uid, workers=None)
        self._withdrawn.add(uid)
        self.touch()

    def passed(self, uid: str) -> int:
        """How many later jobs were admitted before a job that waits."""
        return self.turns.of(uid).passed

    async def _admit(self) -> None:
        """Admit the jobs that fit, and wake those whose answer is new.

        A thread looks at copies of the views, so that requests go on being answered and the Lease is renewed however
        long that takes. What has changed meanwhile makes another pass; of what is not there any more nothing is
        admitted.
        """
        sight = self._sight()
        entries, schedule, asking = await self._passes.measure(
            asyncio.to_thread(self._decide, sight.collector, sight.room, sight.after)
        )
        self._conclude(sight, entries, schedule, asking)

    def look(self) -> tuple[Entries, Schedule]:
        """One pass here and now, for whoever asks what the queue would say and is no operator: it asks for no pass of a
        job, and `admission` and what is next to it answer from it."""
        sight = self._sight()
        entries, schedule, asking = self._decide(sight.collector, sight.room, sight.after)
        self._conclude(sight, entries, schedule, asking)
        return entries, schedule

    def _sight(self) -> "_Sight":
        """What a pass looks at: copies of the views, as they are now."""
        for obj in self._stores.live_jobs().values():
            self.turns.learn(str(obj["metadata"].get("uid", "")), obj)
        stores, turns_before = queue_snapshot.copy_of(self._stores), self.turns.copy()
        turns, self._withdrawn, self._places_taken = turns_before.copy(), set(), False
        # Once: nodes that change while the thread looks at these make another value of what is worked out of them.
        room = self._room.at(stores)
        collector = self._collector.at(stores, demands=self._demands.at(stores), room=room, turns=turns)
        return _Sight(stores=stores, before=turns_before, after=turns, room=room, collector=collector)

    def _conclude(
        self, sight: "_Sight", entries: Entries, schedule: Schedule, asking: Sequence[QueuedJob]
    ) -> None:
        """Keep what a pass has decided of what is still there, and wake the jobs that have another answer."""
        stores, live = sight.stores, self._stores.live_jobs()
        keys = {str(obj["metadata"].get("uid", "")): key for key, obj in live.items()}
        self.turns.take_in(before=sight.before, after=sight.after)
        self.turns.keep(keys)
        self.requeues.drop_others(keys)
        self._demands.keep(keys)
        self._collector.facts.keep(keys)
        for key in entries.news:
            self._wake(key)
        stale = {job.uid for job in (*schedule.admitted, *asking) if self._is_stale(job, stores, live)}
        by = next((job for job in schedule.waiting if job.uid == schedule.holder and not job.runs), None)
        if by is not None and self._is_stale(by, stores, live):
            schedule = replace(schedule, victims={})
        self._take_in(schedule, keys=keys, stale=stale)
        if self._preempts:
            self._passes.ask_in(
                min((occupant.changes_in for occupant in entries.occupants), default=math.inf)
            )
        if self._provisioning != "Off":
            self._ask_for_nodes(schedule, asking=asking, keys=keys, stale=stale)
        for uid, turn in self.turns:
            if not turn.awaits_place or uid not in keys:
                continue
            if entries.places.full(self._collector.requests_of(live[keys[uid]])) is None:
                self._wake(keys[uid])

    def _decide(
        self, collector: Collector, room: queue_snapshot.NodeRoom, turns: Turns
    ) -> tuple[Entries, Schedule, Sequence[QueuedJob]]:
        """In a thread: the queue as it is in these copies, with every job admitted that fits, and those that ask for
        nodes."""
        entries = collector.collect()
        schedule = entries.schedule(
            room=room,
            max_passes=self._max_passes,
            fair=self._fair,
            preempts=self._preempts,
            aging=self._aging,
            data_of=collector.data_of(),
        )
        if self._provisioning == "Off":
            return entries, schedule, ()
        resting = {uid for uid, turn in turns if turn.nodes_until > self._clock()}
        # Those that were released wait in no queue any more, and count all the same.
        released = sum(turn.awaits_nodes for _, turn in turns) if self._provisioning == "Release" else 0
        most = max(node_requests.MOST_ASKING - released, 0)
        return entries, schedule, node_requests.askers(schedule, resting=resting, most=most)

    def _is_stale(self, job: QueuedJob, stores: Stores, live: Mapping[Key, Object]) -> bool:
        """Whether what a job was admitted by is not so any more: it has changed or gone, or its place was taken."""
        obj = live.get(job.key)
        if obj is None or job.uid in self._withdrawn or (self._places_taken and job.access):
            return True
        was, now = stores.training_jobs[job.key]["metadata"], obj["metadata"]
        fields = ("uid", "generation", "deletionTimestamp", "labels")
        return any(was.get(field) != now.get(field) for field in fields)

    def _take_in(self, schedule: Schedule, *, keys: Mapping[str, Key], stale: Collection[str]) -> None:
        """Keep what a pass has decided, and wake the jobs that have another answer, or of which a status has to say
        more.

        Args:
            schedule: what it has decided.
            keys: the jobs that there are, by uid.
            stale: those that it admitted by what is not so any more.
        """
        before = {job.uid for job in self._schedule.waiting if job.data_ready} if self._schedule else set()
        self._schedule = schedule
        for uid, passed in schedule.passed.items():
            self._count(uid, keys=keys, passed=passed)
        for uid, message in schedule.victims.items():
            if uid in keys and uid not in self._withdrawn:
                self.turns.change(uid, yields=message, preempted_by=schedule.preemptors[uid])
                self._wake(keys[uid], urgent=True)
        for uid, turn in self.turns:
            aside = schedule.aside if uid == schedule.holder else frozenset()
            if uid == schedule.holder or turn.aside_since:
                since = (turn.aside_since or self.turns.now()) if uid == schedule.holder else ""
                self._count(uid, keys=keys, aside=aside, aside_since=since)
        for uid, choice in schedule.data_waits.items():
            if uid not in self._withdrawn:
                self._count(uid, keys=keys, data_wait=data_wait_of(choice, now=self.turns.now()))
        for uid in schedule.waited_in_vain:
            wait = self.turns.of(uid).data_wait
            if wait is not None:
                self._count(uid, keys=keys, data_wait=wait.model_copy(update={"until": self.turns.now()}))
        for job in schedule.admitted:
            if job.uid in stale:
                self._passes.repeat()
            elif job.uid in keys:
                self.turns.change(
                    job.uid,
                    admitted=job.pod_count,
                    workers=schedule.workers.get(job.uid),
                    leave=schedule.leave.get(job.uid, {}),
                    asks=False,
                    ends_by=self._end_of(job) if job.uid in schedule.promised else "",
                )
                self._wake(job.key, urgent=True)
        entered = {job.uid for job in schedule.admitted}
        for uid, workers in schedule.workers.items():
            if uid not in entered and uid not in self._withdrawn and uid in keys:
                self.turns.change(uid, workers=workers)
                self._wake(keys[uid], urgent=True)
        for place, job in enumerate(schedule.waiting):
            moved = bool(schedule.admitted) and place < REPORTED_AT_ONCE
            asks = job.runs or self.turns.of(job.uid).asks
            if moved or (asks and job.uid not in before):
                self._wake(job.key)

    def _end_of(self, job: QueuedJob) -> str:
        """When a job ends that begins now as its deadline shows that it ends in time; empty: it has none any more."""
        obj = self._stores.training_jobs.get(job.key)
        demand = self._demands.of(obj) if obj is not None else None
        deadline = demand.spec.run_policy.active_deadline_seconds if demand is not None else None
        return ends_by(now=self.turns.now(), deadline=deadline) if deadline is not None else ""

    def _ask_for_nodes(
        self,
        schedule: Schedule,
        *,
        asking: Sequence[QueuedJob],
        keys: Mapping[str, Key],
        stale: Collection[str],
    ) -> None:
        """Note which jobs ask for nodes from now on, and which do not any more; released ones may have their pods."""
        release, uids = self._provisioning == "Release", {job.uid for job in asking}
        for job in schedule.waiting:
            turn = self.turns.of(job.uid)
            # One that waited and is admitted meanwhile keeps what it asked for until its pods run.
            if turn.nodes_since and job.uid not in uids and not job.runs and turn.admitted is None:
                self._count(job.uid, keys=keys, nodes_since="", nodes_came="")
        turns = self.turns
        # One may have learned meanwhile that nothing came of what it asked for, and pauses.
        new = [
            job
            for job in asking
            if job.uid in keys and not turns.of(job.uid).nodes_since and not turns.asking_left(job.uid)
        ]
        # What a released one takes of quotas and places is known to the next pass: the others come then.
        if release and new:
            self._passes.repeat()
        for job in new[:1] if release else new:
            if job.uid in stale or job.uid in self._withdrawn:
                continue
            self._count(job.uid, keys=keys, nodes_since=self.turns.now(), nodes_came="", nodes_reason="")
            if release:
                workers = job.growth.base if job.growth is not None else None
                self.turns.change(job.uid, admitted=job.pod_count, workers=workers, asks=False)
                self._wake(job.key, urgent=True)

    def _count(self, uid: str, *, keys: Mapping[str, Key], **fields: Any) -> None:
        """What is counted of a job changes; it is woken where its status has to say so."""
        turn = self.turns.of(uid)
        if uid in keys and turn.is_news(self.turns.change(uid, **fields), max_passes=self._max_passes):
            self._wake(keys[uid])

    def _wake(self, key: Key, *, urgent: bool = False) -> None:
        """Ask for a pass of a job; what starts pods goes before what only reports."""
        self._queue.add(WorkKey(TRAINING_JOBS, *key), urgent=urgent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What a pass looks at, and what it knew of the jobs before and knows after."""

    stores: Stores
    before: Turns
    after: Turns
    room: queue_snapshot.NodeRoom
    collector: Collector
