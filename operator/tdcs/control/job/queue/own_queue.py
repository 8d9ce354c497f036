"""The own queue as the admitter of a TrainingJob."""

from dataclasses import replace
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.control.context import Context
from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang import Gangs
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.own_turn import OwnTurn
from tdcs.control.job.queue.provisioning_requests import ProvisioningRequests
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.job_turn import kept_deadline
from tdcs.model.kube_objects import Object


class OwnQueue:
    """Admits jobs by the own queue; see `Admitter`."""

    def __init__(self, *, context: Context, gangs: GangQueue, copies: CopyChoices) -> None:
        self._gangs: Final = gangs
        self._places: Final = Gangs(
            stores=context.stores, settings=context.settings, now=context.now, queue=gangs
        )
        self._copies: Final = copies
        self._provisioning: Final = context.settings.node_provisioning
        self._requests: Final = ProvisioningRequests(context=context, turns=gangs.turns)

    async def turn(
        self, obj: Object, observed: Observed, *, now: str, preferred: list[Object] | None
    ) -> OwnTurn:
        """See `Admitter`."""
        self._gangs.turns.learn(obj["metadata"]["uid"], obj)
        observed = self._kept_to_its_end(
            self._places.sized(obj, observed), uid=obj["metadata"]["uid"], now=now
        )
        asks_for_nodes = is_true(observed.status.conditions, names.NODES_REQUESTED)
        follows = self._provisioning == "ProvisioningRequest" or (
            asks_for_nodes and self._provisioning == "Off"
        )
        return OwnTurn(
            obj,
            observed,
            gangs=self._gangs,
            places=self._places,
            copies=self._copies,
            nodes=await self._requests.follow(obj, observed) if follows else None,
        )

    def _kept_to_its_end(self, observed: Observed, *, uid: str, now: str) -> Observed:
        """A job that was let onto nodes that are set aside asks for no longer than it has promised."""
        run = observed.spec.run_policy
        starts = [job.start_time for job in observed.jobs.values() if job.start_time and not job.suspended]
        promised = self._gangs.turns.of(uid).ends_by
        deadline = kept_deadline(run.active_deadline_seconds, ends_by=promised, starts=starts, now=now)
        if deadline == run.active_deadline_seconds:
            return observed
        run = run.model_copy(update={"active_deadline_seconds": deadline})
        return replace(observed, spec=observed.spec.model_copy(update={"run_policy": run}))

    def withdraw(self, uid: str) -> None:
        """See `Admitter`."""
        self._gangs.withdraw(uid)

    async def end(self, obj: Object, observed: Observed) -> None:
        """See `Admitter`: what a job holds is observed, and one that has ended holds nothing; its request for nodes is
        deleted."""
        if self._provisioning == "ProvisioningRequest":
            await self._requests.end(obj, observed)
