"""Where a job and its data meet when the nodes of the data have no room for the job.

There are three ways, besides that there is room: to wait for a place at the data, to let the copy grow onto the nodes
that the job gets, or to read from other nodes for as long as the job runs. :func:`weigh` estimates what each of them
costs the job, in seconds beyond its time with all of its data on its own nodes, and takes the least.
:func:`weigh_wait` puts that together for all datasets of a job: it can only wait for all of them, or for none.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tdcs.decide.place.gang_fit import Amounts, PodGroup, room_for

PEER_RATE = 200e6
"""Bytes a second that a node gets from others of the cache, as long as nothing was measured: two thirds of what a link
of 2.5 Gbit/s carries, the slowest one that clouds give to GPU nodes."""

LOCAL_RATE = 1.5e9
"""Bytes a second that pods read from their node's own disk (NVMe)."""

PASSES = 10
"""So often a job reads all of its data, where nothing says how long it runs: epochs are tens to hundreds."""

BEGIN_SECONDS = 5.0
"""So long it takes until a copy begins to grow: decisions, assignments and reports of agents."""

LONGEST_WAIT = 1800.0
"""A job waits no longer than so many seconds for a place at its data, whatever else costs: somebody looks at GPUs that
are free, and at a job that does not start."""

NEAR_SHARE = 0.9
"""A node with so much of the most that any node has counts as a node of the data: the parts of a copy that is spread
over nodes are not quite equal."""

WHOLE = 0.999
"""A node that has so much of what it is to have counts as having it: files that cannot be had are left out."""


class Way(StrEnum):
    """How a job comes to a dataset's bytes; the first of equal costs is taken."""

    NEAR = "Near"
    GROW = "Grow"
    WAIT = "Wait"
    REMOTE = "Remote"


AT_JOB: Final = frozenset({Way.NEAR, Way.GROW, Way.WAIT})
"""By these a job reads on its own nodes, now or soon: a copy that may be on as many nodes as its jobs need stays there
as long as the job runs, for whichever job it came there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingInput:
    """A job that may start now, and one of its datasets.

    Attributes:
        size: bytes of one copy that are wanted in the cache.
        held: bytes of it on each node, and what is on its way there already.
        pods: how many pods that read it each node gets.
        room: bytes of it that the cache of each of these nodes could hold beside what is in use there.
        grows: whether the Dataset leaves it to the operator how many nodes hold a copy.
        peer_rate: bytes a second that a node gets from others of the cache, as measured.
        run_seconds: how long the job runs at most, or has run; None: nobody knows.
        wait_seconds: until there is room for all of its pods at the data; None: nobody knows.
    """

    size: int
    held: Mapping[str, int]
    pods: Mapping[str, int]
    room: Mapping[str, int] = field(default_factory=dict)
    grows: bool = True
    peer_rate: float = PEER_RATE
    run_seconds: float | None = None
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What was chosen.

    Attributes:
        way: the choice.
        costs: seconds that each possible way costs the job.
        missing_bytes: what travels to the job's nodes when the copy grows.
        expected_seconds: until the job's nodes have what they are to have, or there is room; None: never.
        share: of its bytes the part that the pods read from their own nodes, at first.
        without_room: nodes whose cache has no room for the copy.
    """

    way: Way
    costs: Mapping[Way, float]
    missing_bytes: int = 0
    expected_seconds: float | None = None
    share: float = 0.0
    without_room: tuple[str, ...] = ()


def weigh(meeting: MeetingInput) -> Meeting:
    """Choose how a job and a dataset meet."""
    pods = sum(meeting.pods.values())
    most = max((*meeting.held.values(), 0))
    if meeting.size <= 0 or not pods:
        return Meeting(way=Way.NEAR, costs={Way.NEAR: 0.0}, expected_seconds=0.0, share=1.0)
    share = _share(meeting, meeting.held)
    best = min(most / meeting.size, 1.0)
    loss = 1.0 - min(meeting.peer_rate / LOCAL_RATE, 1.0)
    remote = _remote(meeting, 1.0 - share, loss=loss)
    if best and share >= best * WHOLE:
        # No node has more of it: a copy that is spread over nodes is as near as it can be.
        return Meeting(way=Way.NEAR, costs={Way.NEAR: remote}, expected_seconds=0.0, share=share)
    costs = {Way.REMOTE: remote}
    fitting = [node for node in meeting.pods if meeting.room.get(node, 0) >= meeting.size]
    lacks = {node: max(meeting.size - meeting.held.get(node, 0), 0) for node in fitting}
    travel = BEGIN_SECONDS + max(lacks.values(), default=0) / max(meeting.peer_rate, 1.0)
    if meeting.grows and any(lacks.values()) and travel < (meeting.run_seconds or math.inf):
        then = _share(meeting, {**meeting.held, **dict.fromkeys(fitting, meeting.size)})
        # Until it is there the job reads as it would for good.
        costs[Way.GROW] = min(travel * (1.0 - share) * loss + _remote(meeting, 1.0 - then, loss=loss), remote)
    if meeting.wait_seconds is not None:
        # Where a copy is spread over nodes even they read the rest from one another.
        costs[Way.WAIT] = meeting.wait_seconds + _remote(meeting, 1.0 - best, loss=loss)
    way = min(costs, key=lambda candidate: (costs[candidate], list(Way).index(candidate)))
    expected = {Way.GROW: travel, Way.WAIT: meeting.wait_seconds}.get(way)
    return Meeting(
        way=way,
        costs=costs,
        missing_bytes=sum(lacks.values()) if way is Way.GROW else 0,
        expected_seconds=expected,
        share=share,
        without_room=tuple(sorted(meeting.pods.keys() - set(fitting))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitChoice:
    """Whether a job waits for a place at its data.

    Attributes:
        waits: the choice.
        wait_cost: seconds that waiting is expected to cost the job.
        other_cost: what the least of the other ways costs it, over all of its datasets.
        expected_seconds: until there is room at its data.
        longest_seconds: it waits no longer than that: for longer than the other way costs nobody gains.
        dataset: the one that costs most, if it does not wait.
        meeting: how that one would be met then, with the costs of each way.
        nodes: those of its data.
    """

    waits: bool
    wait_cost: float
    other_cost: float
    expected_seconds: float
    longest_seconds: float
    dataset: str
    meeting: Meeting
    nodes: frozenset[str]


def weigh_wait(datasets: Mapping[str, MeetingInput], *, wait_seconds: float) -> WaitChoice:
    """Weigh for a job that may start now whether it waits for a place at its data.

    Args:
        datasets: those that it reads, one at least, with the nodes that it would get now.
        wait_seconds: until all of its pods have room at the data.
    """
    choices = {name: weigh(replace(meeting, wait_seconds=wait_seconds)) for name, meeting in datasets.items()}
    other_costs = {
        name: min(cost for way, cost in choice.costs.items() if way is not Way.WAIT)
        for name, choice in choices.items()
    }
    rests = {
        name: choice.costs[Way.WAIT] - wait_seconds if Way.WAIT in choice.costs else other_costs[name]
        for name, choice in choices.items()
    }
    other_cost, rest_cost = sum(other_costs.values()), sum(rests.values())
    dearest = max(choices, key=lambda name: (other_costs[name] - rests[name], name))
    longest = min(other_cost - rest_cost, LONGEST_WAIT)
    return WaitChoice(
        waits=wait_seconds < longest,
        wait_cost=wait_seconds + rest_cost,
        other_cost=other_cost,
        expected_seconds=wait_seconds,
        longest_seconds=max(longest, 0.0),
        dataset=dearest,
        meeting=choices[dearest],
        nodes=data_nodes(datasets.values()),
    )


def data_nodes(datasets: Iterable[MeetingInput]) -> frozenset[str]:
    """The nodes with the most of a job's data, none where no node has any."""
    held_bytes: dict[str, int] = {}
    for meeting in datasets:
        for node, size in meeting.held.items():
            held_bytes[node] = held_bytes.get(node, 0) + min(size, meeting.size)
    most = max(held_bytes.values(), default=0)
    return frozenset(node for node, size in held_bytes.items() if most and size >= most * NEAR_SHARE)


def _share(meeting: MeetingInput, held: Mapping[str, int]) -> float:
    """The part of the bytes that pods read from their own nodes, the mean over the pods."""
    near = sum(count * min(held.get(node, 0), meeting.size) for node, count in meeting.pods.items())
    return near / (meeting.size * sum(meeting.pods.values()))


def _remote(meeting: MeetingInput, part: float, *, loss: float) -> float:
    """What it costs to read this part from other nodes until the job ends. Its nodes read at the same time."""
    if meeting.run_seconds is not None:
        return meeting.run_seconds * part * loss
    slower = max(1.0 / max(meeting.peer_rate, 1.0) - 1.0 / LOCAL_RATE, 0.0)
    return PASSES * meeting.size / len(meeting.pods) * part * slower


def has_met(*, size: int, held: Mapping[str, int], nodes: Iterable[str]) -> bool:
    """Whether all of these nodes have what they were to get."""
    return all(held.get(node, 0) >= size * WHOLE for node in nodes)


def expected_nodes(
    *, groups: Iterable[PodGroup], free: Mapping[str, Amounts], scores: Mapping[str, int], scarce: str
) -> dict[str, int]:
    """How many pods each node will get, as kube-scheduler places them with the extender: one by one where the score is
    best, and among equals on the fullest node. What finds no room is left out."""
    free_amounts = {name: dict(amounts) for name, amounts in free.items()}
    pods_on_node: dict[str, int] = {}
    for group in sorted(groups, key=lambda group: -group.request.get(scarce, 0)):
        usable = free_amounts.keys() if group.nodes is None else group.nodes & free_amounts.keys()
        ranked = sorted(
            usable, key=lambda node: (-scores.get(node, 0), free_amounts[node].get(scarce, 0), node)
        )
        missing = group.count
        for node in ranked:
            count = min(room_for(request=group.request, free=free_amounts[node]), missing)
            if count <= 0:
                continue
            pods_on_node[node] = pods_on_node.get(node, 0) + count
            for name, requested in group.request.items():
                free_amounts[node][name] = free_amounts[node].get(name, 0) - count * requested
            missing -= count
            if not missing:
                break
    return pods_on_node
