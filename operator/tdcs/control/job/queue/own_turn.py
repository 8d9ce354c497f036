"""What the own queue decides about one TrainingJob, from what is observed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tdcs.api import names
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role
from tdcs.control.job.queue.admitter import PodNodes
from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang import Gangs
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.provisioning_requests import LOOK_SECONDS, Followed
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed, started
from tdcs.decide.queue.job_turn import record_of, released_finding
from tdcs.decide.queue.pod_admission import Admission, Reason
from tdcs.decide.queue.queue_stop import StopPolicy, stopped
from tdcs.model.kube_objects import Object

LOOK_AGAIN_SECONDS = 1.0
"""A job that has waited long enough for a place at its data looks so often for the pass that lets it start."""


class OwnTurn:
    """One pass over a job of the own queue; see `Turn`. It reads no API server, and writes nothing to it.

    Args:
        obj: the job.
        observed: the same.
        gangs: the own queue.
        places: of gangs that were admitted.
        copies: chooses the copies that the job reads.
        nodes: the nodes that it has asked for; None: it has made no request.
    """

    def __init__(
        self,
        obj: Object,
        observed: Observed,
        *,
        gangs: GangQueue,
        places: Gangs,
        copies: CopyChoices,
        nodes: Followed | None,
    ) -> None:
        self.observed: Final = observed
        self._obj: Final = obj
        self._uid: Final = str(obj["metadata"]["uid"])
        self._gangs: Final = gangs
        self._places: Final = places
        self._copies: Final = copies
        self._nodes: Final = nodes

    def decide(self, *, now: str, over: bool, data: Admission | None = None) -> Decision | None:
        """See `Turn`; `data`: what its datasets say, where another answer is to be taken for theirs."""
        observed, uid, gangs = self.observed, self._uid, self._gangs
        if data is None:
            data = decisions.data(observed, now=now)
        decision = self._stopped(data, now=now) if not over else None
        if decision is None and not over:
            decision = self._yielded(now=now)
        if decision is None and not over:
            decision = self._places.requeue(observed, uid=uid, now=now)
        if decision is None and observed.was_admitted and not observed.spec.run_policy.suspend:
            decision = _out_of_kueue(decisions.decision_of(observed=observed, data=data))
        elif decision is None and (
            observed.spec.run_policy.suspend
            or not data.admitted
            or not gangs.queues(self._obj, observed.spec)
        ):
            gangs.withdraw(uid)
            decision = decisions.decision_of(observed=observed, data=data)
        elif decision is None:
            admission = gangs.admission(self._obj)
            if admission is None:
                return None
            decision = decisions.decision_of(observed=observed, data=data, admission=admission)
        growth = gangs.growth(uid) if decision.admitted and not over else None
        wants_more = observed.replicas("Worker") < observed.spec.workers
        if decision.admitted and wants_more and growth is None and not over:
            growth = gangs.requeues.admission(uid)  # why it was given back the workers that it asks for
            if growth is None:
                gangs.touch()
        copies = self._copies.of(self._obj, observed, admitted=decision.admitted)
        turn = gangs.turns.of(uid)
        return replace(
            decision,
            nodes=self._nodes.finding if self._nodes is not None else released_finding(observed, turn),
            copies=copies,
            passed=0 if decision.admitted else turn.passed,
            growth=growth,
            shortage=turn.lack if decision.admitted else "",
            record=None if over else record_of(turn),
        )

    def _stopped(self, data: Admission, *, now: str) -> Decision | None:
        """The decision on a job whose namespace is paused; None when that is no matter for it."""
        observed, uid = self.observed, self._uid
        policy = self._gangs.stop_policy(observed.namespace)
        if policy is StopPolicy.NONE or observed.spec.run_policy.suspend:
            return None
        if observed.was_admitted:
            if policy is not StopPolicy.DRAIN:
                return None
            self._gangs.withdraw(uid)
            reason, message = stopped(observed.namespace, drained=True)
            waits = decisions.data(observed, now=now, runs=False)
            return decisions.gave_back(reason=reason, message=message, data=waits)
        if not data.admitted:
            return None
        self._gangs.withdraw(uid)
        before = next(
            (condition for condition in observed.status.conditions if condition.type == names.ADMITTED), None
        )
        reason, message = stopped(observed.namespace)
        if before is not None and before.reason == reason:
            message = before.message  # that it was drained stays true
        return decisions.gave_back(reason=reason, message=message, data=data)

    def _yielded(self, *, now: str) -> Decision | None:
        """The decision on a job whose place a more important one takes; None when none does."""
        observed, message = self.observed, self._gangs.turns.of(self._uid).yields
        if not message or not observed.was_admitted or observed.spec.run_policy.suspend:
            return None
        self._gangs.withdraw(self._uid)
        waits = decisions.data(observed, now=now, runs=False)
        return decisions.gave_back(reason=Reason.PREEMPTED, message=message, data=waits)

    async def pod_nodes(self, own_jobs: Mapping[Role, Object]) -> Mapping[Role, PodNodes]:
        """See `Turn`: the nodes that pods leave to larger ones, of Jobs that have not started yet."""
        if all(map(started, own_jobs.values())):
            self._gangs.clear_nodes_to_leave(self._uid)
            return {}
        marks = dict(self._nodes.marks) if self._nodes is not None else {}
        return {
            role: PodNodes(leave=self._gangs.nodes_to_leave(self._obj, role), marks=marks)
            for role in own_jobs
        }

    async def applied(self, *, runs: bool) -> None:
        """See `Turn`."""

    def due(self, *, now: str) -> float | None:
        """See `Turn`: a pause is over, or the patience with a gang that does not run."""
        turns = self._gangs.turns
        pause, again = turns.pause_left(self._uid), turns.asking_left(self._uid)
        if again == 0.0:
            turns.change(self._uid, nodes_until=0.0)
            self._gangs.touch()
            again = None
        if self._nodes is not None and turns.of(self._uid).nodes_since:
            again = LOOK_SECONDS
        places = None
        if pause is None and self.observed.was_admitted and self.observed.spec.scheduling.gang:
            places = self._places.due(self.observed, uid=self._uid, now=now)
        lefts = (pause, again, places, self._data_wait_left(now=now))
        return min((seconds for seconds in lefts if seconds is not None), default=None)

    def _data_wait_left(self, *, now: str) -> float | None:
        """Seconds until the job waits no longer for a place at its data; None when it does not wait for one."""
        wait = self._gangs.turns.of(self._uid).data_wait
        if wait is None or not self._gangs.awaits_data(self._uid):
            return None
        seconds_left = seconds_between(now, wait.until)
        if seconds_left <= 0:
            self._gangs.touch()
        return max(seconds_left, LOOK_AGAIN_SECONDS)


def _out_of_kueue(decision: Decision) -> Decision:
    """Of a job that Kueue admitted, and that has left its queue since."""
    if decision.reason is not Reason.KUEUE_ADMITTED:
        return decision
    text = "Kueue admitted it; it has no queue's label any more, and runs on"
    return replace(decision, reason=Reason.READY, message=text)
