"""Which nodes are set aside for a job that was passed too often."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tdcs.decide.place.gang_fit import most_that_fit, place
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model.pod_resources import Amounts


def nodes_aside(
    job: QueuedJob, *, room: RoomTable, nodes: Nodes, previous_nodes: frozenset[str] = frozenset()
) -> frozenset[str]:
    """The fewest nodes that hold the job once its fellows have left them; of all nodes, if others must leave, too.

    Pods of others may stay forever (a DaemonSet's do): nodes are chosen next to these, where that is possible.

    Args:
        job: which was passed too often.
        room: what each node has left.
        nodes: what each has when it is empty, and next to the pods of others.
        previous_nodes: the nodes that were set aside for it before.
    """
    for sizes in (nodes.lasting or nodes.capacity, nodes.capacity):
        nodes_for_job = _fewest(job, sizes, room=room, previous_nodes=previous_nodes)
        if nodes_for_job:
            return nodes_for_job
    return frozenset()


def _fewest(
    job: QueuedJob, sizes: Mapping[str, Amounts], *, room: RoomTable, previous_nodes: frozenset[str]
) -> frozenset[str]:
    single_pods = [replace(group, count=1) for group in job.groups]
    node_names = set(room.names)
    usable = {
        node: size
        for node, size in sizes.items()
        if node in node_names and any(most_that_fit(group=group, free={node: size}) for group in single_pods)
    }

    def holds(nodes: Sequence[str]) -> bool:
        return (
            place(groups=job.groups, free={node: usable[node] for node in nodes}, scarce=job.scarce)
            is not None
        )

    return frozenset(
        nodes_to_set_aside(
            free={node: room.left(node, job.scarce) for node in usable},
            sizes={node: size.get(job.scarce, 0) for node, size in usable.items()},
            holds=holds,
            previous_nodes=previous_nodes & usable.keys(),
        )
    )


def nodes_to_set_aside(
    *,
    free: Mapping[str, int],
    sizes: Mapping[str, int],
    holds: Callable[[Sequence[str]], bool],
    previous_nodes: Collection[str] = (),
) -> tuple[str, ...]:
    """The fewest nodes that hold all pods of a job that was passed too often, once they are empty.

    The largest nodes come first, then those with the most free. Nodes that were set aside before stay so, for else
    what has drained would be given away: they come back as they are while they are enough.

    Args:
        free: the GPUs (or whatever is scarce) that each node has free; only nodes that can hold a pod of the job.
        sizes: those that it has when it is empty.
        holds: whether these nodes hold all pods of the job once they are empty; more nodes hold no less.
        previous_nodes: the nodes that were set aside for it before.

    Returns:
        The nodes; none when not even all of them hold the job.
    """
    before = tuple(sorted(node for node in previous_nodes if node in free))
    if before and holds(before):
        return before
    other_nodes = sorted(free.keys() - set(before), key=lambda node: (-sizes.get(node, 0), -free[node], node))
    order = (*before, *other_nodes)
    if not holds(order):
        return ()
    few, enough = 0, len(order)
    while few + 1 < enough:
        middle = (few + enough) // 2
        if holds(order[:middle]):
            enough = middle
        else:
            few = middle
    return order[:enough]
