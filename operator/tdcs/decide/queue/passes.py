"""How often a job that waits was passed by later ones, counted for the whole queue at once; and what is kept for one
that was passed too often.

A job counts those that are admitted after it was looked at: all of them while it lacks room only, and while it lacks
quota or a place those that take of the same. So a few counters serve all jobs, however many wait.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tdcs.decide.queue.copy_places import CopyPlaces, KeptPlaces, missing_place
from tdcs.decide.queue.namespace_quota import Allowances
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queued_job import Order, QueuedJob, Shortage

_Key = tuple[str, str]
"""What is counted: all that are admitted, those of a namespace that take of its quotas, or those at a source."""

_ALL: _Key = ("all", "")


class Passes:
    """The passes of one pass over the queue.

    Args:
        max_passes: how often a job may be passed.
    """

    def __init__(self, *, max_passes: int) -> None:
        self._max = max_passes
        self._counts: Counter[_Key] = Counter()
        self._since: dict[str, tuple[_Key, int]] = {}
        self._due: dict[_Key, list[tuple[int, Order, QueuedJob]]] = {}
        self._early: set[str] = set()

    def moved_up(self, jobs: Iterable[QueuedJob]) -> None:
        """A job that stands behind these was admitted before they were looked at."""
        self._early = {job.uid for job in jobs if not job.runs}

    def wait(self, job: QueuedJob) -> bool:
        """A job was looked at, and waits on; gives whether it was passed too often already. One that runs, and waits
        for more workers, is passed freely; one that waits for its data, too."""
        key = _counted(job)
        if key is None:
            return False
        early = int(key == _ALL and job.uid in self._early)
        self._since[job.uid] = (key, self._counts[key] - early)
        passes_left = self._max - job.passed - early
        if passes_left <= 0:
            return True
        due = self._due.setdefault(key, [])
        heapq.heappush(due, (self._counts[key] + passes_left, job.order, job))
        return False

    def lacks_now(self, job: QueuedJob) -> bool:
        """A job that waits, and lacked room only, lacks quota or a place from now on; gives whether it was passed too
        often already."""
        key, previous = _counted(job), self._since.get(job.uid)
        if key is None or previous is None or previous[0] == key:
            return False
        passed = self._counts[previous[0]] - previous[1]
        self._since[job.uid] = (key, self._counts[key] - passed)
        passes_left = self._max - job.passed - passed
        if passes_left <= 0:
            return True
        heapq.heappush(self._due.setdefault(key, []), (self._counts[key] + passes_left, job.order, job))
        return False

    def passed_by(self, job: QueuedJob) -> list[QueuedJob]:
        """A job was admitted, or grows: those that it passes once too often, the first of the queue first."""
        keys = {_ALL, *(("dataset", request.dataset) for request in job.access)}
        if job.charges:
            keys.add(("namespace", job.key[0]))
        passed_too_often: list[QueuedJob] = []
        for key in keys:
            self._counts[key] += 1
            due = self._due.get(key, [])
            while due and due[0][0] <= self._counts[key]:
                waiting_job = heapq.heappop(due)[2]
                if self._since[waiting_job.uid][0] == key:
                    passed_too_often.append(waiting_job)
        return sorted(passed_too_often, key=lambda passed_job: passed_job.order)

    def of(self, job: QueuedJob) -> int:
        """How often a job was passed so far, in earlier passes over the queue, too."""
        if job.runs or job.uid not in self._since:
            return job.passed
        key, before = self._since[job.uid]
        return job.passed + self._counts[key] - before


def _counted(job: QueuedJob) -> _Key | None:
    """Which admissions pass a job that waits; None: none do."""
    if job.runs or not (job.data_ready and job.possible):
        return None
    if job.short is None:
        return _ALL
    return ("dataset", job.short.dataset) if job.short.dataset else ("namespace", job.key[0])


@dataclass(slots=True)
class KeptShares:
    """What those behind in the queue leave to jobs that were passed too often: the quotas of their namespaces, until
    they are large enough (unless they never will be), and a place at each of their Datasets."""

    quotas: dict[str, QueuedJob] = field(default_factory=dict)
    places: KeptPlaces = field(default_factory=KeptPlaces)

    def keep(self, job: QueuedJob, allowances: Allowances) -> None:
        """Those behind a job leave it what it asks for."""
        namespace = job.key[0]
        lacks = bool(job.charges) and bool(allowances.short(namespace, job.charges))
        if lacks and allowances.ever(namespace, job.charges):
            first_job = self.quotas.get(namespace)
            if first_job is None or job.order < first_job.order:
                self.quotas[namespace] = job
        if job.access:
            self.places.keep(job.key, job.access, order=job.order)


def shortage(
    job: QueuedJob, *, allowances: Allowances, places: CopyPlaces, kept_shares: KeptShares
) -> Shortage | None:
    """What keeps a job out now: a quota that is too small, or a dataset without a place for it; None when nothing."""
    namespace, missing_share = job.key[0], None
    if job.charges:
        text = allowances.short(namespace, job.charges)
        first = kept_shares.quotas.get(namespace)
        if not text and first is not None and first.order < job.order:
            text = f"the quotas of namespace {namespace} are kept for {'/'.join(first.key)}, passed too often"
        if text:
            text = f"{text}: it waits for others to end, or for a larger quota"
            missing_share = Shortage(reason=Reason.QUOTA, message=text)
    if job.access:
        missing = missing_place(job.access, places=places, kept_places=kept_shares.places, order=job.order)
        if missing is not None:
            request, text = missing
            missing_share = missing_share or Shortage(
                reason=Reason.AT_LIMIT, message=text, dataset=request.dataset
            )
    return missing_share
