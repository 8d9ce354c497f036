"""The gang queue of the whole cluster: lets one job in at a time, and remembers whom until the API server tells.

Everything it decides from is observed anew each time: who waits and who was let in is in the jobs' own statuses, so
a restart loses nothing but how often a job was passed.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.controllers.clock import seconds_between
from tdcs.controllers.context import Stores, WorkKey
from tdcs.controllers.resources import Amounts, amounts, pod_requests
from tdcs.controllers.trainingjob.eligibility import may_run, signature
from tdcs.controllers.trainingjob.line import Line, Member, arrange, turn_of, welcome
from tdcs.controllers.usage import member_of
from tdcs.kube.api import Object
from tdcs.kube.informer import Key
from tdcs.kube.queue import KeyedQueue
from tdcs.kube.resources import TRAINING_JOBS
from tdcs.policy.admission import MAX_PASSES, Admission, Reason
from tdcs.policy.fitting import PodGroup

PAUSE = 0.05
"""Seconds between a change and the next look at the queue, so that a burst of changes is one look."""

TOLD_AT_ONCE = 10
"""Jobs at the head of the queue that are told at once of a new position; the others hear with the next resync."""

_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What of a job's spec the queue needs, parsed once for each generation."""

    generation: int
    spec: TrainingJobSpec
    requests: Mapping[Role, Mapping[str, int]]


class GangQueue:
    """Says which jobs may start.

    It looks at the whole queue once for many changes, and lets everybody in who fits then; a pass of a job only
    asks for its own answer.

    Args:
        stores: the live views.
        queue: where the passes of jobs are asked for.
        max_passes: how often a job may be passed by later ones before nodes are set aside for it.
    """

    def __init__(self, *, stores: Stores, queue: KeyedQueue[WorkKey], max_passes: int = MAX_PASSES) -> None:
        self._stores = stores
        self._max_passes = max_passes
        self._queue = queue
        self._shapes: dict[str, _Shape] = {}
        self._asked: dict[str, Key] = {}
        self._granted: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._holder = ""
        self._eligible: dict[str, frozenset[str]] = {}
        self._capacity: dict[str, Amounts] = {}
        self._line: Line | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cost = 0.0

    def touch(self, *, nodes: bool = False) -> None:
        """Something changed on which the queue may depend; `nodes`: labels, taints or sizes of nodes did."""
        if nodes:
            self._eligible.clear()
            self._capacity.clear()
        if self._timer is None:
            # A look at a large cluster takes its time: it may have a fifth of it.
            pause = max(PAUSE, 4 * self._cost)
            self._timer = asyncio.get_running_loop().call_later(pause, self._look)

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def turn(self, obj: Object) -> Admission | None:
        """Whether a job whose data is ready may start now; None: it is told soon, by another pass.

        The answer yes is binding until it is taken back.
        """
        metadata = obj["metadata"]
        key, uid = (metadata.get("namespace", ""), metadata["name"]), metadata["uid"]
        if uid in self._granted:
            return welcome(self._granted[uid])
        if uid not in self._asked:
            self._asked[uid] = key
            self.touch()
        shape = self._shape(obj)
        missing = self._missing_class(shape.spec) if shape is not None else ""
        if missing:
            return Admission(admitted=False, data_ready=True, reason=Reason.NO_PRIORITY, message=missing)
        members = self._line.members if self._line is not None else ()
        if self._line is None or not any(member.uid == uid and member.data_ready for member in members):
            return None
        return turn_of(self._line, uid)

    def take_back(self, uid: str) -> None:
        """The job does not start now: its data went, it was suspended, or its children are refused."""
        asked, granted = self._asked.pop(uid, None), self._granted.pop(uid, None)
        if asked is not None or granted is not None:
            self.touch()

    def _look(self) -> None:
        """Let in who fits, and wake those who have something new to tell."""
        self._timer = None
        before = {member.uid for member in self._line.members if member.data_ready} if self._line else set()
        started = time.perf_counter()
        line = self._line = self._arranged()
        self._cost = time.perf_counter() - started
        self._holder = line.holder
        self._passed |= line.passed
        for member in line.entering:
            self._granted[member.uid] = sum(group.count for group in member.groups)
            self._asked.pop(member.uid, None)
            self._passed.pop(member.uid, None)
            self._wake(member.key)
        for place, member in enumerate(line.members):
            moved = bool(line.entering) and place < TOLD_AT_ONCE
            if moved or (member.uid in self._asked and member.uid not in before):
                self._wake(member.key)

    def _wake(self, key: Key) -> None:
        self._queue.add(WorkKey(TRAINING_JOBS, *key))

    def _arranged(self) -> Line:
        """The queue as it is now, with everybody entering who fits."""
        waiting: list[Member] = []
        reserved: list[PodGroup] = []
        bound = self._bound()
        live: set[str] = set()
        for key, obj in self._stores.training_jobs.items():
            metadata, shape = obj["metadata"], self._shape(obj)
            uid = metadata.get("uid", "")
            conditions = _conditions(obj)
            over = conditions.get(names.SUCCEEDED) == "True" or conditions.get(names.FAILED) == "True"
            if shape is None or over or metadata.get("deletionTimestamp") or shape.spec.run_policy.suspend:
                continue
            live.add(uid)
            groups = self._groups(shape, bound.get(key, {}))
            admitted = conditions.get(names.ADMITTED) == "True"
            if admitted:
                self._granted.pop(uid, None)  # from now on its status says so
            if admitted or uid in self._granted:
                reserved += groups
            elif shape.spec.scheduling.gang:
                ready = uid in self._asked or conditions.get(names.DATA_READY) == "True"
                waiting.append(
                    Member(
                        key=key,
                        uid=uid,
                        priority=self._priority(shape.spec),
                        submitted=seconds_between(_EPOCH, metadata.get("creationTimestamp", _EPOCH)),
                        data_ready=ready and not self._missing_class(shape.spec),
                        passed=self._passed.get(uid, 0),
                        groups=tuple(groups),
                    )
                )
        self._granted = {uid: pods for uid, pods in self._granted.items() if uid in live}
        self._asked = {uid: key for uid, key in self._asked.items() if uid in live}
        self._passed = {uid: count for uid, count in self._passed.items() if uid in live}
        free, capacity = self._free() if waiting else ({}, {})
        return arrange(
            waiting=waiting,
            reserved=reserved,
            free=free,
            capacity=capacity,
            holder=self._holder,
            max_passes=self._max_passes,
        )

    def _shape(self, obj: Object) -> _Shape | None:
        """The parsed spec of a job; None when it cannot be understood."""
        uid, generation = obj["metadata"].get("uid", ""), int(obj["metadata"].get("generation", 0))
        known = self._shapes.get(uid)
        if known is None or known.generation != generation:
            try:
                spec = TrainingJobSpec.model_validate(obj.get("spec"))
            except ValidationError:
                return None
            requests = {
                role: pod_requests(each.template["spec"])
                for role, each in spec.replica_specs.by_role().items()
            }
            known = self._shapes[uid] = _Shape(generation=generation, spec=spec, requests=requests)
            if len(self._shapes) > 2 * len(self._stores.training_jobs) + 100:
                kept = {each["metadata"].get("uid") for each in self._stores.training_jobs.values()} | {uid}
                self._shapes = {each: shape for each, shape in self._shapes.items() if each in kept}
        return known

    def _groups(self, shape: _Shape, bound: Mapping[str, int]) -> list[PodGroup]:
        """The pods of a job that have no node yet."""
        found = []
        for role, each in shape.spec.replica_specs.by_role().items():
            missing = each.replicas - bound.get(role.lower(), 0)
            if missing > 0:
                nodes = self._nodes_for(each.template["spec"])
                found.append(PodGroup(count=missing, request=shape.requests[role], nodes=nodes))
        return found

    def _bound(self) -> dict[Key, dict[str, int]]:
        """By job, how many pods of each role have a node, or need none any more.

        Who has a node is asked where the nodes' use is counted, so that a pod is either reserved for or counted, at
        every moment.
        """
        indexes: dict[tuple[Key, str], set[str]] = {}
        succeeded = (
            member_of(pod)
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

    def _nodes_for(self, pod: Mapping[str, object]) -> frozenset[str]:
        sign = signature(pod)
        if sign not in self._eligible:
            self._eligible[sign] = frozenset(
                name for (_, name), node in self._stores.nodes.items() if may_run(pod, node)
            )
        return self._eligible[sign]

    def _free(self) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
        """What each node has left, and what it has when it is empty."""
        if not self._capacity:
            self._capacity = {
                name: amounts((node.get("status") or {}).get("allocatable"))
                for (_, name), node in self._stores.nodes.items()
            }
        free: dict[str, Amounts] = {}
        for name, whole in self._capacity.items():
            taken = self._stores.usage.taken(name)
            free[name] = {resource: value - taken.get(resource, 0) for resource, value in whole.items()}
        return free, self._capacity

    def _priority(self, spec: TrainingJobSpec) -> int:
        classes = self._stores.priority_classes
        name = _class_of(spec)
        if name:
            return int((classes.get(("", name)) or {}).get("value", 0))
        return max(
            (int(each.get("value", 0)) for each in classes.values() if each.get("globalDefault")), default=0
        )

    def _missing_class(self, spec: TrainingJobSpec) -> str:
        name = _class_of(spec)
        if not name or ("", name) in self._stores.priority_classes:
            return ""
        return f"there is no PriorityClass {name}; create it, or correct spec.scheduling.priorityClassName"


def _class_of(spec: TrainingJobSpec) -> str:
    """The PriorityClass that the job names, or else its workers' template."""
    named = spec.scheduling.priority_class_name
    return named or str(spec.replica_specs.worker.template["spec"].get("priorityClassName") or "")


def _conditions(obj: Object) -> dict[str, str]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {found.get("type", ""): found.get("status", "") for found in conditions}
