"""The own queue as the admitter of a TrainingJob."""

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

    async def turn(self, obj: Object, seen: Observed, *, now: str, preferred: list[Object] | None) -> OwnTurn:
        """See `Admitter`."""
        self._gangs.turns.learn(obj["metadata"]["uid"], obj)
        seen = self._places.sized(obj, seen)
        asked = is_true(seen.known.conditions, names.NODES_REQUESTED)
        follows = self._provisioning == "ProvisioningRequest" or (asked and self._provisioning == "Off")
        return OwnTurn(
            obj,
            seen,
            gangs=self._gangs,
            places=self._places,
            copies=self._copies,
            nodes=await self._requests.follow(obj, seen) if follows else None,
        )

    def withdraw(self, uid: str) -> None:
        """See `Admitter`."""
        self._gangs.withdraw(uid)

    async def end(self, obj: Object, seen: Observed) -> None:
        """See `Admitter`: what a job holds is observed, and one that has ended holds nothing; its request for nodes is
        deleted."""
        if self._provisioning == "ProvisioningRequest":
            await self._requests.end(obj, seen)
