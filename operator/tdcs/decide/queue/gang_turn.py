"""The queue of jobs that start with all their pods at once: which are admitted now, which wait.

The rule itself is :func:`tdcs.decide.queue.pod_admission.next_to_admit`; here it is asked about a cluster's real nodes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.api import names
from tdcs.decide.queue.copy_places import KeptPlaces, Places, missing_place, takes_place_at
from tdcs.decide.queue.gang_fit import PodGroup, most_that_fit, place, place_most
from tdcs.decide.queue.kept_nodes import NodesLeft, NodesToLeave
from tdcs.decide.queue.namespace_quota import Allowances
from tdcs.decide.queue.pod_admission import MAX_PASSES, Reason, next_to_admit, nodes_to_set_aside
from tdcs.decide.queue.queued_job import DemandKey, QueuedJob, Shortage
from tdcs.model.pod_resources import Amounts

LOOKED_AT = 64
"""How many of the waiting jobs, the first ones, have nodes left to them by those that are admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The queue after every job that fits was admitted.

    Attributes:
        waiting: the jobs that still wait, first first; elastic ones that wait for more workers among them.
        admitted: the jobs that may start, in this order; each found room beside those before it.
        workers: by uid, how many workers an elastic job may have that was admitted or grows now.
        free: what each node has left for those that wait.
        capacity: what each node has when it is empty.
        passed: by uid, how many were admitted before a job that stood before them.
        holder: the uid of the job that nodes are set aside for, empty when there is none.
        aside: these nodes.
        leave: by uid of an admitted job and the GPUs of a pod, the nodes that its pods leave to larger ones, and those
            that are set aside (:class:`tdcs.decide.queue.kept_nodes.NodesLeft`).
    """

    waiting: tuple[QueuedJob, ...] = ()
    admitted: tuple[QueuedJob, ...] = ()
    workers: Mapping[str, int] = field(default_factory=dict)
    free: Mapping[str, Amounts] = field(default_factory=dict)
    capacity: Mapping[str, Amounts] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    holder: str = ""
    aside: frozenset[str] = frozenset()
    leave: Mapping[str, NodesToLeave] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What the queue knows of the nodes.

    Attributes:
        free: what each has left beside the pods that are on it.
        capacity: what each has when it is empty.
        lasting: what each has beside the pods of others, which may stay for ever; left out, its capacity.
    """

    free: Mapping[str, Amounts]
    capacity: Mapping[str, Amounts]
    lasting: Mapping[str, Amounts] | None = None


def schedule(
    *,
    waiting: Sequence[QueuedJob],
    reserved: Sequence[PodGroup],
    nodes: Nodes,
    holder: str = "",
    aside: Collection[str] = (),
    max_passes: int = MAX_PASSES,
    allowances: Allowances | None = None,
    places: Places | None = None,
    running: Sequence[QueuedJob] = (),
) -> Schedule:
    """Admit jobs, one at a time, until none fits any more.

    Args:
        waiting: the jobs that wait, in any order; `possible` is worked out here.
        reserved: pods of jobs that were admitted which have no node yet.
        holder: the uid of the job that nodes were set aside for before.
        aside: these nodes.
        max_passes: how often a job may be passed before nodes are set aside for it.
        allowances: what quotas leave to these jobs; used up here.
        places: who reads which source; jobs that are admitted are added here.
        running: the jobs that were admitted before and have not ended, with all their pods.
    """
    return _Pass(
        waiting=waiting,
        reserved=reserved,
        nodes=nodes,
        max_passes=max_passes,
        allowances=allowances or Allowances({}),
        places=places or Places(),
        running=running,
    ).run(holder=holder, aside=frozenset(aside))


class _Pass:
    """One pass over the queue; its fields change while jobs are admitted."""

    def __init__(
        self,
        *,
        waiting: Sequence[QueuedJob],
        reserved: Sequence[PodGroup],
        nodes: Nodes,
        max_passes: int,
        allowances: Allowances,
        places: Places,
        running: Sequence[QueuedJob],
    ) -> None:
        self._nodes = nodes
        self._running = running
        self._max_passes = max_passes
        self._allowances = allowances
        self._places = places
        self._left = dict(nodes.free)
        place_most(groups=reserved, free=self._left, scarce=names.GPU_RESOURCE)
        self._before = {job.uid: job.passed for job in waiting}
        empty = _Room(nodes.capacity)
        queue = [
            replace(job, possible=empty.holds(job)) for job in sorted(waiting, key=lambda job: job.order)
        ]
        self._queue = self._limited(queue)
        self._admitted: list[QueuedJob] = []
        self._workers: dict[str, int] = {}
        self._leave: dict[str, NodesToLeave] = {}
        self._nodes_left: NodesLeft | None = None

    def run(self, *, holder: str, aside: frozenset[str]) -> Schedule:
        """Admit until none fits any more."""
        while True:
            first = next((job for job in self._queue if job.uid == holder and job.ready), None)
            aside = self._set_aside(first, kept=aside) if first is not None else frozenset()
            admits, starves = self._next(first, aside)
            if starves is not None:
                holder, aside = self._queue[starves].uid, frozenset()
                continue
            if admits is None:
                break
            chosen = self._queue[admits]
            if chosen is first:
                holder, aside = "", frozenset()
            self._admit(admits, aside=aside, urgent=first is not None and chosen.priority > first.priority)
        return Schedule(
            waiting=tuple(self._queue),
            admitted=tuple(self._admitted),
            workers=self._workers,
            free=self._left,
            capacity=self._nodes.capacity,
            passed={
                job.uid: job.passed
                for job in self._queue
                if not job.runs and job.passed != self._before.get(job.uid, 0)
            },
            holder=first.uid if first is not None else "",
            aside=aside,
            leave=self._leave,
        )

    def _next(self, first: QueuedJob | None, aside: frozenset[str]) -> tuple[int | None, int | None]:
        """The place of the job to admit, or of the one to set nodes aside for.

        Jobs of higher priority than the one that nodes are set aside for use all nodes; then comes that one; the
        others keep off its nodes.
        """
        everywhere = _Room(self._left)
        if first is not None:
            urgent = [job for job in self._queue if job.priority > first.priority]
            found = self._ask(urgent, everywhere, holder=first)
            if found != (None, None):
                return found
            if everywhere.holds(first):
                return self._queue.index(first), None
        room = _Room({node: self._left[node] for node in self._left.keys() - aside}) if aside else everywhere
        return self._ask(self._queue, room, holder=first)

    def _ask(
        self, queue: Sequence[QueuedJob], room: "_Room", *, holder: QueuedJob | None
    ) -> tuple[int | None, int | None]:
        # `queue` is the whole queue or its beginning: places in it are places in the whole.
        found = next_to_admit(
            queue=queue,
            nodes_by_free_gpus=(),
            holder=holder,
            max_passes=self._max_passes,
            fits_now=room.holds,
        )
        return found.admits, found.starves

    def _admit(self, place_: int, *, aside: frozenset[str], urgent: bool) -> None:
        """Take a job out of the queue, with its room and its quota; an elastic one queues again for more workers. Its
        room is off the nodes that are set aside, where there is enough: the next job must not find it there again.

        `urgent`: it has a higher priority than the job that they are set aside for.
        """
        job = self._queue[place_]
        nodes_left = self._nodes_left = self._nodes_left or NodesLeft(
            free=self._left, capacity=self._nodes.capacity, running=self._running
        )
        if not job.runs:
            first = self._queue[:LOOKED_AT]
            if leave := nodes_left.of(job, waiting=first, aside=aside, urgent=urgent):
                self._leave[job.uid] = leave
        self._queue[:place_] = [_passed(other, by=job) for other in self._queue[:place_]]
        del self._queue[place_]
        others = {node: self._left[node] for node in self._left.keys() - aside} if aside else self._left
        placed = _placed(job, others) or _placed(job, self._left) or {}
        changed = {node: left for node, left in placed.items() if left is not self._left[node]}
        self._left = {**self._left, **changed}
        nodes_left.admitted(None if job.runs else job, changed=changed)
        self._allowances.take(job.key[0], job.charges)
        self._places.take(job.key, job.access)
        growth = job.growth
        if not job.runs:
            self._admitted.append(job)
            if growth is not None:
                self._workers[job.uid] = growth.base
        elif growth is not None:
            self._workers[job.uid] = growth.base + 1
            pods = replace(growth.pods, count=growth.pods.count - 1)
            job = replace(job, growth=replace(growth, base=growth.base + 1, pods=pods))
        growing = job.growing()
        if growing is not None:
            growing = replace(growing, passed=int(job.runs))  # whether it has passed the others in this pass
            self._queue.append(growing)
            self._queue.sort(key=lambda one: one.order)
        if job.charges or job.access or (growing is not None and growing.charges):
            self._queue = self._limited(self._queue)

    def _limited(self, queue: Sequence[QueuedJob]) -> list[QueuedJob]:
        return _within_limits(queue, self._allowances, self._places, max_passes=self._max_passes)

    def _set_aside(self, job: QueuedJob, *, kept: frozenset[str]) -> frozenset[str]:
        """The fewest nodes that hold the job once its fellows have left them; of all nodes, if others must leave, too.

        Pods of others may stay for ever (a DaemonSet's do): nodes are chosen beside these, where that is possible.
        """
        for sizes in (self._nodes.lasting or self._nodes.capacity, self._nodes.capacity):
            found = self._fewest(job, sizes, kept=kept)
            if found:
                return found
        return frozenset()

    def _fewest(
        self, job: QueuedJob, sizes: Mapping[str, Amounts], *, kept: frozenset[str]
    ) -> frozenset[str]:
        usable = {
            node: size
            for node, size in sizes.items()
            if node in self._left
            and any(most_that_fit(group=replace(group, count=1), free={node: size}) for group in job.groups)
        }

        def holds(nodes: Sequence[str]) -> bool:
            return _placed(job, {node: usable[node] for node in nodes}) is not None

        return frozenset(
            nodes_to_set_aside(
                free={node: self._left[node].get(job.scarce, 0) for node in usable},
                sizes={node: size.get(job.scarce, 0) for node, size in usable.items()},
                holds=holds,
                kept=kept & usable.keys(),
            )
        )


class _Room:
    """Whether jobs fit on these nodes; jobs of one demand are looked at once."""

    def __init__(self, free: Mapping[str, Amounts]) -> None:
        self._free = free
        self._known: dict[DemandKey, bool] = {}

    def holds(self, job: QueuedJob) -> bool:
        key = job.demand_key
        if key not in self._known:
            self._known[key] = fits(job, self._free)
        return self._known[key]


def fits(job: QueuedJob, free: Mapping[str, Amounts]) -> bool:
    return _placed(job, free) is not None


def _placed(job: QueuedJob, free: Mapping[str, Amounts]) -> dict[str, Amounts] | None:
    """What is left once a job has its pods; None when it does not fit."""
    return place(groups=job.groups, free=free, scarce=job.scarce)


def _within_limits(
    queue: Sequence[QueuedJob], allowances: Allowances, places: Places, *, max_passes: int
) -> list[QueuedJob]:
    """The jobs, each with what keeps it out now: a quota that is too small, or a dataset without a place for it.

    A job that was passed too often closes the quotas of its namespace to those behind it, until they are large enough
    for it; unless they never will be. It closes the places at its datasets likewise.
    """
    kept = _Kept()
    return [
        job if job.short == short else replace(job, short=short)
        for job in queue
        for short in (_shortage(job, allowances, places, kept, max_passes=max_passes),)
    ]


@dataclass(slots=True)
class _Kept:
    """What is kept for jobs that were passed too often: the quotas of namespaces, and places at sources."""

    quotas: dict[str, str] = field(default_factory=dict)
    places: KeptPlaces = field(default_factory=KeptPlaces)


def _shortage(
    job: QueuedJob, allowances: Allowances, places: Places, kept: _Kept, *, max_passes: int
) -> Shortage | None:
    namespace, found = job.key[0], None
    starves = job.data_ready and job.possible and job.passed >= max_passes
    if job.charges:
        text = allowances.short(namespace, job.charges)
        if text and starves and allowances.ever(namespace, job.charges):
            kept.quotas.setdefault(namespace, "/".join(job.key))
        elif not text and namespace in kept.quotas:
            text = (
                f"the quotas of namespace {namespace} are kept for {kept.quotas[namespace]}, passed too often"
            )
        if text:
            text = f"{text}: it waits for others to end, or for a larger quota"
            found = Shortage(reason=Reason.QUOTA, message=text)
    if job.access:
        missing = missing_place(job.access, places=places, kept=kept.places)
        if missing is not None:
            request, text = missing
            found = found or Shortage(reason=Reason.AT_LIMIT, message=text, mount=request.mount)
        if starves:
            kept.places.keep(job.key, job.access)
    return found


def _passed(job: QueuedJob, *, by: QueuedJob) -> QueuedJob:
    """A job that another one was admitted before; one that lacks quota or a place, only by those who take of the same.

    One that runs and waits for more workers is passed freely; and one that grows by several workers passes the others
    once, with the first of them.
    """
    if job.runs or (by.runs and by.passed):
        return job
    waits = job.ready or (job.data_ready and job.possible and _are_rivals(job, by=by))
    return replace(job, passed=job.passed + 1) if waits else job


def _are_rivals(job: QueuedJob, *, by: QueuedJob) -> bool:
    """Whether the other one takes of what this one lacks."""
    if job.short is None:
        return False
    if job.short.mount:
        return takes_place_at(job.short.mount, by.access)
    return bool(by.charges) and job.key[0] == by.key[0]
