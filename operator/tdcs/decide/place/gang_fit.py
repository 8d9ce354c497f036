"""Whether the pods of a job fit at once on what nodes have left, over any resources.

Beside GPUs a cluster has CPU, memory, a number of pods per node, and pods that may run on some nodes only.

Pods go where their data is (:mod:`tdcs.decide.place.node_score`). Where that begins an empty node, a gang of whole
nodes waits longer, and that costs more than the small pod gains: the other nodes of the cache are a link away. So where
jobs with larger pods are about, smaller pods keep off the empty nodes that those need
(:class:`tdcs.decide.queue.kept_nodes.NodesLeft`).
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Amounts = Mapping[str, int]
"""Amount by resource name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodGroup:
    """Equal pods.

    Attributes:
        count: how many.
        request: what each takes of its node.
        nodes: those it may run on; None is all.
        nowhere: why it may run on none, as a sentence; empty where it may.
    """

    count: int
    request: Amounts
    nodes: frozenset[str] | None = None
    nowhere: str = ""


def room_for(*, request: Amounts, free: Amounts) -> int:
    """How many pods of a request fit on a node with this much free; a pod that asks for nothing always fits."""
    rooms = [free.get(name, 0) // requested for name, requested in request.items() if requested > 0]
    return max(min(rooms, default=1 << 30), 0)


def place(
    *, groups: Sequence[PodGroup], free: Mapping[str, Amounts], scarce: str = ""
) -> dict[str, Amounts] | None:
    """What would be left of `free` with all pods placed; None when they do not fit at once.

    Groups with the largest request first, each node filled before the next, and of those that have room the one
    with the least of the scarce resource left first: exact for equal pods, and a safe no at worst otherwise.

    Args:
        groups: the pods of a job.
        free: what each node has left; it and its values stay as they are.
        scarce: the resource that decides which node is fullest, such as GPUs.
    """
    remaining = dict(free)
    for group in sorted(
        groups, key=lambda group: (-group.request.get(scarce, 0), -sum(group.request.values()))
    ):
        if _fill(group, remaining, scarce=scarce) < group.count:
            return None
    return remaining


def place_most(*, groups: Iterable[PodGroup], free: dict[str, Amounts], scarce: str = "") -> None:
    """Take from `free`, in place, what those pods of the groups need that find room."""
    for group in groups:
        _fill(group, free, scarce=scarce)


def most_that_fit(*, group: PodGroup, free: Mapping[str, Amounts]) -> int:
    """How many pods of one kind would fit; at most as many as there are."""
    total = 0
    for name, amounts in free.items():
        if group.nodes is None or name in group.nodes:
            total += room_for(request=group.request, free=amounts)
            if total >= group.count:
                return group.count
    return total


def _fill(group: PodGroup, remaining: dict[str, Amounts], *, scarce: str) -> int:
    """Place as many pods of a group as find room; gives their number. Nodes that take some get a new value.

    This is asked for every job and thousands of nodes: the scarce resource is looked at first, because it is what a
    full node lacks, and no more nodes are sorted than there are pods.
    """
    needs = sorted(
        ((name, requested) for name, requested in group.request.items() if requested > 0),
        key=lambda need: need[0] != scarce,
    )
    rooms = []
    for name in remaining if group.nodes is None else group.nodes & remaining.keys():
        node = remaining[name]
        room = group.count
        for resource, requested in needs:
            fitting = node.get(resource, 0) // requested
            if fitting < room:
                room = fitting
                if room <= 0:
                    break
        if room > 0:
            rooms.append((node.get(scarce, 0), name, room))
    placed = 0
    for _, name, room in heapq.nsmallest(group.count, rooms):
        count = min(room, group.count - placed)
        node = remaining[name]
        remaining[name] = {**node, **{resource: node[resource] - count * need for resource, need in needs}}
        placed += count
        if placed == group.count:
            break
    return placed


def empty_nodes(*, free: Mapping[str, int], sizes: Mapping[str, int]) -> dict[int, set[str]]:
    """The nodes with nothing taken, by their GPUs.

    Args:
        free: the GPUs that each node has free.
        sizes: those that it has when it is empty.
    """
    nodes_by_size: dict[int, set[str]] = {}
    for node, size in sizes.items():
        if size > 0 and free.get(node) == size:
            nodes_by_size.setdefault(size, set()).add(node)
    return nodes_by_size


def leaves(gpus: int, *, other_gpus: int, size: int) -> bool:
    """Whether a pod with so many GPUs leaves an empty node of a size to one with `other_gpus`, which would not fit
    next to it."""
    return gpus < size and other_gpus <= size < other_gpus + gpus
