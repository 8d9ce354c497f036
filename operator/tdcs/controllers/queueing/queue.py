"""The gang queue of the whole cluster: admits one job at a time, and remembers whom until the API server tells.

Everything it decides from is observed anew each time: who waits, who was admitted and how often a job was passed is in
the jobs' own statuses, so a restart loses nothing.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from tdcs.api import names
from tdcs.api.trainingjob import READING_ROLES
from tdcs.controllers.clock import seconds_between
from tdcs.controllers.context import Stores, WorkKey
from tdcs.controllers.queueing.eligibility import may_run, signature
from tdcs.controllers.queueing.pod_demand import PodDemand, PodDemands, class_of
from tdcs.controllers.queueing.quota import Allowances, Claim, claims_of
from tdcs.controllers.queueing.requeue import PATIENCE, Requeues
from tdcs.controllers.queueing.schedule import (
    QueuedJob,
    Schedule,
    admission_of_pods,
    schedule,
    waiting_admission,
)
from tdcs.controllers.resources import Amounts, amounts
from tdcs.controllers.usage import job_pod_of
from tdcs.kube.api import Object
from tdcs.kube.objects import Key
from tdcs.kube.queue import KeyedQueue
from tdcs.kube.resources import TRAINING_JOBS
from tdcs.policy.admission import MAX_PASSES, Admission, Reason
from tdcs.policy.fitting import PodGroup, most_that_fit

PAUSE = 0.05
"""Seconds between a change and the next look at the queue, so that a burst of changes is one look."""

REPORTED_AT_ONCE = 10
"""Jobs at the head of the queue whose new position is reported at once; that of the others with the next resync."""

_EPOCH = "1970-01-01T00:00:00Z"


class GangQueue:
    """Says which jobs may start.

    It looks at the whole queue once for many changes, and admits every job that fits then; a pass of a job only
    asks for its own answer.

    Args:
        stores: the live views.
        queue: where the passes of jobs are asked for.
        max_passes: how often a job may be passed by later ones before nodes are set aside for it.
        patience: seconds that the pods of a job that was admitted have to find their places.

    Attributes:
        requeues: the jobs that did not find them, and pause.
    """

    def __init__(
        self,
        *,
        stores: Stores,
        queue: KeyedQueue[WorkKey],
        max_passes: int = MAX_PASSES,
        patience: float = PATIENCE,
    ) -> None:
        self.requeues = Requeues(patience=patience)
        self._stores = stores
        self._max_passes = max_passes
        self._queue = queue
        self._demands = PodDemands(stores=stores)
        self._requested: dict[str, Key] = {}
        self._admitted: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._holder = ""
        self._eligible: dict[str, frozenset[str]] = {}
        self._capacity: dict[str, Amounts] = {}
        self._schedule: Schedule | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cost = 0.0

    def touch(self, *, nodes: bool = False, overheads: bool = False) -> None:
        """Something changed on which the queue may depend.

        Args:
            nodes: labels, taints or sizes of nodes did.
            overheads: what RuntimeClasses add to pods did.
        """
        if overheads:
            self._demands.clear()
        if nodes:
            self._eligible.clear()
            self._capacity.clear()
        if self._timer is None:
            # A look at a large cluster takes its time: it may have a fifth of it.
            pause = max(PAUSE, 4 * self._cost)
            self._timer = asyncio.get_running_loop().call_later(pause, self._reschedule)

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def admission(self, obj: Object) -> Admission | None:
        """Whether a job whose data is ready may start now; None: the answer comes with another pass.

        The answer yes is binding until it is taken back.
        """
        metadata = obj["metadata"]
        key, uid = (metadata.get("namespace", ""), metadata["name"]), metadata["uid"]
        if uid in self._admitted:
            return admission_of_pods(self._admitted[uid])
        if (resting := self.requeues.admission(uid)) is not None:
            return resting
        if uid not in self._requested:
            self._requested[uid] = key
            self.touch()
        demand = self._demands.of(obj)
        missing = self._demands.missing_class(demand.spec) if demand is not None else ""
        if missing:
            return Admission(admitted=False, data_ready=True, reason=Reason.NO_PRIORITY, message=missing)
        members = self._schedule.members if self._schedule is not None else ()
        if self._schedule is None or not any(member.uid == uid and member.data_ready for member in members):
            return None
        return waiting_admission(self._schedule, uid)

    def withdraw(self, uid: str) -> None:
        """The job does not start now: its data went, it was suspended, or its children are refused."""
        asked, granted = self._requested.pop(uid, None), self._admitted.pop(uid, None)
        if asked is not None or granted is not None:
            self.touch()

    def passed(self, uid: str) -> int:
        """How many later jobs were admitted before a job that waits."""
        return self._passed.get(uid, 0)

    def room_near(self, obj: Object, nodes: Collection[str]) -> int:
        """How many of a job's pods that read data find room on these nodes, beside the pods that have one there."""
        demand = self._demands.of(obj)
        if demand is None:
            return 0
        free = self._free(nodes)
        return sum(
            most_that_fit(
                group=PodGroup(
                    count=each.replicas,
                    request=demand.requests[role],
                    nodes=self._nodes_for(each.template["spec"]),
                ),
                free=free,
            )
            for role, each in demand.spec.replica_specs.by_role().items()
            if role in READING_ROLES
        )

    def _reschedule(self) -> None:
        """Let in who fits, and wake those who have something new to tell."""
        self._timer = None
        before = (
            {member.uid for member in self._schedule.members if member.data_ready}
            if self._schedule
            else set()
        )
        started = time.perf_counter()
        schedule = self._schedule = self._make_schedule()
        self._cost = time.perf_counter() - started
        self._holder = schedule.holder
        self._passed |= schedule.passed
        for member in schedule.entering:
            self._admitted[member.uid] = sum(group.count for group in member.groups)
            self._requested.pop(member.uid, None)
            self._passed.pop(member.uid, None)
            self._wake(member.key)
        for place, member in enumerate(schedule.members):
            moved = bool(schedule.entering) and place < REPORTED_AT_ONCE
            if moved or (member.uid in self._requested and member.uid not in before):
                self._wake(member.key)

    def _wake(self, key: Key) -> None:
        self._queue.add(WorkKey(TRAINING_JOBS, *key))

    def _make_schedule(self) -> Schedule:
        """The queue as it is now, with everybody entering who fits."""
        waiting: list[QueuedJob] = []
        reserved: list[PodGroup] = []
        bound, made = self._bound(), self._made()
        allowances, quotas = Allowances(self._stores.resource_quotas), self._quotas()
        live: set[str] = set()
        for key, obj in self._stores.training_jobs.items():
            metadata, demand = obj["metadata"], self._demands.of(obj)
            uid = metadata.get("uid", "")
            conditions = _conditions(obj)
            over = conditions.get(names.SUCCEEDED) == "True" or conditions.get(names.FAILED) == "True"
            if demand is None or over or metadata.get("deletionTimestamp") or demand.spec.run_policy.suspend:
                continue
            live.add(uid)
            groups = self._groups(demand, bound.get(key, {}))
            admitted = conditions.get(names.ADMITTED) == "True"
            if admitted:
                self._admitted.pop(uid, None)  # from now on its status says so
            if admitted or uid in self._admitted:
                reserved += groups
                allowances.take(key[0], self._claims(quotas.get(key[0], ()), demand, made.get(key, {})))
            elif demand.spec.scheduling.gang and self.requeues.pause_left(uid) is None:
                # What its status says of an earlier operator's count holds until this one counts itself.
                self._passed.setdefault(uid, _passed_before(obj))
                ready = uid in self._requested or conditions.get(names.DATA_READY) == "True"
                waiting.append(
                    QueuedJob(
                        key=key,
                        uid=uid,
                        priority=self._demands.priority(demand.spec),
                        submitted=seconds_between(_EPOCH, metadata.get("creationTimestamp", _EPOCH)),
                        data_ready=ready and not self._demands.missing_class(demand.spec),
                        passed=self._passed[uid],
                        groups=tuple(groups),
                        claims=self._claims(quotas.get(key[0], ()), demand, {}),
                    )
                )
        self._admitted = {uid: pods for uid, pods in self._admitted.items() if uid in live}
        self._requested = {uid: key for uid, key in self._requested.items() if uid in live}
        self._passed = {uid: count for uid, count in self._passed.items() if uid in live}
        self.requeues.forget_others(live)
        free = self._free(self._sizes()) if waiting else {}
        return schedule(
            waiting=waiting,
            reserved=reserved,
            free=free,
            capacity=self._sizes(),
            holder=self._holder,
            max_passes=self._max_passes,
            allowances=allowances,
        )

    def _groups(self, demand: PodDemand, bound: Mapping[str, int]) -> list[PodGroup]:
        """The pods of a job that have no node yet."""
        found = []
        for role, each in demand.spec.replica_specs.by_role().items():
            missing = each.replicas - bound.get(role.lower(), 0)
            if missing > 0:
                nodes = self._nodes_for(each.template["spec"])
                found.append(PodGroup(count=missing, request=demand.requests[role], nodes=nodes))
        return found

    def _bound(self) -> dict[Key, dict[str, int]]:
        """By job, how many pods of each role have a node, or need none any more.

        Who has a node is asked where the nodes' use is counted, so that a pod is either reserved for or counted, at
        every moment.
        """
        indexes: dict[tuple[Key, str], set[str]] = {}
        succeeded = (
            job_pod_of(pod)
            for pod in self._stores.pods.values()
            if (pod.get("status") or {}).get("phase") == "Succeeded"
        )
        for member in (*self._stores.usage.members(), *succeeded):
            if member is not None:
                indexes.setdefault((member.job, member.role), set()).add(member.index)
        found: dict[Key, dict[str, int]] = {}
        for (job, role), seen in indexes.items():
            found.setdefault(job, {})[role] = len(seen)
        return found

    def _made(self) -> dict[Key, dict[str, int]]:
        """By job, how many pods of each role exist, which quotas count already, or need not exist any more."""
        found: dict[Key, dict[str, set[str]]] = {}
        for pod in self._stores.pods.values() if self._stores.resource_quotas else ():
            member = job_pod_of(pod)
            if member is not None and (pod.get("status") or {}).get("phase") != "Failed":
                found.setdefault(member.job, {}).setdefault(member.role, set()).add(member.index)
        return {job: {role: len(seen) for role, seen in roles.items()} for job, roles in found.items()}

    def _quotas(self) -> dict[str, list[tuple[str, Object]]]:
        """The ResourceQuotas of each namespace that has some, with their names."""
        found: dict[str, list[tuple[str, Object]]] = {}
        for (namespace, name), quota in self._stores.resource_quotas.items():
            found.setdefault(namespace, []).append((name, quota))
        return found

    @staticmethod
    def _claims(
        quotas: Sequence[tuple[str, Object]], demand: PodDemand, made: Mapping[str, int]
    ) -> tuple[Claim, ...]:
        """What the pods of a job that do not exist yet take of its namespace's quotas."""
        if not quotas:
            return ()
        pods = [
            (max(each.replicas - made.get(role.lower(), 0), 0), each.template["spec"], demand.charges[role])
            for role, each in demand.spec.replica_specs.by_role().items()
        ]
        return claims_of(quotas=quotas, pods=pods, priority_class=class_of(demand.spec))

    def _nodes_for(self, pod: Mapping[str, object]) -> frozenset[str]:
        sign = signature(pod)
        if sign not in self._eligible:
            self._eligible[sign] = frozenset(
                name for (_, name), node in self._stores.nodes.items() if may_run(pod, node)
            )
        return self._eligible[sign]

    def _sizes(self) -> dict[str, Amounts]:
        """What each node has when it is empty."""
        if not self._capacity:
            self._capacity = {
                name: amounts((node.get("status") or {}).get("allocatable"))
                for (_, name), node in self._stores.nodes.items()
            }
        return self._capacity

    def _free(self, nodes: Collection[str]) -> dict[str, Amounts]:
        """What each of these nodes has left."""
        sizes, free = self._sizes(), dict[str, Amounts]()
        for name in nodes:
            if name in sizes:
                taken = self._stores.usage.taken(name)
                free[name] = {
                    resource: value - taken.get(resource, 0) for resource, value in sizes[name].items()
                }
        return free


def _passed_before(obj: Object) -> int:
    """How often a job was passed, as its status says."""
    passed = (obj.get("status") or {}).get("passed")
    return passed if isinstance(passed, int) else 0


def _conditions(obj: Object) -> dict[str, str]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {found.get("type", ""): found.get("status", "") for found in conditions}
