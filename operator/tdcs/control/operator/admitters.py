"""The admitters of TrainingJobs, and which of them decides about a job."""

from typing import Final

from tdcs.control.context import Context
from tdcs.control.job.queue.admitter import Admitter, Turn
from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.own_queue import OwnQueue
from tdcs.control.kueue.kueue_admitter import KueueAdmitter
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.workload_standing import local_queue
from tdcs.model.kube_objects import Object


class Admitters:
    """The own queue and Kueue as one admitter. A job that changes from one to the other is let go by the first.

    Args:
        context: of the operator.
        gangs: the own queue; it collects only jobs that it decides about.
    """

    def __init__(self, *, context: Context, gangs: GangQueue) -> None:
        self._kueue: Final = context.settings.kueue
        copies = CopyChoices(stores=context.stores, room=gangs.job_room, turns=gangs.turns)
        self._own_queue: Final = OwnQueue(context=context, gangs=gangs, copies=copies)
        self._by_kueue: Final = KueueAdmitter(context=context, gangs=gangs, copies=copies)

    def _of(self, obj: Object) -> Admitter:
        return self._by_kueue if local_queue(obj, kueue=self._kueue) else self._own_queue

    async def turn(
        self, obj: Object, observed: Observed, *, now: str, preferred: list[Object] | None
    ) -> Turn:
        """See `Admitter`."""
        admitter = self._of(obj)
        if admitter is self._own_queue and observed.status.queue_name:
            if not self._kueue:
                await self._by_kueue.drop(obj, observed)
            elif (leaving := await self._by_kueue.let_go(obj, observed)) is not None:
                return leaving
        if admitter is not self._own_queue:
            await self._own_queue.end(obj, observed)
        return await admitter.turn(obj, observed, now=now, preferred=preferred)

    def withdraw(self, uid: str) -> None:
        """See `Admitter`."""
        self._own_queue.withdraw(uid)

    async def end(self, obj: Object, observed: Observed) -> None:
        """See `Admitter`: of the one that decided about the job last."""
        if self._kueue and (observed.status.queue_name or local_queue(obj, kueue=True)):
            await self._by_kueue.end(obj, observed)
        elif observed.status.queue_name:
            await self._by_kueue.drop(obj, observed)
        await self._own_queue.end(obj, observed)
