"""What the admitter of a job says to it now, asked by somebody who is no operator: of one that waits, or is not there
yet. No I/O, and nothing of the live views is changed."""

from collections.abc import Mapping
from dataclasses import dataclass

from tdcs.api import names
from tdcs.control.context import Settings, Stores
from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang import Gangs
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.own_turn import OwnTurn
from tdcs.control.job.queue.queue_snapshot import NodeRoom
from tdcs.control.kueue.kueue_answer import KueueAnswer
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.workload_standing import QueueStanding, local_queue
from tdcs.decide.place.gang_fit import place_most
from tdcs.decide.queue.pod_admission import Admission
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The answer.

    Attributes:
        decision: what is decided about the job; None: it is being deleted.
        free: what each node has left for it: next to the pods that are there, and the jobs before it.
        asks_for_nodes: whether nodes are asked for, as those that are there cannot hold it.
    """

    decision: Decision | None
    free: Mapping[str, Amounts]
    asks_for_nodes: bool = False


def preview(
    *,
    stores: Stores,
    settings: Settings,
    obj: Object,
    observed: Observed,
    standing: QueueStanding,
    now: str,
    data: Admission | None = None,
) -> Preview:
    """What one pass over the queue comes to for a job.

    Args:
        stores: what there is, with the job.
        settings: of the operator.
        obj: the job.
        observed: the same, with what belongs to it.
        standing: of its Workload, which counts where Kueue decides about it.
        now: the time.
        data: what its datasets say; left out, what is observed of them.
    """
    data = data or decisions.data(observed, now=now)
    gangs = GangQueue.by(settings, stores=stores, queue=KeyedQueue(), now=lambda: now)
    copies = CopyChoices(stores=stores, room=gangs.job_room, turns=gangs.turns)
    uid, queue = str(obj["metadata"]["uid"]), local_queue(obj, kueue=settings.kueue)
    gangs.turns.learn(uid, obj)
    if data.admitted and not queue:
        gangs.turns.change(uid, asks=True)  # as the job's own pass does in the operator
    entries, verdicts = gangs.look()
    free = NodeRoom(stores=stores).free()
    for occupant in entries.occupants:
        place_most(groups=occupant.reserved, free=free, scarce=names.GPU_RESOURCE)
    for job in verdicts.admitted:
        if job.uid == uid:
            break
        place_most(groups=job.groups, free=free, scarce=names.GPU_RESOURCE)
    if queue:
        short = gangs.missing_place(obj) if data.admitted and not observed.was_admitted else ""
        by_kueue = KueueAnswer(
            obj, observed, standing=standing, short=short, queue=queue, gangs=gangs, copies=copies
        )
        return Preview(decision=by_kueue.decide(now=now, over=False, data=data), free=free)
    places = Gangs(stores=stores, settings=settings, now=lambda: now, queue=gangs)
    own_turn = OwnTurn(
        obj, places.sized(obj, observed), gangs=gangs, places=places, copies=copies, nodes=None
    )
    decision = own_turn.decide(now=now, over=False, data=data)
    return Preview(decision=decision, free=free, asks_for_nodes=bool(gangs.turns.of(uid).nodes_since))
