"""The jobs of one pass over the queue: those that wait, and what those take that were admitted."""

import logging
from collections.abc import Iterable, Sequence

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.control.context import Stores
from tdcs.control.job.queue import queue_snapshot
from tdcs.control.job.queue.data_pictures import DataPictures
from tdcs.control.job.queue.job_facts import EPOCH, KnownFacts
from tdcs.control.job.queue.pod_demand import PodDemand, PodDemands
from tdcs.control.job.queue.turns import Turns
from tdcs.control.job_index import indexed
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.decide.kueue.workload_standing import local_queue
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue import copy_places
from tdcs.decide.queue.copy_places import CopyPlaces, PlaceRequest
from tdcs.decide.queue.data_wait import DataOf, JobData, no_data
from tdcs.decide.queue.fair_share import Shares
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.job_order import aged
from tdcs.decide.queue.job_turn import START_SECONDS, JobTurn, bounded_wait
from tdcs.decide.queue.namespace_quota import Allowances, QuotaCharge
from tdcs.decide.queue.node_requests import without_nodes_of_others
from tdcs.decide.queue.occupants import Occupant, deleted_pods, ends_in, measured_in
from tdcs.decide.queue.pod_admission import MAX_PASSES
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queue_stop import StopPolicy, stop_policy
from tdcs.decide.queue.queued_job import Growth, QueuedJob
from tdcs.decide.queue.share_owners import ShareOwners
from tdcs.model.kube_objects import Key, Object
from tdcs.model.pod_resources import Amounts

_log = logging.getLogger(__name__)

KEPT_TURNS = 3
"""So often a job that was passed too often may give its room back, and nodes stay set aside for it while it pauses: the
pauses grow, and in longer ones others use the nodes."""


class Entries:
    """What one pass over the queue collects."""

    def __init__(self, stores: Stores, *, now: str, share_owners: ShareOwners) -> None:
        owners = queue_snapshot.owners(stores)
        self.placed = queue_snapshot.placed_pods(stores, owners)
        self.existing = queue_snapshot.existing_pods(stores, owners)
        self.quotas = queue_snapshot.quotas_by_namespace(stores)
        self.allowances = Allowances(stores.resource_quotas)
        self.places = CopyPlaces()
        self.waiting: list[QueuedJob] = []
        self.running: list[QueuedJob] = []
        self.taken_by_job = queue_snapshot.taken_by_jobs(stores, owners)
        self.started = queue_snapshot.started_at(stores, owners)
        self.occupants = [
            deleted_pods(takes, gone_in=seconds_between(now, gone_by), grace=grace, gone_by=gone_by)
            for (gone_by, grace), takes in queue_snapshot.taken_by_deleted(stores).items()
        ]
        self.news: list[Key] = []
        self.now = seconds_between(EPOCH, now)
        self.holder, self.aside = "", frozenset[str]()
        self.weights = share_owners.weights_in(stores.namespaces)
        self.asking: dict[str, str] = {}
        self.stopped: dict[str, bool] = {}
        self._nodes = stores.nodes

    def schedule(
        self,
        *,
        room: queue_snapshot.NodeRoom,
        max_passes: int = MAX_PASSES,
        fair: bool = True,
        preempts: bool = False,
        aging: float = 0.0,
        data_of: DataOf = no_data,
    ) -> Schedule:
        """The queue with every job admitted that fits. What quotas and datasets allow is used up by that.

        Args:
            room: the nodes.
            max_passes: how often a job may be passed before nodes are set aside for it.
            fair: whether namespaces take turns.
            preempts: whether jobs may take the place of others.
            aging: seconds of waiting after which a job counts as of the next higher priority; 0: never.
            data_of: where the data of a job is.
        """
        nodes = Nodes(free={}, capacity={})
        if self.waiting:
            nodes = Nodes(
                free=room.free(), capacity=room.capacity(), lasting=room.lasting(), empty=room.empty
            )
        waiting: Sequence[QueuedJob] = self.waiting
        if self.asking:
            created = {
                name: str(node["metadata"].get("creationTimestamp") or "")
                for (_, name), node in self._nodes.items()
            }
            waiting = without_nodes_of_others(waiting, asking=self.asking, created=created)
        return schedule(
            waiting=aged(waiting, period=aging),
            occupants=self.occupants,
            nodes=nodes,
            holder=self.holder,
            aside=self.aside,
            max_passes=max_passes,
            allowances=self.allowances,
            places=self.places,
            running=self.running,
            shares=Shares(used=self._used(), weights=self.weights) if fair else None,
            preempts=preempts,
            data_of=data_of,
        )

    def occupy(self, occupant: Occupant) -> None:
        """Note what a job takes of nodes, if it takes something."""
        if occupant.takes or occupant.reserved:
            self.occupants.append(occupant)

    def leaves(self, key: Key, uid: str) -> None:
        """Note what pods take of nodes whose job was not admitted, or is no more: they are being ended."""
        self.occupy(Occupant(key=key, uid=uid, priority=0, takes=self.taken_by_job.get(uid, {}), leaves=True))

    def _used(self) -> dict[str, Amounts]:
        """What the jobs of each namespace that run take."""
        used: dict[str, dict[str, int]] = {}
        for job in self.running:
            mine = used.setdefault(job.owner, {})
            for name, value in job.asks.items():
                mine[name] = mine.get(name, 0) + value
        return dict(used)


class Collector:
    """Reads the jobs for a pass over the queue.

    Args:
        kueue: whether jobs with the label of a queue are Kueue's. Those that wait are not in this queue then; those
            that were admitted have their room and their places as any other.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        demands: PodDemands,
        room: queue_snapshot.NodeRoom,
        turns: Turns,
        max_passes: int = MAX_PASSES,
        kueue: bool = False,
        facts: KnownFacts | None = None,
        share_owners: ShareOwners | None = None,
    ) -> None:
        self._share_owners = share_owners or ShareOwners()
        self.facts = facts or KnownFacts()
        self._stores = stores
        self._demands = demands
        self._room = room
        self._turns = turns
        self._max_passes = max_passes
        self._kueue = kueue

    def at(
        self, stores: Stores, *, demands: PodDemands, room: queue_snapshot.NodeRoom, turns: Turns
    ) -> "Collector":
        """The same of copies of the views and of what is known, for a thread."""
        return Collector(
            stores=stores,
            demands=demands,
            room=room,
            turns=turns,
            max_passes=self._max_passes,
            kueue=self._kueue,
            facts=self.facts,
            share_owners=self._share_owners,
        )

    def requests_of(self, obj: Object) -> tuple[PlaceRequest, ...]:
        """The places that a job takes at its datasets."""
        metadata = obj["metadata"]
        datasets = self.facts.of(str(metadata.get("uid", "")), obj).datasets
        if not datasets:
            return ()
        return copy_places.requests_of(
            namespace=metadata.get("namespace", ""), datasets=datasets, dataset_objects=self._stores.datasets
        )

    def places_but(self, uid: str) -> CopyPlaces:
        """The places that all jobs have taken but one."""
        places = CopyPlaces()
        for key, obj in self._stores.live_jobs().items():
            other_uid = str(obj["metadata"].get("uid", ""))
            facts = self.facts.of(other_uid, obj)
            admitted = facts.admitted or self._turns.of(other_uid).admitted is not None
            if admitted and other_uid != uid and not facts.going:
                places.take(key, self.requests_of(obj))
        return places

    def data_of(self) -> DataOf:
        """Where the data of the jobs in this queue is, by the current views."""
        pictures = DataPictures(stores=self._stores)

        def found(job: QueuedJob) -> JobData | None:
            obj = self._stores.training_jobs.get(job.key)
            demand = self._demands.of(obj) if obj is not None else None
            turn = self._turns.of(job.uid)
            # One whose pods found no place in what others left takes what there is.
            if obj is None or demand is None or not demand.spec.datasets or turn.attempts:
                return None
            wait = turn.data_wait
            return pictures.of_job(
                demand,
                namespace=job.key[0],
                replicas=self.replicas(obj, demand),
                room=self._room,
                run_seconds=pictures.run_seconds(
                    namespace=job.key[0],
                    template=demand.template,
                    deadline=demand.spec.run_policy.active_deadline_seconds,
                ),
                seconds_left=None if wait is None else seconds_between(self._turns.now(), wait.until),
            )

        return found

    def _ran(self, namespace: str, demand: PodDemand) -> float | None:
        """Seconds that jobs of the same template ran; None: none has ended yet that is known."""
        return indexed(self._stores.training_jobs).ran(namespace, demand.template)

    def collect(self) -> "Entries":
        """All jobs of the cluster that have not ended. One that cannot be understood stops no other."""
        now, turns = self._turns.now(), self._turns
        entries = Entries(self._stores, now=now, share_owners=self._share_owners)
        for key, obj in self._stores.live_jobs().items():
            uid = str(obj["metadata"].get("uid", ""))
            try:
                self._enter(entries, key, obj, uid)
                if turns.of(uid).unreadable:
                    turns.change(uid, unreadable="")
            except Exception as error:
                if not turns.of(uid).unreadable:
                    _log.exception("TrainingJob %s cannot be queued", "/".join(key))
                    entries.news.append(key)
                text = (
                    f"its spec cannot be understood ({type(error).__name__}: {error}): correct its templates"
                )
                turns.change(uid, unreadable=text)
        return entries

    def _enter(self, entries: "Entries", key: Key, obj: Object, uid: str) -> None:
        """Put a job into the pass: as one that waits, as one that was admitted, or as pods that leave."""
        demand, turn, facts = self._demands.of(obj), self._turns.learn(uid, obj), self.facts.of(uid, obj)
        if turn.data_wait is not None and turn.data_wait != (
            wait := bounded_wait(turn.data_wait, now=self._turns.now())
        ):
            turn = self._turns.change(uid, data_wait=wait)
        if demand is None and not facts.going:
            return
        if demand is None or facts.going or demand.spec.run_policy.suspend:
            entries.leaves(key, uid)
            return
        if facts.admitted and turn.admitted is not None:
            turn = self._turns.change(uid, admitted=None)  # from now on its status says so
        if facts.admitted and turn.workers is not None and turn.workers <= (facts.admitted_workers or 0):
            turn = self._turns.change(uid, workers=None)
        if facts.admitted or turn.admitted is not None:
            job = self._job(entries, key, obj, demand, runs=True)
            self._enter_admitted(entries, obj, demand, job)
        elif self._waits(entries, obj, demand, turn):
            entries.leaves(key, uid)
            job = self._job(entries, key, obj, demand, runs=False)
            entries.waiting.append(job)
            if turn.nodes_since:
                entries.asking[uid] = turn.nodes_since
        else:
            entries.leaves(key, uid)
            return
        if turn.aside_since:
            entries.holder, entries.aside = uid, turn.aside

    def _waits(self, entries: "Entries", obj: Object, demand: PodDemand, turn: JobTurn) -> bool:
        """Whether a job that was not admitted is one of those of this queue that wait."""
        if self._is_kueues(obj) or self._is_stopped(entries, obj["metadata"].get("namespace", "")):
            return False
        # One that lost its turn by no fault of its own keeps the nodes that are set aside for it, a few times.
        keeps_turn = turn.passed >= self._max_passes and turn.attempts <= KEPT_TURNS
        pauses = self._turns.pause_left(str(obj["metadata"].get("uid", ""))) is not None
        return queues(demand.spec, self.requests_of(obj)) and (not pauses or keeps_turn)

    def _is_kueues(self, obj: Object) -> bool:
        return bool(local_queue(obj, kueue=self._kueue))

    def _is_stopped(self, entries: "Entries", namespace: str) -> bool:
        if namespace not in entries.stopped:
            policy = stop_policy(self._stores.namespaces, namespace)
            entries.stopped[namespace] = policy is not StopPolicy.NONE
        return entries.stopped[namespace]

    def _enter_admitted(self, entries: "Entries", obj: Object, demand: PodDemand, job: QueuedJob) -> None:
        """What a job takes that was admitted, of nodes also for its pods that have none yet, and what it asks for
        next to that."""
        key, uid, spec = job.key, job.uid, demand.spec
        replicas, quotas = self.replicas(obj, demand), entries.quotas.get(key[0], ())
        entries.allowances.take(
            key[0],
            queue_snapshot.quota_charges(
                quotas, demand, replicas=replicas, present=entries.existing.get(uid, {})
            ),
        )
        entries.places.take(key, job.access)
        started, turn = entries.started.get(uid), self._turns.of(uid)
        latest = ends_in(
            started=started,
            deadline=spec.run_policy.active_deadline_seconds,
            grace=demand.grace,
            now=entries.now,
        )
        if turn.ends_by:
            latest = min(latest, max(seconds_between(self._turns.now(), turn.ends_by), 0.0) + demand.grace)
        entries.occupy(
            Occupant(
                key=key,
                uid=uid,
                priority=job.priority,
                takes=entries.taken_by_job.get(uid, {}),
                reserved=queue_snapshot.pod_groups(
                    demand, replicas=replicas, room=self._room, present=entries.placed.get(uid, {})
                ),
                started=entries.now if started is None else started,
                leaves=bool(turn.yields),
                grace=demand.grace,
                # One without a gang would have its pods made again at once.
                may_yield=spec.scheduling.gang
                and self.facts.of(uid, obj).admitted
                and not self._demands.missing_class(demand.priority_class)  # nobody knows how important it is
                and not self._is_kueues(obj)
                and not (obj.get("status") or {}).get("queueName"),
                reload_seconds=self._reload_seconds(obj),
                ends_in=latest,
                measured_in=measured_in(
                    started=started, ran=self._ran(key[0], demand), grace=demand.grace, now=entries.now
                ),
            )
        )
        entries.running.append(job)
        if (growing := job.growing()) is not None:
            entries.waiting.append(growing)

    def _job(self, entries: "Entries", key: Key, obj: Object, demand: PodDemand, *, runs: bool) -> QueuedJob:
        """A job as the queue sees it; `runs`: it was admitted."""
        spec, uid = demand.spec, str(obj["metadata"].get("uid", ""))
        turn, facts, replicas = self._turns.of(uid), self.facts.of(uid, obj), self.replicas(obj, demand)
        pauses = self._turns.pause_left(uid) is not None
        ready = runs or (
            (turn.asks or pauses or facts.data_ready)
            and not self._demands.missing_class(demand.priority_class)
        )
        charges: tuple[QuotaCharge, ...] = ()
        if spec.scheduling.gang and not runs:
            quotas = entries.quotas.get(key[0], ())
            charges = queue_snapshot.quota_charges(quotas, demand, replicas=replicas, present={})
        growth = None
        if not (pauses or self._is_kueues(obj) or self._is_stopped(entries, key[0])):
            growth = self._growth(demand, replicas["Worker"], entries, key)
        # Without a gang its pods come as they find room. One that was admitted takes all of its pods while it runs.
        pods = replicas if runs or spec.scheduling.gang else {}
        return QueuedJob(
            key=key,
            uid=uid,
            priority=self._demands.priority(demand.priority_class),
            submitted=facts.submitted,
            data_ready=ready,
            passed=turn.passed,
            pauses=pauses,
            groups=tuple(queue_snapshot.pod_groups(demand, replicas=pods, room=self._room, present={})),
            charges=charges,
            access=self.requests_of(obj),
            rank=spec.scheduling.rank,
            waited=max(entries.now - facts.waits_since, 0.0) if facts.waits_since is not None else 0.0,
            lasts=START_SECONDS
            + ends_in(
                started=None, deadline=spec.run_policy.active_deadline_seconds, grace=demand.grace, now=0.0
            ),
            # One whose pods found no place in what others left ends nobody's work again before it has run.
            may_preempt=spec.scheduling.gang
            and not turn.attempts
            and self._demands.may_preempt(demand.priority_class),
            growth=growth,
            share=self._share_owners.of(self._stores.namespaces, key[0]),
        )

    def _reload_seconds(self, obj: Object) -> float:
        """How long the last load of a job's data took, of the dataset that took longest."""
        datasets = (
            self._stores.datasets.get((obj["metadata"].get("namespace", ""), name))
            for name in datasets_of(obj)
        )
        loads = (((dataset or {}).get("status") or {}).get("loadSeconds") for dataset in datasets)
        return float(max((seconds for seconds in loads if isinstance(seconds, int)), default=0))

    def _growth(self, demand: PodDemand, workers: int, entries: "Entries", key: Key) -> Growth | None:
        spec, worker = demand.spec, demand.roles["Worker"]
        missing = worker.replicas - workers
        if not spec.is_elastic_gang or missing <= 0:
            return None
        nodes = self._room.eligible(worker.template["spec"], sign=demand.signatures["Worker"])
        quotas = entries.quotas.get(key[0], ())
        return Growth(
            base=workers,
            pods=PodGroup(count=missing, request=demand.requests["Worker"], nodes=nodes),
            charges=queue_snapshot.quota_charges(quotas, demand, replicas={"Worker": 1}, present={}),
        )

    def replicas(self, obj: Object, demand: PodDemand) -> dict[Role, int]:
        """How many pods of each role a job has been admitted with, or asks for to begin with."""
        spec, roles = demand.spec, demand.roles
        replicas = {role: role_spec.replicas for role, role_spec in roles.items()}
        if spec.is_elastic_gang and spec.elastic is not None:
            uid = obj["metadata"].get("uid", "")
            facts, granted = self.facts.of(uid, obj), self._turns.of(uid).workers
            admitted_workers = (
                (facts.admitted_workers or replicas["Worker"])
                if facts.admitted
                else spec.elastic.min_replicas
            )
            replicas["Worker"] = min(replicas["Worker"], max(granted or 0, admitted_workers))
        return replicas


def queues(spec: TrainingJobSpec, places: Iterable[PlaceRequest]) -> bool:
    """Whether a job waits in the queue: as a gang for its room, or for a place at a dataset that has a limit."""
    return spec.scheduling.gang or any(request.limit for request in places)
