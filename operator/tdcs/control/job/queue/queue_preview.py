"""What the queue would say to a job now, without being the queue: for a job that is not there yet. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass

from tdcs.api import names
from tdcs.control.context import Stores
from tdcs.control.job.queue.pod_demand import PodDemands
from tdcs.control.job.queue.queue_entries import Collector
from tdcs.control.job.queue.queue_snapshot import NodeRoom
from tdcs.control.job.queue.turns import Turns
from tdcs.decide.place.gang_fit import place_most
from tdcs.decide.queue.pod_admission import Admission, Reason
from tdcs.decide.queue.wait_message import admission_of, waiting_admission
from tdcs.decide.queue.whose_job import local_queue
from tdcs.model.pod_resources import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The answer, and what each node has left for the job: beside the pods that are there, and the jobs before it."""

    admission: Admission
    free: Mapping[str, Amounts]


def preview(*, stores: Stores, uid: str, kueue: bool = False) -> Preview:
    """What one pass over the queue says to a job of `stores` with the condition DataReady.

    `kueue`: whether there is a Kueue, which decides about the jobs in its queues.
    """
    demands, room, turns = PodDemands(stores=stores), NodeRoom(stores=stores), Turns()
    collector = Collector(stores=stores, demands=demands, room=room, turns=turns, kueue=kueue)
    entries = collector.collect()
    found = entries.schedule(room=room)
    free = room.free()
    place_most(groups=entries.reserved, free=free, scarce=names.GPU_RESOURCE)
    for job in found.admitted:
        if job.uid == uid:
            return Preview(admission=admission_of(job.pod_count), free=free)
        place_most(groups=job.groups, free=free, scarce=names.GPU_RESOURCE)
    if turns.of(uid).unreadable:
        return Preview(admission=_no(Reason.INVALID, turns.of(uid).unreadable), free=free)
    obj = next(job for job in stores.training_jobs.values() if job["metadata"].get("uid") == uid)
    if queue := local_queue(obj, kueue=kueue):
        text = (
            f"Kueue decides: it would wait in LocalQueue {queue} until that has quota for it (where the chart's value "
            "kueue.enabled is false, the label is not looked at, and the operator's own queue decides)"
        )
        return Preview(admission=_no(Reason.IN_KUEUE, text), free=free)
    demand = demands.of(obj)
    if demand is not None and (missing := demands.missing_class(demand.priority_class)):
        return Preview(admission=_no(Reason.NO_PRIORITY, missing), free=free)
    if any(job.uid == uid for job in found.waiting):
        return Preview(admission=waiting_admission(found, uid), free=free)
    text = (
        "it does not queue (scheduling.gang is false): its pods are made at once, and run as they find room"
    )
    return Preview(
        admission=Admission(admitted=True, data_ready=True, reason=Reason.READY, message=text), free=free
    )


def _no(reason: Reason, message: str) -> Admission:
    return Admission(admitted=False, data_ready=True, reason=reason, message=message)
