"""A gang after its admission: which of its pods have no place, how many workers it may have, when it queues again."""

import math
from collections.abc import Callable
from dataclasses import replace

from tdcs.api.durations import seconds_between, seconds_since
from tdcs.control.context import Settings, Stores
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.gang_requeue import Lack
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job import unplaced_pods
from tdcs.decide.job.job_headline import running
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.start_timeout import NodesMissing, held_up
from tdcs.decide.job.unplaced_pods import Short
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.job_pods import scheduled_at
from tdcs.model.kube_objects import Object


class Gangs:
    """Watches over the places of admitted gangs.

    Args:
        stores: the live views.
        settings: of the operator.
        now: the time.
        queue: the own queue.
    """

    def __init__(
        self, *, stores: Stores, settings: Settings, now: Callable[[], str], queue: GangQueue
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._now = now
        self._queue = queue

    def short_of(self, observed: Observed) -> Short | None:
        """Which pods of a gang have no place: those without which it cannot go on, else the last workers of an elastic
        one that it can do without. A pod that its scheduler has not looked at does not count while that decides about
        others."""
        short = unplaced_pods.lacking(observed)
        if short is None or not short.unseen or not short.since:
            return short
        awaited = unplaced_pods.awaited_schedulers(observed)
        now = self._now()
        recent = min(
            (
                seconds_since(time, now=now)
                for pod in self._stores.pods.values()
                if (pod["spec"].get("schedulerName") or "") in awaited and (time := scheduled_at(pod))
            ),
            default=math.inf,
        )
        works = recent < self._queue.requeues.patience
        return unplaced_pods.without_unseen(short) if works else short

    def sized(self, obj: Object, observed: Observed) -> Observed:
        """With the number of workers that the queue gives to an elastic gang, or takes back from it."""
        if not observed.spec.is_elastic_gang or observed.spec.elastic is None:
            return observed
        uid, requeues = obj["metadata"]["uid"], self._queue.requeues
        short = (
            self.short_of(observed)
            if observed.was_admitted and not observed.spec.run_policy.suspend
            else None
        )
        if short is not None and short.spare and requeues.left(uid, short=short) == 0:
            requeues.requeue(uid, short=short)
            self._queue.return_workers(uid)
            return replace(observed, workers=unplaced_pods.placed_workers(observed))
        return replace(observed, workers=self._queue.workers(uid))

    def requeue(self, observed: Observed, *, uid: str, now: str) -> Decision | None:
        """The decision on a gang that gives back what it has: its pods did not all find a place, or run, in time. None
        when it goes on."""
        requeues = self._queue.requeues
        if not observed.was_admitted or observed.spec.run_policy.suspend or not observed.spec.scheduling.gang:
            return None
        ends = self._ends(observed, uid=uid, now=now)
        lack = next((lack for seconds_left, lack in ends if seconds_left <= 0 and not lack.spare), None)
        if lack is not None:
            waits = decisions.data(observed, now=now, runs=False)
            message = requeues.requeue(uid, short=lack)
            if lack.reason is Reason.NO_NODES:
                self._queue.turns.rest_from_asking(uid, reason=lack.reason, message=message)
            return decisions.gave_back(reason=lack.reason, message=message, data=waits)
        if running(observed).status == "True":
            requeues.placed(uid)
            if observed.replicas("Worker") == observed.spec.workers:
                requeues.settled(uid)
        return None

    def due(self, observed: Observed, *, uid: str, now: str) -> float | None:
        """Seconds until an admitted gang gives back room or workers, if nothing changes; None when it does not."""
        return min(
            (max(seconds_left, 0.0) for seconds_left, _ in self._ends(observed, uid=uid, now=now)),
            default=None,
        )

    def _ends(self, observed: Observed, *, uid: str, now: str) -> list[tuple[float, Lack]]:
        """What ends the patience with an admitted gang, each with the seconds until then."""
        turns = self._queue.turns
        runs = running(observed)
        if turns.of(uid).awaits_nodes and self._settings.node_provisioning == "Release":
            if not unplaced_pods.all_placed(observed):
                limit, pods = (
                    self._settings.node_wait_seconds,
                    sum(map(observed.replicas, observed.spec.by_role())),
                )
                missing = NodesMissing(
                    missing=pods - unplaced_pods.placed(observed), total=pods, limit=limit, why=runs.message
                )
                return [(limit - seconds_between(turns.of(uid).nodes_since, now), missing)]
            turns.change(uid, nodes_came=now)
        lacks: list[tuple[float, Lack]] = []
        short = unplaced_pods.ending_patience(observed, self.short_of(observed))
        seconds_left = self._queue.requeues.left(uid, short=short)
        if short is not None and seconds_left is not None:
            lacks.append((seconds_left, short))
        held = held_up(observed, running=runs, now=now, placed=turns.of(uid).nodes_came)
        if held is not None:
            lacks.append((held.seconds_left, held))
        return lacks
