"""The event loop: jobs arrive, wait, run at rates that change with the caches and the store, and end.

Between two events all rates are constant. Events are: a job arrives, ends, or ends an epoch in which
its page cache was still filling; and the scheme's caches have changed by a step. After each event the
store is shared again among all that read from it.

Jobs that read nothing from the store run at a constant speed: their ends wait in a heap. The others
are few or many, and their speeds change together; they are looked at one by one.
"""

import heapq
import math
from collections.abc import Callable, Sequence

from tdcs.decide.cache.load_order import budget
from tdcs.decide.cache.load_order import share as share_loading
from tdcs.decide.place.reading_speed import limited
from tdcs_labs.cluster import Cluster
from tdcs_labs.job import EPSILON_BYTES, SimJob
from tdcs_labs.scenario import Scenario, pods_of
from tdcs_labs.schemes.base import Scheme
from tdcs_labs.store import fair_level
from tdcs_labs.workload import WorkItem

#: Called with the number of finished jobs now and then.
Progress = Callable[[int], None]


class Simulation:
    """One run of a workload under a scheme. Deterministic: it draws nothing."""

    def __init__(
        self,
        *,
        work: Sequence[WorkItem],
        scenario: Scenario,
        scheme: type[Scheme],
        progress: Progress | None = None,
    ) -> None:
        self.scenario = scenario
        self.cluster = Cluster(scenario=scenario)
        self.scheme = scheme(scenario=scenario, cluster=self.cluster)
        self.jobs = [_sim_job(number=i, item=item, scenario=scenario) for i, item in enumerate(work)]
        self._progress = progress
        self._heap: list[tuple[float, int, int]] = []
        self._reading: dict[int, SimJob] = {}
        self._scarce = False
        self._done = 0
        self.busy_gpu_seconds = 0.0
        self.preemptions = 0

    def run(self) -> None:
        """Run until every job has ended."""
        arrivals, next_arrival = self.jobs, 0
        now, change = 0.0, math.inf
        while self._done < len(self.jobs):
            arrival = arrivals[next_arrival].submitted if next_arrival < len(arrivals) else math.inf
            now = max(now, min(arrival, self._next_warm(), self._next_reading(), change))
            if now == math.inf:
                raise RuntimeError("the simulation stands still: jobs wait but nothing runs or arrives")
            self.scheme.settle(now=now)
            changed = self._marks(now=now)
            while next_arrival < len(arrivals) and arrivals[next_arrival].submitted <= now:
                job = arrivals[next_arrival]
                self.cluster.enqueue(job)
                self.scheme.arrived(job, now=now)
                next_arrival += 1
            changed += self._admit(now=now)
            for job in self.scheme.update(now=now):
                if job.number in self.cluster.running:
                    changed.append(job)
            # One that has just begun an epoch may have given way since.
            self._share(changed=[job for job in changed if job.number in self.cluster.running], now=now)
            change = min(self.scheme.next_change(now=now), self.cluster.next_end_of_wait(now=now))

    def _next_warm(self) -> float:
        heap, running = self._heap, self.cluster.running
        while heap:
            mark, number, version = heap[0]
            job = running.get(number)
            if job is not None and job.version == version and number not in self._reading:
                return mark
            heapq.heappop(heap)
        return math.inf

    def _next_reading(self) -> float:
        return min((job.mark for job in self._reading.values()), default=math.inf)

    def _marks(self, *, now: float) -> list[SimJob]:
        """End the jobs that are due, or their epochs; gives the jobs that have begun a new epoch."""
        reached = [job for job in self._reading.values() if job.mark <= now]
        while (mark := self._next_warm()) <= now:
            reached.append(self.cluster.running[heapq.heappop(self._heap)[1]])
            assert mark <= now
        renewed: list[SimJob] = []
        for job in reached:
            job.advance(now=now)
            if job.remaining <= EPSILON_BYTES or job.rate * 1e-6 >= job.remaining:
                self._end(job, now=now)
            else:
                job.next_epoch(page_fraction=self._page_fraction(job))
                job.look()
                renewed.append(job)
        return renewed

    def _page_fraction(self, job: SimJob) -> float:
        page = self.scenario.page_cache_bytes * max(job.pods) / self.scenario.gpus_per_node
        return page / job.dataset.size_bytes

    def _end(self, job: SimJob, *, now: float) -> None:
        job.ended = now
        self.busy_gpu_seconds += job.gpus * (now - job.started)
        self._reading.pop(job.number, None)
        self.cluster.release(job)
        self.scheme.finished(job, now=now)
        self._done += 1
        if self._progress is not None and self._done % 500 == 0:
            self._progress(self._done)

    def _admit(self, *, now: float) -> list[SimJob]:
        started: list[SimJob] = []
        misplaced = True
        while misplaced:
            misplaced = False
            turns = self.cluster.next_turns(now=now)
            for job in self.cluster.jobs_of(turns.admitted):
                self.scheme.admitted(job, now=now)
                leave = turns.leave.get(job.queued.uid, {})
                if not self.scheme.leaves_nodes:
                    leave = dict.fromkeys(leave, turns.aside)
                if self.cluster.place(job, scores=self.scheme.place_scores(job), leave=leave, now=now):
                    self.scheme.started(job, now=now)
                    started.append(job)
                else:
                    misplaced = True
            for job in self.cluster.victims_of(turns):
                self._preempt(job, now=now)
                misplaced = True
        return started

    def _preempt(self, job: SimJob, *, now: float) -> None:
        """A job gives its place to a more important one, and queues again with its age."""
        job.advance(now=now)
        self.busy_gpu_seconds += job.gpus * (now - job.started)
        self._reading.pop(job.number, None)
        self.cluster.release(job)
        self.scheme.finished(job, now=now)
        job.was_preempted, job.rate, job.copy = True, 0.0, ""
        job.version += 1
        self.preemptions += 1
        self.cluster.enqueue(job)
        self.scheme.arrived(job, now=now)

    def _share(self, *, changed: Sequence[SimJob], now: float) -> None:
        """Share the store, and set the speed of every job with a changed share or view."""
        for job in changed:
            if job.miss > 1e-9:
                self._reading[job.number] = job
            else:
                self._reading.pop(job.number, None)
                job.pace(rate=job.ceiling, now=now)
                job.version += 1
                heapq.heappush(self._heap, (job.mark, job.number, job.version))
        needs = [job.need for job in self._reading.values()]
        capacity = 1.0
        if loads := self.scheme.loads():
            rates = share_loading(loads=loads, capacity=budget(capacity=capacity, reading=sum(needs)))
            self.scheme.set_load_rates(rates, now=now)
            capacity -= sum(rates.values())
        level = fair_level(demands=needs, capacity=capacity)
        scarce = level != math.inf
        if scarce or self._scarce:
            for job in self._reading.values():
                rate = job.ceiling
                if job.need > level:
                    rate = limited(ceiling=rate, share=level / job.cost, part=job.miss)
                # Most jobs keep their speed at most events: leave those alone.
                if rate != job.rate or job.mark <= now:
                    job.pace(rate=rate, now=now)
        else:
            for job in changed:
                if job.miss > 1e-9:
                    job.pace(rate=job.ceiling, now=now)
        self._scarce = scarce


def _sim_job(*, number: int, item: WorkItem, scenario: Scenario) -> SimJob:
    compute = item.model.rate * item.job.gpus
    return SimJob(
        number=number,
        submitted=item.job.submitted,
        gpus=item.job.gpus,
        pods=pods_of(gpus=item.job.gpus, gpus_per_node=scenario.gpus_per_node),
        dataset=item.dataset,
        owner=item.job.tenant,
        priority=item.job.priority,
        may_preempt=scenario.preemption,
        compute=compute,
        work=compute * item.job.duration,
        cost=scenario.store.share_per_byte(object_bytes=item.dataset.object_bytes),
    )
