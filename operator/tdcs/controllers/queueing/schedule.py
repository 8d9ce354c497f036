"""The queue of jobs that start with all their pods at once: which job is next, and what the others wait for. Pure.

The rule itself is :func:`tdcs.policy.admission.next_to_admit`; here it is asked about a cluster's real nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.controllers.queueing.quota import Allowances, Claim
from tdcs.controllers.resources import CPU, PODS, Amounts
from tdcs.kube.objects import Key
from tdcs.policy.admission import (
    MAX_PASSES,
    Admission,
    Reason,
    next_to_admit,
    nodes_to_set_aside,
    queue_key,
)
from tdcs.policy.fitting import PodGroup, most_that_fit, place, place_most

DemandKey = tuple[tuple[int, frozenset[tuple[str, int]], frozenset[str] | None], ...]
"""What makes two jobs equal as far as room goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job in the queue.

    Attributes:
        key: (namespace, name).
        uid: of this incarnation of it.
        priority: larger enters first.
        submitted: when it was created, in seconds.
        data_ready: whether its datasets let it start.
        possible: whether its pods would fit on empty nodes.
        passed: how many later jobs entered before it.
        groups: its pods.
        claims: what they take of the quotas of its namespace.
        short: why these do not let it in now; empty when they do.
    """

    key: Key
    uid: str
    priority: int
    submitted: float
    data_ready: bool
    passed: int
    groups: tuple[PodGroup, ...]
    possible: bool = True
    claims: tuple[Claim, ...] = ()
    short: str = ""

    @property
    def ready(self) -> bool:
        """Whether it could start, had it room. A job that never can, or lacks quota, holds up nobody."""
        return self.data_ready and self.possible and not self.short

    @property
    def scarce(self) -> str:
        """The resource that its pods are short of first: GPUs, or CPU for pods without."""
        return (
            names.GPU_RESOURCE if any(group.request.get(names.GPU_RESOURCE) for group in self.groups) else CPU
        )

    @property
    def demand_key(self) -> DemandKey:
        """Equal for jobs whose pods need the same."""
        return tuple((group.count, frozenset(group.request.items()), group.nodes) for group in self.groups)

    @property
    def pods(self) -> Sequence[int]:
        """The scarce resource of each of its pods."""
        return [group.request.get(self.scarce, 0) for group in self.groups for _ in range(group.count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The queue after everybody who fits has entered.

    Attributes:
        members: who still waits, first first.
        entering: who may enter, in this order; each found room beside those before it.
        free: what each node has left for those who wait.
        capacity: what each node has when it is empty.
        passed: by uid, how many entered before a job that stood before them.
        holder: the uid of the job that nodes are set aside for, empty when there is none.
        aside: these nodes.
    """

    members: tuple[QueuedJob, ...] = ()
    entering: tuple[QueuedJob, ...] = ()
    free: Mapping[str, Amounts] = field(default_factory=dict)
    capacity: Mapping[str, Amounts] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    holder: str = ""
    aside: frozenset[str] = frozenset()


def schedule(
    *,
    waiting: Sequence[QueuedJob],
    reserved: Sequence[PodGroup],
    free: Mapping[str, Amounts],
    capacity: Mapping[str, Amounts],
    holder: str = "",
    max_passes: int = MAX_PASSES,
    allowances: Allowances | None = None,
) -> Schedule:
    """Let jobs enter, one at a time, until nobody fits any more.

    Args:
        waiting: the jobs that wait, in any order; `possible` is worked out here.
        reserved: pods of jobs that were admitted which have no node yet.
        free: what each node has left beside the pods that are on it.
        capacity: what each node has when it is empty.
        holder: the uid of the job that nodes were set aside for before.
        max_passes: how often a job may be passed before nodes are set aside for it.
        allowances: what quotas leave to these jobs; used up here.
    """
    allowances = allowances or Allowances({})
    left = dict(free)
    place_most(groups=reserved, free=left, scarce=names.GPU_RESOURCE)
    # Times of creation are whole seconds: of jobs that came at once the order must outlive a restart all the same.
    queue = _possible(sorted(waiting, key=lambda member: (*queue_key(member), member.uid)), capacity)
    queue = _within_quotas(queue, allowances, max_passes=max_passes)
    entering: list[QueuedJob] = []
    while True:
        first = next((member for member in queue if member.uid == holder and member.ready), None)
        aside = _set_aside(first, left, capacity) if first is not None else frozenset()
        after = _placed(first, left) if first is not None else None
        if first is not None and after is not None:
            chosen, left, holder = first, after, ""
        else:
            room = _Room({node: left[node] for node in left.keys() - aside} if aside else left)
            admission = next_to_admit(
                queue=queue,
                nodes_by_free_gpus=(),
                holder=first,
                max_passes=max_passes,
                fits_now=room.holds,
            )
            if admission.starves is not None:
                holder = queue[admission.starves].uid
                continue
            if admission.admits is None:
                break
            chosen = queue[admission.admits]
            left = {**left, **(room.after(chosen) or {})}
        place_ = queue.index(chosen)
        queue[:place_] = [_passed(member, by=chosen) for member in queue[:place_]]
        queue.remove(chosen)
        entering.append(chosen)
        if chosen.claims:
            allowances.take(chosen.key[0], chosen.claims)
            queue = _within_quotas(queue, allowances, max_passes=max_passes)
    before = {member.uid: member.passed for member in waiting}
    return Schedule(
        members=tuple(queue),
        entering=tuple(entering),
        free=left,
        capacity=capacity,
        passed={member.uid: member.passed for member in queue if member.passed != before[member.uid]},
        holder=first.uid if first is not None else "",
        aside=aside,
    )


class _Room:
    """What would be left of these nodes after a job; jobs of one demand_key are looked at once."""

    def __init__(self, free: Mapping[str, Amounts]) -> None:
        self._free = free
        self._known: dict[DemandKey, dict[str, Amounts] | None] = {}

    def holds(self, member: QueuedJob) -> bool:
        """Whether the job fits."""
        return self.after(member) is not None

    def after(self, member: QueuedJob) -> dict[str, Amounts] | None:
        """None when the job does not fit."""
        demand_key = member.demand_key
        if demand_key not in self._known:
            self._known[demand_key] = _placed(member, self._free)
        return self._known[demand_key]


def _possible(members: Sequence[QueuedJob], capacity: Mapping[str, Amounts]) -> list[QueuedJob]:
    """The jobs, each with whether it could ever run."""
    empty = _Room(capacity)
    return [replace(member, possible=empty.holds(member)) for member in members]


def _placed(member: QueuedJob, free: Mapping[str, Amounts]) -> dict[str, Amounts] | None:
    """What is left once a job has entered; None when it does not fit."""
    return place(groups=member.groups, free=free, scarce=member.scarce)


def _within_quotas(queue: Sequence[QueuedJob], allowances: Allowances, *, max_passes: int) -> list[QueuedJob]:
    """The jobs, each with which quota is too small for it now.

    A job that was passed too often closes the quotas of its namespace to those behind it, until they are large enough
    for it; unless they never will be.
    """
    closed: dict[str, str] = {}
    found = []
    for member in queue:
        namespace, short = member.key[0], ""
        if member.claims:
            short = allowances.short(namespace, member.claims)
            if short and member.data_ready and member.possible and member.passed >= max_passes:
                if allowances.ever(namespace, member.claims):
                    closed.setdefault(namespace, "/".join(member.key))
            elif not short and namespace in closed:
                short = (
                    f"the quotas of namespace {namespace} are kept for {closed[namespace]}, passed too often"
                )
        found.append(member if member.short == short else replace(member, short=short))
    return found


def _passed(member: QueuedJob, *, by: QueuedJob) -> QueuedJob:
    """A job that another one has entered before; one that lacks quota, only by those who take of the same."""
    rivals = bool(member.short and by.claims) and member.key[0] == by.key[0]
    waits = member.ready or (rivals and member.data_ready and member.possible)
    return replace(member, passed=member.passed + 1) if waits else member


def waiting_admission(schedule: Schedule, uid: str) -> Admission:
    """What the queue says to a job that still waits: for what, and behind whom."""
    place_, member = next((i, m) for i, m in enumerate(schedule.members) if m.uid == uid)
    if not member.possible:
        return _wait(Reason.NEVER, _never(member, schedule))
    if member.short:
        return _wait(Reason.QUOTA, f"{member.short}: it waits for others to end, or for a larger quota")
    # Without how long the queue is: whoever joins it behind would change what all others are told. A job that no node
    # can ever hold stands before nobody.
    position = f"position {1 + sum(other.possible for other in schedule.members[:place_])} in the queue"
    before = next((other for other in reversed(schedule.members[:place_]) if other.ready), None)
    behind = f"; behind {'/'.join(before.key)}" if before is not None else ""
    held = ""
    if schedule.holder and schedule.holder != uid:
        owner = next("/".join(other.key) for other in schedule.members if other.uid == schedule.holder)
        are = "node is" if len(schedule.aside) == 1 else "nodes are"
        held = f"; {len(schedule.aside)} {are} set aside for {owner}, which was passed too often"
    if fits(member, schedule.free):
        return _wait(Reason.BEHIND, f"its pods would fit, but others are first: {position}{behind}{held}")
    return _wait(Reason.NO_ROOM, f"{_missing(member, schedule.free)}; {position}{behind}{held}")


def admission_of_pods(member_pods: int) -> Admission:
    """What the queue says to a job that may enter."""
    text = "its pod fits" if member_pods == 1 else f"all {member_pods} pods fit at once"
    return Admission(admitted=True, data_ready=True, reason=Reason.FITS, message=text)


def fits(member: QueuedJob, free: Mapping[str, Amounts]) -> bool:
    """Whether all its pods fit at once."""
    return _placed(member, free) is not None


def _set_aside(
    member: QueuedJob, free: Mapping[str, Amounts], capacity: Mapping[str, Amounts]
) -> frozenset[str]:
    """Nodes that could hold any pod of the job when they are empty, those with the most free first."""
    usable = {
        node: amounts.get(member.scarce, 0)
        for node, amounts in free.items()
        if all(most_that_fit(group=_one(group), free={node: capacity[node]}) for group in member.groups)
    }
    return frozenset(nodes_to_set_aside(pods=member.pods, free_gpus=usable))


def _one(group: PodGroup) -> PodGroup:
    return PodGroup(count=1, request=group.request, nodes=group.nodes)


def _wait(reason: Reason, message: str) -> Admission:
    return Admission(admitted=False, data_ready=True, reason=reason, message=message)


def _count(member: QueuedJob) -> str:
    count = sum(group.count for group in member.groups)
    return f"{count} pod{'' if count == 1 else 's'}"


def _missing(member: QueuedJob, free: Mapping[str, Amounts]) -> str:
    """What there is too little of, in numbers."""
    usable = [
        name for name in free if any(group.nodes is None or name in group.nodes for group in member.groups)
    ]
    names_ = sorted({name for group in member.groups for name in group.request} - {PODS})
    for resource in sorted(names_, key=lambda name: name != member.scarce):
        needed = sum(group.count * group.request.get(resource, 0) for group in member.groups)
        there = sum(max(free[node].get(resource, 0), 0) for node in usable)
        if needed > there:
            amounts = f"{shown(resource, needed)} at once, {shown(resource, there)} free on {_nodes(usable)}"
            return f"needs {amounts} that its {_count(member)} may use"
    placed = sum(most_that_fit(group=group, free=free) for group in member.groups)
    scarce = member.scarce
    there = sum(max(free[node].get(scarce, 0), 0) for node in usable)
    return (
        f"only {placed} of its {_count(member)} would find room at once: {shown(scarce, there)} are free on "
        f"{_nodes(usable)} that they may use, but spread over too many of them, or other resources are short there"
    )


def _nodes(usable: Sequence[str]) -> str:
    return "the only node" if len(usable) == 1 else f"the {len(usable)} nodes"


def _never(member: QueuedJob, schedule: Schedule) -> str:
    for group in member.groups:
        usable = [name for name in schedule.capacity if group.nodes is None or name in group.nodes]
        if not usable:
            return "no node has the labels and taints that its pods ask for: see nodeSelector, affinity, tolerations"
        if most_that_fit(group=_one(group), free={name: schedule.capacity[name] for name in usable}) == 0:
            short = _short_everywhere(group, [schedule.capacity[name] for name in usable])
            return f"a pod asks for {short}: ask for less, or add nodes"
    room = sum(most_that_fit(group=group, free=schedule.capacity) for group in member.groups)
    return (
        f"even with all nodes empty only {room} of its {_count(member)} would fit: "
        "ask for fewer or smaller pods, or add nodes"
    )


def _short_everywhere(group: PodGroup, nodes: Sequence[Amounts]) -> str:
    for resource, asked in sorted(group.request.items(), key=lambda item: item[0] != names.GPU_RESOURCE):
        most = max(node.get(resource, 0) for node in nodes)
        if asked > most:
            return (
                f"{shown(resource, asked)}, and the largest node that it may use has {shown(resource, most)}"
            )
    asked_for = ", ".join(shown(name, value) for name, value in sorted(group.request.items()) if name != PODS)
    return f"{asked_for}, and no node that it may use has all of that"


def shown(resource: str, value: int) -> str:
    """An amount as people read it: ``4 nvidia.com/gpu``, ``1.5 cpu``, ``2.0 Gi memory``."""
    if resource == CPU:
        return f"{value / 1000:g} cpu"
    if resource in {"memory", "ephemeral-storage"}:
        return f"{value / 2**30:.1f} Gi {resource}"
    return f"{value} {resource}"
