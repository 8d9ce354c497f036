"""The queue after a pass: who is admitted, who waits, and what is set aside for whom."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tdcs.decide.place.data_meeting import WaitChoice
from tdcs.decide.queue.kept_nodes import NodesToLeave
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.model.pod_resources import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The queue after every job that fits was admitted.

    Attributes:
        waiting: the jobs that still wait, first first; elastic ones that wait for more workers among them.
        admitted: the jobs that may start, in this order; each found room next to those before it.
        workers: by uid, how many workers an elastic job may have that was admitted or grows now.
        promised: the uids of those of them that use nodes which are set aside for another job, as they end in time.
        room: what each node has left for those that wait; None: there are no nodes.
        capacity: what each node has when it is empty.
        passed: by uid, how many were admitted before a job that stood before them.
        holder: the uid of the job that nodes are set aside for, empty when there is none.
        aside: these nodes.
        leave: by uid of an admitted job and the GPUs of a pod, the nodes that its pods leave to larger ones, and those
            that are set aside (:class:`tdcs.decide.queue.kept_nodes.NodesLeft`).
        victims: by uid of a job that is to be suspended, what it is told (`tdcs.decide.queue.preemption`).
        preemptors: the job that takes the place of each of them, as its namespace may read it.
        gone_by: when the pods are gone at the latest that leave the holder its room (RFC 3339); empty: none is being
            ended for it, or nobody knows.
        lingering: when pods are gone at the latest whose end nobody waits for (RFC 3339); empty: there are none.
        data_waits: by uid of a job that begins to wait for a place at its data, how that was weighed
            (`tdcs.decide.queue.data_wait`).
        awaits_data: the uids of all that wait for it.
        waited_in_vain: the uids of those that wait for it no longer, as no room comes in time.
    """

    waiting: tuple[QueuedJob, ...] = ()
    admitted: tuple[QueuedJob, ...] = ()
    workers: Mapping[str, int] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()
    room: RoomTable | None = None
    capacity: Mapping[str, Amounts] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    holder: str = ""
    aside: frozenset[str] = frozenset()
    leave: Mapping[str, NodesToLeave] = field(default_factory=dict)
    victims: Mapping[str, str] = field(default_factory=dict)
    preemptors: Mapping[str, str] = field(default_factory=dict)
    gone_by: str = ""
    lingering: str = ""
    data_waits: Mapping[str, WaitChoice] = field(default_factory=dict)
    awaits_data: frozenset[str] = frozenset()
    waited_in_vain: frozenset[str] = frozenset()
