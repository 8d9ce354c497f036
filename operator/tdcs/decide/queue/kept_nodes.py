"""Which nodes the jobs that are admitted in one pass over the queue leave to larger pods."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from tdcs.api import names
from tdcs.decide.place.gang_fit import empty_nodes, leaves
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model.pod_resources import Amounts

NodesToLeave = Mapping[int, frozenset[str]]
"""Nodes that pods keep off while another has room for them, by the GPUs of a pod."""

LEAVE_MOST = 256
"""Nodes that are named to a pod at most: every pod carries them in an annotation."""


_PodKind = tuple[int, int, frozenset[str] | None]
"""Priority of a job, GPUs of a pod, and the nodes that it may run on."""


class NodesLeft:
    """Follows the empty nodes, and the pods that run or wait, while jobs are admitted. Nodes and jobs are read once.

    A pod leaves an empty node alone when a pod of another job would not fit there next to it. All empty nodes of that
    size are left while they are too few for the pods of both: with enough of them nothing has to wait longer. Jobs
    that run count as those that wait: where pods of that size run, the next ones are to be expected. In a simulated
    week five of six small jobs that start while some node is empty do so while no job waits. Jobs that lack something
    else than room do not count, nor do those of lower priority.

    Args:
        room: what nodes have left.
        capacity: what each has when it is empty.
        running: the jobs that were admitted before and have not ended, with all their pods.
        waiting: jobs that have nodes left to them.
    """

    def __init__(
        self,
        *,
        room: RoomTable,
        capacity: Mapping[str, Amounts],
        running: Iterable[QueuedJob],
        waiting: Iterable[QueuedJob],
    ) -> None:
        gpus = names.GPU_RESOURCE
        self._sizes = {node: size.get(gpus, 0) for node, size in capacity.items()}
        self._empty = empty_nodes(free=room.column(gpus), sizes=self._sizes)
        self._pods: Counter[_PodKind] = Counter()
        self._counted: set[str] = set()
        self._aside = frozenset[str]()
        self._candidates: dict[tuple[int, frozenset[frozenset[str] | None]], _Candidates] = {}
        for job in running:
            self._count(job)
        for job in waiting:
            self.wait(job, ready=True)

    def of(self, job: QueuedJob, *, aside: frozenset[str], urgent: bool) -> NodesToLeave:
        """What the pods of a job keep off that is admitted: nodes that are set aside, and empty ones that larger pods
        need; of both at most `LEAVE_MOST`, those that are set aside first.

        Args:
            job: before its pods take their room.
            aside: the nodes that are set aside for a job.
            urgent: whether the job has a higher priority than that one.
        """
        if job.scarce != names.GPU_RESOURCE:
            return {}
        if aside != self._aside:
            self._aside = aside
            self._candidates.clear()
        first = frozenset[str]() if urgent else aside
        larger_nodes = self._to_larger(job)
        sizes = (
            {group.request.get(names.GPU_RESOURCE, 0) for group in job.groups}
            if first
            else larger_nodes.keys()
        )
        return {gpus: _limited(first, larger_nodes.get(gpus, ())) for gpus in sizes}

    def _to_larger(self, job: QueuedJob) -> dict[int, list[str]]:
        """The empty nodes that the pods of a job leave to larger ones, by the GPUs of a pod; of many nodes some."""
        mine = _kinds(job)
        own_sizes = {gpus for _, gpus, _ in mine}
        if not own_sizes or min(own_sizes) >= max(self._empty, default=0):
            return {}
        counted = mine if job.uid in self._counted else Counter[_PodKind]()
        larger_nodes: dict[int, list[str]] = {}
        for gpus in own_sizes:
            nodes_to_leave: list[str] = []
            for size in self._empty:
                large = {
                    kind: count - counted[kind]
                    for kind, count in self._pods.items()
                    if kind[0] >= job.priority
                    and leaves(gpus, other_gpus=kind[1], size=size)
                    and count > counted[kind]
                }
                if not large:
                    continue
                candidates = self._candidates_of(size, frozenset(nodes for _, _, nodes in large))
                if sum(large.values()) + mine.total() > len(candidates.nodes):
                    nodes_to_leave += candidates.first(LEAVE_MOST)
            if nodes_to_leave:
                larger_nodes[gpus] = sorted(nodes_to_leave)
        return larger_nodes

    def admitted(self, job: QueuedJob | None, *, changed: Iterable[str], room: RoomTable) -> None:
        """A job has got its room.

        Args:
            job: which runs from now on; None for one that was counted before, and has grown.
            changed: the nodes that it takes room of.
            room: what nodes have left.
        """
        for node in changed:
            size = self._sizes.get(node, 0)
            if size in self._empty and room.left(node, names.GPU_RESOURCE) != size:
                self._empty[size].discard(node)
                if not self._empty[size]:
                    del self._empty[size]
                for (its_size, _), candidates in self._candidates.items():
                    if its_size == size:
                        candidates.nodes.discard(node)
        if job is not None:
            self.wait(job, ready=True)

    def wait(self, job: QueuedJob, *, ready: bool) -> None:
        """A job waits that has nodes left to it while it is ready."""
        if ready and job.uid not in self._counted:
            self._counted.add(job.uid)
            self._count(job)
        elif not ready and job.uid in self._counted:
            self._counted.remove(job.uid)
            self._pods -= _kinds(job)

    def _count(self, job: QueuedJob) -> None:
        # One by one: adding counters up copies what thousands of jobs have together for each of them.
        for group in job.groups:
            if gpus := group.request.get(names.GPU_RESOURCE, 0):
                self._pods[job.priority, gpus, group.nodes] += group.count

    def _candidates_of(self, size: int, places: frozenset[frozenset[str] | None]) -> "_Candidates":
        if (size, places) not in self._candidates:
            nodes = self._empty[size] - self._aside
            if None not in places:
                nodes &= frozenset[str]().union(
                    *(nodes_of_kind for nodes_of_kind in places if nodes_of_kind is not None)
                )
            self._candidates[size, places] = _Candidates(nodes)
        return self._candidates[size, places]


class _Candidates:
    """Empty nodes on which some larger pods may run, in the order of their names."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes = set(nodes)
        self._order = sorted(self.nodes)
        self._begin = 0

    def first(self, count: int) -> list[str]:
        """The first so many of those that are still empty."""
        while self._begin < len(self._order) and self._order[self._begin] not in self.nodes:
            self._begin += 1
        return list(
            islice(
                (node for node in islice(self._order, self._begin, None) if node in self.nodes),
                count,
            )
        )


def _kinds(job: QueuedJob) -> Counter[_PodKind]:
    """The pods of a job that have GPUs."""
    kinds: Counter[_PodKind] = Counter()
    for group in job.groups:
        if gpus := group.request.get(names.GPU_RESOURCE, 0):
            kinds[job.priority, gpus, group.nodes] += group.count
    return kinds


def _limited(first: frozenset[str], other_nodes: Collection[str]) -> frozenset[str]:
    if len(first) + len(other_nodes) <= LEAVE_MOST:
        return first.union(other_nodes)
    return frozenset([*sorted(first), *other_nodes][:LEAVE_MOST])
