"""What the queue says to a job, in sentences: why it may start, or what it waits for and behind whom."""

from collections.abc import Sequence

from tdcs.api import names
from tdcs.api.durations import time_after
from tdcs.api.trainingjob_status import DataWait
from tdcs.decide.place.gang_fit import PodGroup, most_that_fit
from tdcs.decide.queue.pod_admission import Admission, Reason
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model.humanize import human
from tdcs.model.pod_resources import CPU, PODS, Amounts

NODES_NAMED = 3
"""So many nodes are named in a sentence."""


def waiting_admission(schedule: Schedule, uid: str, *, data_wait: DataWait | None = None) -> Admission:
    """What the queue says to a job that still waits: for what, and behind whom.

    `data_wait`: its wait for a place at its data, if it has begun one.
    """
    if data_wait is not None and uid in schedule.awaits_data:
        return _wait(Reason.AWAITS_DATA, wait_sentence(data_wait))
    place_, job = next(
        (i, waiting_job) for i, waiting_job in enumerate(schedule.waiting) if waiting_job.uid == uid
    )
    if not job.possible:
        nowhere = next((group.nowhere for group in job.groups if group.nowhere), "")
        return _wait(Reason.NO_MATCH, nowhere) if nowhere else _wait(Reason.NEVER, _never(job, schedule))
    more = _more_workers(job)
    if job.short is not None:
        return _wait(job.short.reason, f"{more}{job.short.message}{_behind_at(schedule, place_, job)}")
    # Without the length of the queue: a job that joins it behind would change the message of all others. A job that no
    # node can ever hold does not count as standing before others.
    position = f"position {1 + sum(earlier.possible for earlier in schedule.waiting[:place_])} in the queue"
    before = next((earlier for earlier in reversed(schedule.waiting[:place_]) if earlier.ready), None)
    behind = f"; behind {_as_seen_by(job, before)}" if before is not None else ""
    held = ""
    if schedule.holder and schedule.holder != uid:
        owner = next(
            _as_seen_by(job, waiting_job)
            for waiting_job in schedule.waiting
            if waiting_job.uid == schedule.holder and not waiting_job.runs
        )
        are = "node is" if len(schedule.aside) == 1 else "nodes are"
        held = f"; {len(schedule.aside)} {are} set aside for {owner}, which was passed too often"
    if schedule.holder == uid and schedule.victims:
        jobs = f"{len(schedule.victims)} job{'' if len(schedule.victims) == 1 else 's'}"
        held = f"; it takes the place of {jobs} of lower priority, whose pods are ended now"
    elif schedule.holder == uid and schedule.gone_by:
        held = f"; pods are being ended that leave it room, by {schedule.gone_by} at the latest"
    elif job.may_preempt and schedule.lingering:
        held = (
            f"; pods that are being ended have until {schedule.lingering}, by their terminationGracePeriodSeconds: no "
            "node is set aside for so long, and no other job whose pods may take as long is ended meanwhile"
        )
    room = schedule.room or RoomTable({})
    if room.fits(job.groups, scarce=job.scarce):
        text = f"{more}its pods would fit, but others are first: {position}{behind}{held}"
        return _wait(Reason.BEHIND, text)
    return _wait(Reason.NO_ROOM, f"{more}{_missing(job, room)}; {position}{behind}{held}")


def wait_sentence(wait: DataWait) -> str:
    """Why a job that could start waits, and until when."""
    first_nodes = ", ".join(wait.nodes[:NODES_NAMED])
    more = f" and {len(wait.nodes) - NODES_NAMED} more" if len(wait.nodes) > NODES_NAMED else ""
    other_ways = {
        "Grow": "a copy on other nodes",
        "Remote": "reading from other nodes",
        "Near": "another place",
    }
    return (
        f"it waits for room on the nodes with Dataset {wait.dataset} ({first_nodes}{more}), which is expected at "
        f"{time_after(wait.since, seconds=wait.expected_seconds)} and costs it {wait.wait_seconds} s; "
        f"{other_ways[wait.other_way]} costs {wait.other_seconds} s. It starts where there is room at "
        f"{wait.until} at the latest"
    )


def _as_seen_by(job: QueuedJob, other_job: QueuedJob) -> str:
    """A job in a message to another one: a namespace hears no name of another namespace's."""
    return "/".join(other_job.key) if other_job.key[0] == job.key[0] else "a job of another namespace"


def _more_workers(job: QueuedJob) -> str:
    """Of an elastic job that runs: how many more workers it asks for."""
    if not job.runs or job.growth is None:
        return ""
    count = job.growth.pods.count
    return f"{count} more worker{'' if count == 1 else 's'} wait{'s' if count == 1 else ''} for room: "


def _behind_at(schedule: Schedule, place_: int, job: QueuedJob) -> str:
    """Of a job that waits for a place at a dataset: who gets the next one before it."""
    dataset = job.short.dataset if job.short is not None else ""
    if not dataset:
        return ""
    before = [
        "/".join(earlier.key)
        for earlier in schedule.waiting[:place_]
        if earlier.data_ready
        and earlier.possible
        and any(request.dataset == dataset for request in earlier.access)
    ]
    if not before:
        return "; it is the next"
    if len(before) == 1:
        return f"; {before[0]} is before it"
    return f"; {len(before)} are before it, the last of them {before[-1]}"


def admission_of(pods: int) -> Admission:
    """What the queue says to a job that is admitted; without pods: to one that starts pod by pod."""
    if not pods:
        text = "its datasets have a place for it"
        return Admission(admitted=True, data_ready=True, reason=Reason.READY, message=text)
    text = "its pod fits" if pods == 1 else f"all {pods} pods fit at once"
    return Admission(admitted=True, data_ready=True, reason=Reason.FITS, message=text)


def released_admission(pods: int) -> Admission:
    """What the queue says to a job whose pods are made although they have no room yet."""
    pods_text = "its pod is" if pods == 1 else f"all {pods} pods are"
    text = f"{pods_text} made at once, so that nodes come for what has no room (operator.nodeProvisioning Release)"
    return Admission(admitted=True, data_ready=True, reason=Reason.AWAITS_NODES, message=text)


def _one(group: PodGroup) -> PodGroup:
    return PodGroup(count=1, request=group.request, nodes=group.nodes)


def _wait(reason: Reason, message: str) -> Admission:
    return Admission(admitted=False, data_ready=True, reason=reason, message=message)


def _count(job: QueuedJob) -> str:
    count = sum(group.count for group in job.groups)
    return f"{count} pod{'' if count == 1 else 's'}"


def _missing(job: QueuedJob, room: RoomTable) -> str:
    """What there is too little of, in numbers."""
    usable = room.usable(job.groups)
    nodes = _nodes(int(usable.sum()))
    names_ = sorted({name for group in job.groups for name in group.request} - {PODS})
    for resource in sorted(names_, key=lambda name: name != job.scarce):
        needed = sum(group.count * group.request.get(resource, 0) for group in job.groups)
        free = room.total(resource, rows=usable)
        if needed > free:
            amounts = f"{shown(resource, needed)} at once, {shown(resource, free)} free on {nodes}"
            return f"needs {amounts} that its {_count(job)} may use"
    placed = sum(room.count(group) for group in job.groups)
    scarce = job.scarce
    free = room.total(scarce, rows=usable)
    return (
        f"only {placed} of its {_count(job)} would find room at once: {shown(scarce, free)} are free on "
        f"{nodes} that they may use, but spread over too many of them, or other resources are short there"
    )


def _nodes(count: int) -> str:
    return "the only node" if count == 1 else f"the {count} nodes"


def _never(job: QueuedJob, schedule: Schedule) -> str:
    for group in job.groups:
        usable = [name for name in schedule.capacity if group.nodes is None or name in group.nodes]
        if not usable:
            return "none of the nodes that its pods may use is there any more"
        if most_that_fit(group=_one(group), free={name: schedule.capacity[name] for name in usable}) == 0:
            nodes = [schedule.capacity[name] for name in usable]
            return _unknown_resource(group, nodes) or (
                f"a pod asks for {_short_everywhere(group, nodes)}: ask for less, or add nodes"
            )
    room = sum(most_that_fit(group=group, free=schedule.capacity) for group in job.groups)
    return (
        f"even with all nodes empty only {room} of its {_count(job)} would fit: "
        "ask for fewer or smaller pods, or add nodes"
    )


def _unknown_resource(group: PodGroup, nodes: Sequence[Amounts]) -> str:
    """That no node has a device of the name asked for, where nodes have others; empty: not so."""
    offered = sorted({name for node in nodes for name, amount in node.items() if "/" in name and amount > 0})
    for resource in sorted(group.request):
        if "/" in resource and resource not in offered and offered:
            return (
                f"a pod asks for {resource}, which no node that it may use has; they have {', '.join(offered)}: "
                "correct the name, or add nodes that have it"
            )
    return ""


def _short_everywhere(group: PodGroup, nodes: Sequence[Amounts]) -> str:
    for resource, requested in sorted(group.request.items(), key=lambda item: item[0] != names.GPU_RESOURCE):
        most = max(node.get(resource, 0) for node in nodes)
        if requested > most:
            return f"{shown(resource, requested)}, and the largest node that it may use has {shown(resource, most)}"
    asked_for = ", ".join(shown(name, value) for name, value in sorted(group.request.items()) if name != PODS)
    return f"{asked_for}, and no node that it may use has all of that"


def shown(resource: str, value: int) -> str:
    """An amount as people read it: ``4 nvidia.com/gpu``, ``1.5 cpu``, ``2 GiB memory``."""
    if resource == CPU:
        return f"{value / 1000:g} cpu"
    if resource in {"memory", "ephemeral-storage"}:
        return f"{human(value)} {resource}"
    return f"{value} {resource}"
