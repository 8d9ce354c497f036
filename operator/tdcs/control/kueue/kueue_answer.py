"""What is decided about a TrainingJob in a queue of Kueue, from what is observed."""

from dataclasses import replace
from typing import Final

from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.workload_standing import QueueStanding, decided_by_kueue, sized_by_kueue
from tdcs.decide.queue.pod_admission import Admission
from tdcs.model.kube_objects import Object


class KueueAnswer:
    """What Kueue and the places at its datasets say to one job. It reads no API server, and writes nothing to it.

    Args:
        obj: the job.
        observed: the same.
        standing: of its Workload.
        short: why there is no place for it at its data; empty: there is, or it has one.
        queue: its LocalQueue.
        gangs: the own queue, which counts the places.
        copies: chooses the copies that the job reads.
    """

    def __init__(
        self,
        obj: Object,
        observed: Observed,
        *,
        standing: QueueStanding,
        short: str,
        queue: str,
        gangs: GangQueue,
        copies: CopyChoices,
    ) -> None:
        self.observed: Final = sized_by_kueue(observed, standing)
        self.short = short
        self._obj: Final = obj
        self._uid: Final = str(obj["metadata"]["uid"])
        self._standing: Final = standing
        self._queue: Final = queue
        self._gangs: Final = gangs
        self._copies: Final = copies

    def decide(self, *, now: str, over: bool, data: Admission | None = None) -> Decision:
        """Whether its pods may exist.

        Args:
            now: the time.
            over: whether the job has just ended.
            data: what its datasets say, where another answer is to be taken for theirs.
        """
        observed, gangs = self.observed, self._gangs
        if data is None:
            data = decisions.data(observed, now=now)
        may_start = data.admitted and not observed.spec.run_policy.suspend and not over
        if self._standing.admitted and may_start and not observed.was_admitted:
            self.short = gangs.take_places(self._obj)
        elif not observed.was_admitted:
            gangs.withdraw(self._uid)
        if self.short:
            gangs.await_place(self._obj)
        decision = decided_by_kueue(
            observed, self._standing, queue=self._queue, data=data, over=over, short=self.short
        )
        copies = self._copies.of(self._obj, observed, admitted=decision.admitted)
        return replace(decision, copies=copies, queue=self._queue)
