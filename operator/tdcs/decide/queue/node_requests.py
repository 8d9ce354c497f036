"""Which waiting jobs ask for nodes that are not there yet, and what came of it.

A gang that the present nodes cannot hold asks for more: by a ProvisioningRequest, which the cluster autoscaler answers,
or by releasing all its pods at once, by which Karpenter and others see what is missing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.model.kube_objects import Object

NodeProvisioning = Literal["Off", "ProvisioningRequest", "Release"]

MOST_ASKING = 8
"""So many jobs ask for nodes at once, the first of the queue: an autoscaler adds nodes for all of them, and what the
others need is known better once these have started."""

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 1800.0
"""Seconds until a job asks again that got no nodes: the first time, and at most."""


class RequestState(StrEnum):
    """What became of a ProvisioningRequest: the reasons of the condition NodesRequested."""

    REQUESTED = "Requested"
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "ProvisioningFailed"
    EXPIRED = "BookingExpired"
    REVOKED = "CapacityRevoked"


OVER = frozenset({RequestState.FAILED, RequestState.EXPIRED, RequestState.REVOKED})
"""Nothing more comes of such a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """What a ProvisioningRequest says, with the autoscaler's own words."""

    state: RequestState
    message: str = ""


def answer_of(request: Object) -> RequestAnswer:
    """What the conditions of a ProvisioningRequest say; the worst of them counts."""
    conditions = {
        condition.get("type"): condition
        for condition in (request.get("status") or {}).get("conditions") or ()
    }
    for kind, state in (
        ("Failed", RequestState.FAILED),
        ("CapacityRevoked", RequestState.REVOKED),
        ("BookingExpired", RequestState.EXPIRED),
        ("Provisioned", RequestState.PROVISIONED),
        ("Accepted", RequestState.ACCEPTED),
    ):
        condition = conditions.get(kind) or {}
        if condition.get("status") == "True":
            return RequestAnswer(state=state, message=str(condition.get("message") or ""))
    # While it looks for capacity, it says so in a condition that is False.
    condition = conditions.get("Provisioned") or conditions.get("Accepted") or {}
    return RequestAnswer(state=RequestState.REQUESTED, message=str(condition.get("message") or ""))


def pause_after(tries: int) -> float:
    """Seconds until a job asks again whose requests came to nothing so many times."""
    return min(FIRST_PAUSE * 2.0 ** min(max(tries - 1, 0), 32), LONGEST_PAUSE)


def askers(schedule: Schedule, *, resting: Collection[str], most: int = MOST_ASKING) -> list[QueuedJob]:
    """The jobs that ask for nodes, the first of the queue: those that lack nothing but room.

    Args:
        schedule: the queue after every job was admitted that fits.
        resting: uids of jobs whose last request came to nothing, and that ask later again.
        most: how many at most.
    """
    asking: list[QueuedJob] = []
    for job in schedule.waiting:
        if len(asking) >= most:
            break
        gets_room = job.uid == schedule.holder and bool(schedule.victims)
        if job.runs or job.pauses or not job.data_ready or job.short is not None or not job.pod_count:
            continue
        if gets_room or job.uid in resting:
            continue
        # Room that is set aside for another job is room: it gets it, or the next, in its turn.
        if schedule.room is None or not schedule.room.fits(job.groups, scarce=job.scarce):
            asking.append(job)
    return asking


def without_nodes_of_others(
    waiting: Sequence[QueuedJob], *, asking: Mapping[str, str], created: Mapping[str, str]
) -> list[QueuedJob]:
    """The same jobs, those that asked for no nodes without the nodes that came since for one that did.

    Nodes come one by one: a small job would take the first of those that a large one waits for.

    Args:
        waiting: all jobs that wait.
        asking: by uid of those that asked, since when.
        created: when each node was made (RFC 3339).
    """
    owner_of: dict[str, str] = {}
    usable = {
        job.uid: [group.nodes for group in job.groups]
        for job in waiting
        if job.uid in asking and not job.runs
    }
    for uid, since in sorted(asking.items(), key=lambda item: (item[1], item[0])):
        for node, at in created.items():
            if at >= since and any(nodes is None or node in nodes for nodes in usable.get(uid, ())):
                owner_of.setdefault(node, uid)
    if not owner_of:
        return list(waiting)
    usable_of: dict[tuple[str, frozenset[str] | None], frozenset[str]] = {}

    def rest(uid: str, nodes: frozenset[str] | None) -> frozenset[str]:
        owner = uid if uid in asking else ""
        if (owner, nodes) not in usable_of:
            all_nodes = created.keys() if nodes is None else nodes
            usable_of[owner, nodes] = frozenset(
                node for node in all_nodes if owner_of.get(node, owner) == owner
            )
        return usable_of[owner, nodes]

    return [
        replace(
            job,
            groups=tuple(replace(group, nodes=rest(job.uid, group.nodes)) for group in job.groups),
            growth=job.growth
            and replace(
                job.growth, pods=replace(job.growth.pods, nodes=rest(job.uid, job.growth.pods.nodes))
            ),
        )
        for job in waiting
    ]
