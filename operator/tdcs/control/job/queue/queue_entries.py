"""The jobs of one pass over the queue: those that wait, and what is reserved for those that were admitted."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.control.context import Stores
from tdcs.control.job.queue import queue_snapshot
from tdcs.control.job.queue.gang_requeue import Requeues
from tdcs.control.job.queue.pod_demand import PodDemand, PodDemands
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.decide.queue import job_places
from tdcs.decide.queue.copy_places import PlaceRequest, Places
from tdcs.decide.queue.gang_fit import PodGroup
from tdcs.decide.queue.gang_turn import Nodes, Schedule, schedule
from tdcs.decide.queue.kept_nodes import NodesToLeave
from tdcs.decide.queue.namespace_quota import Allowances
from tdcs.decide.queue.pod_admission import MAX_PASSES
from tdcs.decide.queue.queued_job import Growth, QueuedJob
from tdcs.decide.queue.whose_job import local_queue
from tdcs.model.kube_objects import Key, Object

_log = logging.getLogger(__name__)

_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(slots=True, kw_only=True)
class Memory:
    """What the queue knows of jobs, by their uid, and their statuses do not say yet.

    Attributes:
        requested: jobs with data that is ready, which ask to be admitted.
        admitted: jobs that were admitted, with the number of their pods.
        workers: how many workers elastic jobs were given.
        passed: how many later jobs were admitted before a job that waits.
        unreadable: jobs that cannot be understood, and why.
        place_waits: jobs of another admitter that wait for a place at their datasets.
        leave: which nodes the pods of jobs that were admitted leave to larger ones, by their GPUs; until they start.
    """

    requested: dict[str, Key] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    workers: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    leave: dict[str, NodesToLeave] = field(default_factory=dict)
    place_waits: dict[str, Key] = field(default_factory=dict)

    def copy(self) -> "Memory":
        """The same, for a pass that goes on in a thread."""
        return Memory(
            requested=dict(self.requested),
            admitted=dict(self.admitted),
            workers=dict(self.workers),
            passed=dict(self.passed),
            unreadable=dict(self.unreadable),
        )

    def learn(self, before: "Memory", after: "Memory") -> None:
        """Take in what a pass has found out meanwhile."""
        for uid in before.admitted.keys() - after.admitted.keys():
            self.admitted.pop(uid, None)
        for uid in before.workers.keys() - after.workers.keys():
            self.workers.pop(uid, None)
        self.passed, self.unreadable = after.passed, after.unreadable

    def keep(self, live: set[str]) -> None:
        """Forget all jobs but these, and those that cannot be understood."""
        self.admitted = {uid: pods for uid, pods in self.admitted.items() if uid in live}
        self.workers = {uid: count for uid, count in self.workers.items() if uid in live}
        self.passed = {uid: count for uid, count in self.passed.items() if uid in live}
        self.leave = {uid: nodes for uid, nodes in self.leave.items() if uid in live}
        self.place_waits = {uid: key for uid, key in self.place_waits.items() if uid in live}
        known = live | self.unreadable.keys()
        self.requested = {uid: key for uid, key in self.requested.items() if uid in known}


class Entries:
    """What one pass over the queue collects."""

    def __init__(self, stores: Stores) -> None:
        owners = queue_snapshot.owners(stores)
        self.placed = queue_snapshot.placed_pods(stores, owners)
        self.made = queue_snapshot.existing_pods(stores, owners)
        self.quotas = queue_snapshot.quotas_by_namespace(stores)
        self.allowances = Allowances(stores.resource_quotas)
        self.places = Places()
        self.waiting: list[QueuedJob] = []
        self.running: list[QueuedJob] = []
        self.reserved: list[PodGroup] = []
        self.news: list[Key] = []

    def schedule(
        self,
        *,
        room: queue_snapshot.NodeRoom,
        holder: str = "",
        aside: Collection[str] = (),
        max_passes: int = MAX_PASSES,
    ) -> Schedule:
        """The queue with every job admitted that fits. What quotas and datasets allow is used up by that.

        Args:
            holder: the uid of the job that nodes were set aside for before.
            aside: these nodes.
            max_passes: how often a job may be passed before nodes are set aside for it.
        """
        nodes = Nodes(free={}, capacity={})
        if self.waiting:
            nodes = Nodes(
                free=room.free(), capacity=room.capacity(), lasting=room.lasting(), empty=room.empty
            )
        return schedule(
            waiting=self.waiting,
            reserved=self.reserved,
            nodes=nodes,
            holder=holder,
            aside=aside,
            max_passes=max_passes,
            allowances=self.allowances,
            places=self.places,
            running=self.running,
        )


class Collector:
    """Reads the jobs for a pass over the queue.

    Attributes:
        kueue: whether jobs with the label of a queue are Kueue's. Those that wait are not in this queue then; those
            that were admitted have their room and their places as any other.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        demands: PodDemands,
        room: queue_snapshot.NodeRoom,
        memory: Memory,
        requeues: Requeues,
    ) -> None:
        self._stores = stores
        self._demands = demands
        self._room = room
        self._memory = memory
        self._requeues = requeues
        self.kueue = False

    def at(
        self, stores: Stores, *, demands: PodDemands, room: queue_snapshot.NodeRoom, memory: Memory
    ) -> "Collector":
        """The same of copies of the views and of what is known, for a thread."""
        found = Collector(stores=stores, demands=demands, room=room, memory=memory, requeues=self._requeues)
        found.kueue = self.kueue
        return found

    def requests_of(self, obj: Object) -> tuple[PlaceRequest, ...]:
        """The places that a job takes at its datasets."""
        return job_places.requests_of(
            namespace=obj["metadata"].get("namespace", ""),
            datasets=datasets_of(obj),
            known=self._stores.datasets,
        )

    def places_but(self, uid: str) -> Places:
        """The places that all jobs have taken but one."""
        found = Places()
        for key, obj in self._stores.live_jobs().items():
            other = str(obj["metadata"].get("uid", ""))
            admitted = queue_snapshot.conditions_by_type(obj).get(names.ADMITTED) == "True"
            going = obj["metadata"].get("deletionTimestamp")
            if (admitted or other in self._memory.admitted) and other != uid and not going:
                found.take(key, self.requests_of(obj))
        return found

    def collect(self) -> "Entries":
        """All jobs of the cluster that have not ended. One that cannot be understood stops no other."""
        entries, memory = Entries(self._stores), self._memory
        unreadable: dict[str, str] = {}
        for key, obj in self._stores.live_jobs().items():
            uid = str(obj["metadata"].get("uid", ""))
            try:
                self._enter(entries, key, obj, uid)
            except Exception as error:
                if uid not in memory.unreadable:
                    _log.exception("TrainingJob %s cannot be queued", "/".join(key))
                    entries.news.append(key)
                unreadable[uid] = (
                    f"its spec cannot be understood ({type(error).__name__}: {error}): correct its templates"
                )
        memory.unreadable = unreadable
        return entries

    def _enter(self, entries: "Entries", key: Key, obj: Object, uid: str) -> None:
        """Put a job into the pass: as one that waits, one with reserved pods, or not at all."""
        metadata, demand, memory = obj["metadata"], self._demands.of(obj), self._memory
        conditions = queue_snapshot.conditions_by_type(obj)
        if demand is None or metadata.get("deletionTimestamp") or demand.spec.run_policy.suspend:
            return
        spec, quotas = demand.spec, entries.quotas.get(key[0], ())
        admitted = conditions.get(names.ADMITTED) == "True"
        if admitted:
            memory.admitted.pop(uid, None)  # from now on its status says so
            if memory.workers.get(uid, 0) <= (_admitted_workers(obj) or 0):
                memory.workers.pop(uid, None)
        replicas = self.replicas(obj, spec)
        places = self.requests_of(obj)
        by_kueue = bool(local_queue(obj, kueue=self.kueue))
        if admitted or uid in memory.admitted:
            placed, made = entries.placed.get(uid, {}), entries.made.get(uid, {})
            reserved = queue_snapshot.pod_groups(demand, replicas=replicas, room=self._room, present=placed)
            taken = queue_snapshot.quota_charges(quotas, demand, replicas=replicas, present=made)
            entries.reserved += reserved
            entries.allowances.take(key[0], taken)
            entries.places.take(key, places)
            groups, present, ready = reserved, placed, True
        elif by_kueue:
            return
        elif queues(spec, places) and self._requeues.pause_left(uid) is None:
            # What its status says of an earlier operator's count holds until this one counts itself.
            memory.passed.setdefault(uid, _passed_before(obj))
            gang = replicas if spec.scheduling.gang else {}  # without one its pods come as they find room
            groups = queue_snapshot.pod_groups(demand, replicas=gang, room=self._room, present={})
            present = {}
            ready = uid in memory.requested or conditions.get(names.DATA_READY) == "True"
            ready = ready and not self._demands.missing_class(spec)
        else:
            return
        pauses = self._requeues.pause_left(uid) is not None
        job = QueuedJob(
            key=key,
            uid=uid,
            priority=self._demands.priority(spec),
            submitted=seconds_between(_EPOCH, metadata.get("creationTimestamp", _EPOCH)),
            data_ready=ready,
            passed=memory.passed.get(uid, 0),
            groups=tuple(groups),
            charges=queue_snapshot.quota_charges(quotas, demand, replicas=replicas, present=present)
            if spec.scheduling.gang
            else (),
            access=places,
            growth=None if pauses or by_kueue else self._growth(demand, replicas["Worker"], entries, key),
        )
        if not (admitted or uid in memory.admitted):
            entries.waiting.append(job)
            return
        pods = queue_snapshot.pod_groups(demand, replicas=replicas, room=self._room, present={})
        entries.running.append(replace(job, groups=tuple(pods), data_ready=True))
        if (growing := job.growing()) is not None:
            entries.waiting.append(growing)

    def _growth(self, demand: PodDemand, workers: int, entries: "Entries", key: Key) -> Growth | None:
        spec = demand.spec
        worker = spec.worker
        missing = worker.replicas - workers
        if not spec.is_elastic_gang or missing <= 0:
            return None
        nodes = self._room.eligible(worker.template["spec"])
        quotas = entries.quotas.get(key[0], ())
        return Growth(
            base=workers,
            pods=PodGroup(count=missing, request=demand.requests["Worker"], nodes=nodes),
            charges=queue_snapshot.quota_charges(quotas, demand, replicas={"Worker": 1}, present={}),
        )

    def replicas(self, obj: Object, spec: TrainingJobSpec) -> dict[Role, int]:
        """How many pods of each role a job has been admitted with, or asks for to begin with."""
        found = {role: each.replicas for role, each in spec.by_role().items()}
        if spec.is_elastic_gang and spec.elastic is not None:
            uid = obj["metadata"].get("uid", "")
            admitted = queue_snapshot.conditions_by_type(obj).get(names.ADMITTED) == "True"
            granted = self._memory.workers.get(uid)
            known = (_admitted_workers(obj) or found["Worker"]) if admitted else spec.elastic.min_replicas
            found["Worker"] = min(found["Worker"], max(granted or 0, known))
        return found


def queues(spec: TrainingJobSpec, places: Iterable[PlaceRequest]) -> bool:
    """Whether a job waits in the queue: as a gang for its room, or for a place at a dataset that has a limit."""
    return spec.scheduling.gang or any(request.limit for request in places)


def _admitted_workers(obj: Object) -> int | None:
    """How many workers a job was admitted with, as its status says."""
    found = (obj.get("status") or {}).get("admittedWorkers")
    return found if isinstance(found, int) else None


def _passed_before(obj: Object) -> int:
    passed = (obj.get("status") or {}).get("passed")
    return passed if isinstance(passed, int) else 0
