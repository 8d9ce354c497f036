"""Which nodes the jobs that are admitted in one pass over the queue leave to larger pods."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tdcs.api import names
from tdcs.decide.queue.gang_fit import Gang, PodGroup, empty_nodes, nodes_to_leave
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.model.pod_resources import Amounts

NodesToLeave = Mapping[int, frozenset[str]]
"""Nodes that pods keep off while another has room for them, by the GPUs of a pod."""

LEAVE_MOST = 256
"""Nodes that are named to a pod at most: every pod carries them in an annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """The pods of all jobs of one priority that run."""

    priority: int
    groups: tuple[PodGroup, ...]
    ready: bool = True


class NodesLeft:
    """Follows the empty nodes, and the pods that run, while jobs are admitted: all nodes and jobs are read once.

    Args:
        free: what each node has left.
        capacity: what each has when it is empty.
        running: the jobs that were admitted before and have not ended, with all their pods.
    """

    def __init__(
        self,
        *,
        free: Mapping[str, Amounts],
        capacity: Mapping[str, Amounts],
        running: Iterable[QueuedJob],
    ) -> None:
        gpus = names.GPU_RESOURCE
        self._sizes = {node: size.get(gpus, 0) for node, size in capacity.items()}
        left = {node: amounts.get(gpus, 0) for node, amounts in free.items()}
        self._empty = empty_nodes(free=left, sizes=self._sizes)
        self._pods: dict[int, Counter[tuple[int, frozenset[str] | None]]] = {}
        for job in running:
            self._count(job)

    def of(
        self, job: QueuedJob, *, waiting: Collection[QueuedJob], aside: frozenset[str], urgent: bool
    ) -> NodesToLeave:
        """What the pods of a job keep off that is admitted: nodes that are set aside, and empty ones that larger pods
        need; of both at most `LEAVE_MOST`, those that are set aside first.

        Args:
            job: before its pods take their room.
            waiting: those that have nodes left to them.
            aside: the nodes that are set aside for one of these.
            urgent: whether the job has a higher priority than that one.
        """
        if job.scarce != names.GPU_RESOURCE:
            return {}
        empty = {size: nodes - aside for size, nodes in self._empty.items() if not nodes <= aside}
        running = [_Running(priority=priority, groups=_groups(pods)) for priority, pods in self._pods.items()]
        others: list[Gang] = [*waiting, *running]
        found = nodes_to_leave(job=job, others=others, empty=empty, scarce=names.GPU_RESOURCE)
        first = frozenset[str]() if urgent else aside
        sizes = set(job.pods) if first else found.keys()
        return {gpus: _limited(first, found.get(gpus, frozenset())) for gpus in sizes}

    def admitted(self, job: QueuedJob | None, *, changed: Mapping[str, Amounts]) -> None:
        """A job has got its room.

        Args:
            job: which runs from now on; None for one that was counted before, and has grown.
            changed: what the nodes have left that it takes room of.
        """
        for node, amounts in changed.items():
            size = self._sizes.get(node, 0)
            if amounts.get(names.GPU_RESOURCE, 0) != size and size in self._empty:
                self._empty[size].discard(node)
                if not self._empty[size]:
                    del self._empty[size]
        if job is not None:
            self._count(job)

    def _count(self, job: QueuedJob) -> None:
        pods = self._pods.setdefault(job.priority, Counter())
        for group in job.groups:
            if gpus := group.request.get(names.GPU_RESOURCE, 0):
                pods[gpus, group.nodes] += group.count


def _groups(pods: Mapping[tuple[int, frozenset[str] | None], int]) -> tuple[PodGroup, ...]:
    return tuple(
        PodGroup(count=count, request={names.GPU_RESOURCE: gpus}, nodes=nodes)
        for (gpus, nodes), count in pods.items()
    )


def _limited(first: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    if len(first | others) <= LEAVE_MOST:
        return first | others
    return frozenset([*sorted(first), *sorted(others - first)][:LEAVE_MOST])
