"""The queue of jobs that start with all their pods at once: which are admitted now, which wait.

The order is share, priority, then age. A job whose pods do not all fit at once (its gang) may be passed by later ones,
so that free GPUs are used, but only a bounded number of times. Then nodes are set aside for it
(:mod:`tdcs.decide.queue.nodes_aside`): no job of its priority or below is admitted that would need them, while the
other nodes go on serving the queue. One job at a time has nodes set aside, the first in the queue that needs them; jobs
of higher priority use these nodes as any other. A job that waits for its data may be passed freely, because that wait
has its own bound, the readiness timeout.
"""

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.decide.queue.copy_places import CopyPlaces, PlaceRequest
from tdcs.decide.queue.data_wait import DataOf, DataWaits, no_data
from tdcs.decide.queue.fair_share import Shares
from tdcs.decide.queue.job_order import in_rank_order, in_turns
from tdcs.decide.queue.kept_nodes import NodesLeft, NodesToLeave
from tdcs.decide.queue.namespace_quota import Allowances
from tdcs.decide.queue.nodes_aside import nodes_aside
from tdcs.decide.queue.occupants import Occupant, seconds_until_room, with_reserved
from tdcs.decide.queue.passes import KeptShares, Passes, shortage
from tdcs.decide.queue.pod_admission import MAX_PASSES
from tdcs.decide.queue.preemption import Preemption, goes_before, is_able, preemption
from tdcs.decide.queue.queue_nodes import EmptyNodes, Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import DemandKey, Order, QueuedJob, Shortage
from tdcs.decide.queue.room_table import RoomTable

LOOKED_AT = 64
"""How many of the waiting jobs, the first ones, have nodes left to them by those that are admitted."""


def schedule(
    *,
    waiting: Sequence[QueuedJob],
    nodes: Nodes,
    holder: str = "",
    aside: Collection[str] = (),
    max_passes: int = MAX_PASSES,
    allowances: Allowances | None = None,
    places: CopyPlaces | None = None,
    running: Sequence[QueuedJob] = (),
    shares: Shares | None = None,
    occupants: Sequence[Occupant] = (),
    preempts: bool = False,
    data_of: DataOf = no_data,
) -> Schedule:
    """Admit all jobs that fit, from the first to the last.

    Args:
        waiting: the jobs that wait, in any order; `possible` is worked out here.
        holder: the uid of the job that nodes were set aside for before.
        aside: these nodes.
        max_passes: how often a job may be passed before nodes are set aside for it.
        allowances: what quotas leave to these jobs; used up here.
        places: who reads which Dataset; jobs that are admitted are added here.
        running: the jobs that were admitted before and have not ended, with all their pods.
        shares: of the namespaces; None: jobs of all of them come by priority and age.
        occupants: the jobs that were admitted or have pods on nodes, and when these are gone: jobs that end before may
            use nodes that are set aside. What is reserved for them is nobody else's.
        preempts: whether jobs may take the place of running ones (`tdcs.decide.queue.preemption`), one in a pass: what
            its victims leave is set aside for it, and for no second job.
        data_of: where the data of a waiting job is: it may wait for a place there.
    """
    return _Pass(
        waiting=waiting,
        nodes=nodes,
        max_passes=max_passes,
        allowances=allowances or Allowances({}),
        places=places or CopyPlaces(),
        running=running,
        shares=shares,
        occupants=occupants,
        preempts=preempts,
        data_of=data_of,
    ).run(holder=holder, aside=frozenset(aside))


class _Pass:
    """One pass over the queue: each job is looked at once, from the first to the last.

    What nodes, quotas and datasets have left only becomes less meanwhile, so that a job which did not fit when it was
    looked at does not fit later in the pass either.
    """

    def __init__(
        self,
        *,
        waiting: Sequence[QueuedJob],
        nodes: Nodes,
        max_passes: int,
        allowances: Allowances,
        places: CopyPlaces,
        running: Sequence[QueuedJob],
        shares: Shares | None,
        occupants: Sequence[Occupant],
        preempts: bool,
        data_of: DataOf,
    ) -> None:
        self._nodes = nodes
        self._max_passes = max_passes
        self._allowances = allowances
        self._places = places
        self._room = RoomTable(nodes.free)
        occupants = with_reserved(occupants, room=self._room, scarce=names.GPU_RESOURCE)
        self._data_waits = DataWaits(data_of=data_of, occupants=occupants, max_passes=max_passes)
        self._fitted: dict[tuple[DemandKey, bool], bool] = {}
        empty = nodes.empty or EmptyNodes()
        jobs = [
            job
            if job.possible == (possible := empty.holds(job, nodes.capacity))
            else replace(job, possible=possible)
            for job in waiting
        ]
        jobs = in_rank_order(jobs)
        preempts = preempts and any(map(is_able, jobs))
        jobs = in_turns(jobs, shares=shares, total=lambda: empty.total(nodes.capacity), preempts=preempts)
        self._jobs = sorted(jobs, key=lambda job: job.order)
        self._before = {job.uid: job.passed for job in waiting}
        self._kept_shares = KeptShares()
        self._passes = Passes(max_passes=max_passes)
        self._left_over: list[QueuedJob] = []
        self._limited: dict[str, dict[PlaceRequest, list[QueuedJob]]] = {}
        self._admitted: list[QueuedJob] = []
        self._workers: dict[str, int] = {}
        self._promised: set[str] = set()
        self._leave: dict[str, NodesToLeave] = {}
        self._running = running
        self._occupants = occupants
        self._room_comes_in: float | None = None
        self._preempts = preempts
        self._preemption: Preemption | None = None
        # Demands that nobody gives way to, each with the priority of the job that asks: room only becomes less.
        self._hopeless: set[tuple[DemandKey, int]] = set()
        self._nodes_left: NodesLeft | None = None
        self._window = {job.uid: job for job in self._jobs[:LOOKED_AT] if not job.runs}
        self._holder: QueuedJob | None = None
        self._aside: frozenset[str] = frozenset()
        self._aside_rows: npt.NDArray[np.bool_] | None = None

    def run(self, *, holder: str, aside: frozenset[str]) -> Schedule:
        """Admit all that fit. Jobs of higher priority than the one that nodes are set aside for use all nodes; then
        comes that one; the others keep off its nodes.
        """
        first = next((job for job in self._jobs if job.uid == holder and not job.runs), None)
        if first is not None and self._is_ready(first):
            self._hold_for(first, previous_nodes=aside)
        queue = [(job.order, place, job) for place, job in enumerate(self._jobs)]  # sorted, and so a heap
        if self._holder is not None:
            urgent = [entry for entry in queue if self._goes_before(entry[2], self._holder)]
            queue = [entry for entry in queue if not self._goes_before(entry[2], self._holder)]
            while urgent:
                self._consider(heapq.heappop(urgent)[2], urgent)
        if (
            self._holder is first
            and first is not None
            and not first.pauses
            and self._fits(first, off_aside=False)
        ):
            self._hold_for(None)
            self._admit(first, queue, off_aside=False, urgent=False)
            queue = [entry for entry in queue if entry[2].uid != first.uid or entry[2].runs]
            heapq.heapify(queue)
            self._passes.moved_up(job for _, _, job in queue if job.order < first.order)
        while queue:
            self._consider(heapq.heappop(queue)[2], queue)
        waiting = self._final()
        return Schedule(
            waiting=waiting,
            admitted=tuple(self._admitted),
            workers=self._workers,
            promised=frozenset(self._promised),
            room=self._room,
            capacity=self._nodes.capacity,
            passed={
                job.uid: job.passed
                for job in waiting
                if not job.runs and job.passed != self._before.get(job.uid, 0)
            },
            holder=self._holder.uid if self._holder is not None else "",
            aside=self._aside,
            leave=self._leave,
            victims=self._preemption.told if self._preemption is not None else {},
            preemptors=self._preemption.preemptors if self._preemption is not None else {},
            gone_by=self._preemption.gone_by if self._preemption is not None else "",
            lingering=max((occupant.gone_by for occupant in self._occupants if occupant.lingers), default=""),
            data_waits=self._data_waits.begun,
            awaits_data=frozenset(self._data_waits.waiting),
            waited_in_vain=frozenset(self._data_waits.ended),
        )

    def _goes_before(self, job: QueuedJob, holder: QueuedJob) -> bool:
        return goes_before(job, holder, preempts=self._preempts)

    def _consider(self, job: QueuedJob, queue: list[tuple[Order, int, QueuedJob]]) -> None:
        """Admit a job, or leave it for another pass; an elastic one grows by as many workers as there is room for."""
        holder = self._holder
        if holder is not None and job.uid == holder.uid and not job.runs:
            self._wait_on(job)
            self._passes.wait(job)
            self._kept_shares.keep(job, self._allowances)
            self._preempt(job)
            return
        job = self._with_shortage(job)
        urgent = holder is not None and self._goes_before(job, holder)
        in_time = holder is not None and not urgent and self._ends_in_time(job, holder)
        off_aside = holder is not None and not (urgent or in_time)
        if job.ready and job.runs and self._fits(job, off_aside=off_aside):
            self._grow(job, off_aside=off_aside)
            return
        may_start = job.ready and not job.runs and not job.pauses
        if may_start and self._waits_for_data(job, off_aside=off_aside):
            self._wait_on(job)
            self._passes.wait(job)
            return
        if may_start and self._admit(job, queue, off_aside=off_aside, urgent=urgent):
            return
        self._wait_on(job)
        if self._passes.wait(job):
            self._starves(job)
        self._preempt(job)

    def _preempt(self, job: QueuedJob) -> None:
        """Have a job take the place of others, where it may and none did so far. Those behind it keep off what these
        leave."""
        if not self._preempts or self._preemption is not None or not (is_able(job) and self._is_ready(job)):
            return
        holder = self._holder
        if holder is not None and holder.uid != job.uid and not self._goes_before(job, holder):
            return
        demand = (job.demand_key, job.class_priority)
        if demand in self._hopeless:
            return
        self._preemption = preemption(job, room=self._room, occupants=self._occupants)
        if self._preemption is None:
            self._hopeless.add(demand)
        elif self._preemption.victims or holder is None or holder.uid != job.uid:
            self._hold_for(job, nodes=self._preemption.nodes)

    def _ends_in_time(self, job: QueuedJob, holder: QueuedJob) -> bool:
        """Whether a job is over before the one that nodes are set aside for could use them, as far as deadlines tell:
        it may run there meanwhile (backfill)."""
        if job.runs or math.isinf(job.lasts):
            return False
        if self._room_comes_in is None:
            # Those that leave already, as the victims of the holder, are gone before any deadline.
            self._room_comes_in = seconds_until_room(
                room=self._room.with_more(occupant.takes for occupant in self._occupants if occupant.leaves),
                groups=holder.groups,
                scarce=holder.scarce,
                occupants=[occupant for occupant in self._occupants if not occupant.leaves],
            )
        return not math.isinf(self._room_comes_in) and job.lasts <= self._room_comes_in

    def _waits_for_data(self, job: QueuedJob, *, off_aside: bool) -> bool:
        """Whether a job that fits waits for a place at its data all the same."""
        if not job.groups or not self._fits(job, off_aside=off_aside):
            return False
        aside = self._aside if off_aside else frozenset[str]()
        return self._data_waits.waits(job, room=self._room, aside=aside, ahead=self._left_over)

    def _wait_on(self, job: QueuedJob) -> None:
        self._left_over.append(job)
        if job.short is None and job.data_ready and job.possible:
            for request in job.access:
                if request.limit:
                    self._limited.setdefault(request.dataset, {}).setdefault(request, []).append(job)

    def _starves(self, job: QueuedJob) -> None:
        """A job was passed too often: those behind it leave it the next place, its quota, and, one job at a time,
        nodes."""
        if not (job.data_ready and job.possible):
            return
        self._kept_shares.keep(job, self._allowances)
        if job.short is None and (self._holder is None or self._goes_before(job, self._holder)):
            self._hold_for(job)

    def _hold_for(
        self,
        job: QueuedJob | None,
        *,
        previous_nodes: frozenset[str] = frozenset(),
        nodes: frozenset[str] | None = None,
    ) -> None:
        """Set nodes aside for a job, and for no other one; None: for none. `nodes`: these, and not the fewest."""
        self._holder = job
        self._room_comes_in = None
        if nodes is None:
            nodes = (
                nodes_aside(job, room=self._room, nodes=self._nodes, previous_nodes=previous_nodes)
                if job is not None
                else frozenset()
            )
        self._aside = nodes
        self._aside_rows = self._room.mask(self._aside) if self._aside else None
        self._fitted = {key: fitted for key, fitted in self._fitted.items() if not key[1]}

    def _is_ready(self, job: QueuedJob) -> bool:
        return self._with_shortage(job).ready

    def _with_shortage(self, job: QueuedJob) -> QueuedJob:
        short = self._shortage(job)
        return job if short == job.short else replace(job, short=short)

    def _shortage(self, job: QueuedJob) -> Shortage | None:
        return shortage(job, allowances=self._allowances, places=self._places, kept_shares=self._kept_shares)

    def _fits(self, job: QueuedJob, *, off_aside: bool) -> bool:
        """Whether a job fits; those of one demand that does not are not looked at again."""
        key = (job.demand_key, off_aside)
        if self._fitted.get(key, True):
            but = self._aside_rows if off_aside else None
            self._fitted[key] = self._room.fits(job.groups, scarce=job.scarce, but=but)
        return self._fitted[key]

    def _admit(
        self, job: QueuedJob, queue: list[tuple[Order, int, QueuedJob]], *, off_aside: bool, urgent: bool
    ) -> bool:
        """Give a job its room, its quota and its places, if it fits; an elastic one queues again for more workers.

        Its room is off the nodes that are set aside, where there is enough: the next job must not find it there again.

        Args:
            job: which is ready.
            queue: those that were not looked at yet.
            off_aside: whether nodes that are set aside are not for it.
            urgent: whether nodes that are set aside for a job are for it as well.
        """
        key = (job.demand_key, off_aside)
        if not self._fitted.get(key, True):
            return False
        by_time = not (off_aside or urgent) and self._aside_rows is not None
        nodes_left = self._nodes_left = self._nodes_left or self._follow_nodes()
        changed = self._room.take(job.groups, scarce=job.scarce, but=self._aside_rows)
        if changed is None and not off_aside and self._aside_rows is not None:
            changed = self._room.take(job.groups, scarce=job.scarce)
            if changed is not None and by_time:
                self._promised.add(job.uid)
                urgent = True  # its pods may go there
        if changed is None:
            self._fitted[key] = False
            return False
        if leave := nodes_left.of(job, aside=self._aside, urgent=urgent):
            self._leave[job.uid] = leave
        nodes_left.admitted(job, changed=changed, room=self._room)
        self._allowances.take(job.key[0], job.charges)
        self._places.take(job.key, job.access)
        self._admitted.append(job)
        self._look_at_places(job)
        self._look_at_window(job)
        if job.growth is not None:
            self._workers[job.uid] = job.growth.base
        if (growing := job.growing()) is not None:
            heapq.heappush(queue, (growing.order, len(self._jobs) + len(self._admitted), growing))
        self._passed_by(job)
        return True

    def _grow(self, job: QueuedJob, *, off_aside: bool) -> None:
        """Give an elastic job as many more workers as there are room and quota for, in one step."""
        if job.growth is None:
            return
        growth, most = job.growth, job.growth.pods.count
        affordable = self._allowances.most(job.key[0], growth.charges, count=most)
        but = self._aside_rows if self._holder is not None else None
        grown, changed = 0, list[str]()
        # A job of higher priority than the one that nodes are set aside for goes there last.
        for rows in (but,) if off_aside or but is None else (but, None):
            pods = replace(growth.pods, count=affordable - grown)
            more, nodes = self._room.take_most([pods], scarce=job.scarce, but=rows)
            grown, changed = grown + more, [*changed, *nodes]
        if self._nodes_left is not None:
            self._nodes_left.admitted(None, changed=changed, room=self._room)
        for charge in growth.charges:
            takes = {resource: grown * value for resource, value in charge.takes.items()}
            self._allowances.take(job.key[0], [replace(charge, takes=takes)])
        self._look_at_window(job)
        if grown:
            self._workers[job.uid] = growth.base + grown
            self._passed_by(job)
        if grown < most:
            pods = replace(growth.pods, count=most - grown)
            job = replace(job, growth=replace(growth, base=growth.base + grown, pods=pods))
            self._left_over.append(job)

    def _passed_by(self, job: QueuedJob) -> None:
        """All that were left over before it were passed by a job once more."""
        for passed_job in self._passes.passed_by(job):
            self._starves(passed_job)

    def _follow_nodes(self) -> NodesLeft:
        return NodesLeft(
            room=self._room,
            capacity=self._nodes.capacity,
            running=self._running,
            waiting=[job for job in self._window.values() if self._is_ready(job)],
        )

    def _look_at_window(self, by: QueuedJob) -> None:
        """A job has taken quota or places: the first of the queue that lack some now have no nodes left to them."""
        self._window.pop(by.uid, None)
        if self._nodes_left is not None and (by.access or by.charges):
            for job in self._window.values():
                self._nodes_left.wait(job, ready=self._is_ready(job))

    def _look_at_places(self, by: QueuedJob) -> None:
        """A job has taken places: jobs that were left over for lack of room may lack one now, and are passed by others
        from now on."""
        for dataset in {request.dataset for request in by.access} & self._limited.keys():
            for request in list(self._limited[dataset]):
                free_places = self._places.left(request)
                if free_places is not None and free_places <= self._kept_shares.places.count(request):
                    jobs = self._limited[dataset].pop(request)
                    self._limited[dataset].setdefault(request, []).extend(
                        [job for job in jobs if not self._lacks_place(job)]
                    )

    def _lacks_place(self, job: QueuedJob) -> bool:
        """Whether a job that was left over lacks a place by now."""
        short = self._shortage(job)
        if short is None:
            return False
        job = replace(job, short=short)
        if self._passes.lacks_now(job):
            self._starves(job)
        return True

    def _final(self) -> tuple[QueuedJob, ...]:
        """Those that wait on, in order, each with what keeps it out now and how often it was passed."""
        waiting = [
            job if job.passed == (passed := self._passes.of(job)) else replace(job, passed=passed)
            for job in sorted(self._left_over, key=lambda job: job.order)
        ]
        self._kept_shares = KeptShares()
        final_jobs = []
        for job in waiting:
            final_jobs.append(self._with_shortage(job))
            if job.passed >= self._max_passes and job.data_ready and job.possible and not job.runs:
                self._kept_shares.keep(final_jobs[-1], self._allowances)
        return tuple(final_jobs)
