"""How many cache workers there shall be, and which one leaves.

Growing: the cache has as many workers as its owner asked for; with `follow_jobs` also one on every
node that runs a training job; and more when it is nearly full. Full and empty have two different
thresholds with a wide gap, and shrinking waits until the lower one has held for a while, so that the
cache does not swing.

Shrinking: the worker whose loss costs least leaves, one at a time. Its loss is the bytes that lie
nowhere else, weighted by the demand for their dataset; bytes that have another copy cost nothing.
Before it leaves, its last copies move to the free room of other nodes, the most wanted first.

Limits: room is planned over the cluster as it is known now; moving takes time that is not planned.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why the number of workers is what it is."""

    ASKED = "Asked"
    JOBS = "FollowsJobs"
    FULL = "UsageHigh"
    EMPTY = "UsageLow"
    STEADY = "Steady"


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """When usage makes the cache grow or shrink.

    Attributes:
        grow_above: used over capacity above which a worker is added.
        shrink_below: used over capacity below which one may leave; usage must stay below
            `grow_above` after it left.
        shrink_delay: seconds for which usage must have been low.
    """

    grow_above: float = 0.85
    shrink_below: float = 0.5
    shrink_delay: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Desired:
    """The wanted number of workers, and why."""

    replicas: int
    reason: Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Bytes of a dataset on a node.

    Attributes:
        dataset: its name.
        held_bytes: bytes on the node.
        last_copy_bytes: those of them that lie on no other node.
        worth: how much it is wanted, in any unit that all of them share: store bandwidth saved per byte
            (`allocation.saved_per_byte`), or the number of jobs that read it; 0 when nobody does.
    """

    dataset: str
    held_bytes: int
    last_copy_bytes: int
    worth: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A cache worker as scale-in sees it."""

    node: str
    free_bytes: int
    held: tuple[Held, ...] = ()
    runs_jobs: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """Bytes of a dataset that shall go from the draining worker to another node."""

    dataset: str
    to_node: str
    moved_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainPlan:
    """The worker that leaves, where its last copies go, and the bytes for which there is no room."""

    node: str
    moves: tuple[Move, ...]
    lost_bytes: int


def desired_replicas(
    *,
    asked: int,
    current: int,
    job_nodes: int = 0,
    follow_jobs: bool = True,
    maximum: int | None = None,
    used_ratio: float = 0.0,
    low_for: float = 0.0,
    thresholds: Thresholds | None = None,
) -> Desired:
    """The wanted number of workers: at least what was asked for, at most `maximum`.

    Args:
        asked: spec.replicas, the floor.
        current: workers that there are.
        job_nodes: nodes on which training jobs run or are about to.
        follow_jobs: whether a node with a job gets a worker.
        maximum: spec.scaling.maxReplicas; None means no limit. Never below `asked`.
        used_ratio: used over capacity.
        low_for: seconds for which the ratio has been below `shrink_below`.
        thresholds: see :class:`Thresholds`.
    """
    limits = thresholds or Thresholds()
    floor = max(asked, job_nodes if follow_jobs else 0)
    cap = math.inf if maximum is None else max(maximum, asked)
    why = Reason.JOBS if floor > asked else Reason.ASKED
    if current < floor:
        return _capped(floor, cap, why)
    if used_ratio > limits.grow_above:
        return _capped(current + 1, cap, Reason.FULL)
    if current > floor and used_ratio < limits.shrink_below and low_for >= limits.shrink_delay:
        fewer = current - 1
        after = used_ratio * current / fewer if fewer else math.inf
        if fewer >= 1 and after < limits.grow_above:
            return _capped(fewer, cap, Reason.EMPTY)
    return _capped(current, cap, why if current == floor else Reason.STEADY)


def loss(worker: Worker) -> float:
    """What it costs to lose a worker now: last copies, weighted by demand, those nobody reads a little."""
    return sum(one.last_copy_bytes * (one.worth + 1e-12) for one in worker.held)


def leaves_first(workers: Sequence[Worker]) -> Worker | None:
    """The worker whose loss costs least; one without jobs before one with."""
    return min(workers, key=lambda one: (one.runs_jobs, loss(one), one.node), default=None)


def drain_plan(*, draining: Worker, others: Sequence[Worker]) -> DrainPlan:
    """Where the last copies of a draining worker go: the most wanted first, onto the emptiest nodes."""
    room: dict[str, int] = {one.node: one.free_bytes for one in others if one.node != draining.node}
    moves: list[Move] = []
    lost = 0
    for held in sorted(draining.held, key=lambda one: (-one.worth, one.dataset)):
        left = held.last_copy_bytes
        for node in _emptiest_first(room):
            if left <= 0:
                break
            moved = min(left, room[node])
            if moved > 0:
                moves.append(Move(dataset=held.dataset, to_node=node, moved_bytes=moved))
                room[node] -= moved
                left -= moved
        lost += left
    return DrainPlan(node=draining.node, moves=tuple(moves), lost_bytes=lost)


def _emptiest_first(room: Mapping[str, int]) -> list[str]:
    return sorted(room, key=lambda node: (-room[node], node))


def _capped(replicas: int, cap: float, reason: Reason) -> Desired:
    return Desired(replicas=int(min(replicas, cap)), reason=reason)
