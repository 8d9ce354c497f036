"""What nodes report of the reads of jobs' pods, kept until the jobs are gone."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob_status import DataStall
from tdcs.control.context import WorkKey
from tdcs.decide.queue.data_stall import Stall, advice_of, explained
from tdcs.engine.read_reports import PodReadWaits, ReadWaits
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Key
from tdcs.model.kube_resources import TRAINING_JOBS

PUBLISH_SECONDS: Final = 30.0
"""For so long a job's figures stay as they are, however often it is looked at: each other one is a write."""

FIGURES: Final = (
    "observed_seconds",
    "source_seconds",
    "peer_seconds",
    "disk_seconds",
    "loop_seconds",
    "loop_wait_seconds",
)
"""What is counted of a job, and never gets less."""

MOST_STRANGERS: Final = 10_000
"""Pods that no job is known to have: of other kinds, or of jobs that had no pass yet."""


class DataStalls:
    """Takes the reports of all nodes. Without certificates every pod that reaches the operator can send one: it changes
    figures of statuses, and nothing else.

    Args:
        queue: where jobs are asked to be looked at.
    """

    def __init__(self, *, queue: KeyedQueue[WorkKey], clock: Callable[[], float] = time.monotonic) -> None:
        self._queue: Final = queue
        self._clock: Final = clock
        self._jobs: Final[dict[str, tuple[Key, str]]] = {}
        self._pods: Final[dict[tuple[Key, str], dict[str, PodReadWaits | None]]] = {}
        self._strangers: Final[dict[str, PodReadWaits]] = {}
        self._published: Final[dict[tuple[Key, str], tuple[float, Stall]]] = {}

    def take(self, report: ReadWaits) -> None:
        """Keep what a node reports, and have the jobs looked at that it is about."""
        for waits in report.pods:
            job = self._jobs.get(waits.pod)
            if job is None:
                self._strangers.pop(waits.pod, None)
                self._strangers[waits.pod] = waits
                while len(self._strangers) > MOST_STRANGERS:
                    del self._strangers[next(iter(self._strangers))]
                continue
            self._pods[job][waits.pod] = waits
            published = self._published.get(job)
            delay = max(published[0] + PUBLISH_SECONDS - self._clock(), 0.0) if published else 0.0
            self._queue.add_after(WorkKey(TRAINING_JOBS, *job[0]), delay)

    def follow(self, job: Key, uid: str, pods: Iterable[str]) -> None:
        """These are pods of a job, by their uids, next to those that it had before."""
        own_pods = self._pods.setdefault((job, uid), {})
        for pod in pods:
            if pod not in own_pods:
                own_pods[pod] = self._strangers.pop(pod, None)
                self._jobs[pod] = (job, uid)

    def of(self, job: Key, uid: str) -> Stall | None:
        """How long the pods of a job waited, by figures of the last `PUBLISH_SECONDS`; None when no node has reported
        any."""
        published = self._published.get((job, uid))
        if published is not None and self._clock() < published[0] + PUBLISH_SECONDS:
            return published[1]
        stall = self._sum(job, uid)
        if stall is not None:
            self._published[job, uid] = (self._clock(), stall)
        return stall

    def _sum(self, job: Key, uid: str) -> Stall | None:
        reports = [waits for waits in self._pods.get((job, uid), {}).values() if waits is not None]
        if not reports:
            return None
        disks = [waits.disk for waits in reports if waits.disk is not None]
        loops = [waits.loop_seconds for waits in reports if waits.loop_seconds is not None]
        return Stall(
            seconds=sum(waits.seconds for waits in reports),
            peer=sum(waits.peer for waits in reports),
            source=sum(waits.source for waits in reports),
            disk=sum(disks) if disks else None,
            loop_seconds=sum(loops) if loops else None,
            loop_waited=sum(waits.loop_waited for waits in reports),
        )

    def drop_job(self, job: Key) -> None:
        for job_key in [job_key for job_key in self._published if job_key[0] == job]:
            del self._published[job_key]
        for job_key in [job_key for job_key in self._pods if job_key[0] == job]:
            for pod in self._pods.pop(job_key):
                self._jobs.pop(pod, None)


def status_of_stall(
    stall: Stall | None, published: DataStall | None, *, datasets: Iterable[Dataset] = ()
) -> DataStall | None:
    """What a status says of it. No figure gets smaller: a new operator knows less than the status.

    Args:
        datasets: those of the job: nothing is advised that they have.
    """
    if stall is None:
        return published
    now = _rounded(stall)
    if published is not None:
        figures = {figure: (getattr(published, figure), getattr(now, figure)) for figure in FIGURES}
        larger = {
            name: max((value for value in values if value is not None), default=None)
            for name, values in figures.items()
        }
        now = now.model_copy(update=larger)
    whole = Stall(
        seconds=now.observed_seconds,
        peer=now.peer_seconds,
        source=now.source_seconds,
        disk=now.disk_seconds,
        loop_seconds=now.loop_seconds,
        loop_waited=now.loop_wait_seconds or 0,
    )
    advice = advice_of(whole)
    modes = {dataset.spec.placement.mode for dataset in datasets}
    message = explained(advice, replicated=modes == {"Replicate"}, watched=whole.loop_share is not None)
    share = {"percent": round(100 * whole.share), "advice": advice, "message": message}
    return now.model_copy(update=share)


def _rounded(stall: Stall) -> DataStall:
    return DataStall(
        observed_seconds=round(stall.seconds),
        source_seconds=round(stall.source),
        peer_seconds=round(stall.peer),
        disk_seconds=None if stall.disk is None else round(stall.disk),
        loop_seconds=None if stall.loop_seconds is None else round(stall.loop_seconds),
        loop_wait_seconds=None if stall.loop_seconds is None else round(stall.loop_waited),
    )
