"""What the operator says of a TrainingJob."""

from typing import Annotated, Literal

from pydantic import Field

from tdcs.api.base import Measure, Model, StatusModel, WrittenAlways, list_map, one_value
from tdcs.api.conditions import Conditions

JobState = Literal[
    "Waiting", "Queued", "Suspended", "Starting", "Running", "Restarting", "Succeeded", "Failed"
]

PLACEMENT_LIMIT = 128
"""Pods of which a status says where they are: 20 KiB, however many a job has."""

NODE_FAILURES_LIMIT = 16
"""Nodes of which a status says that the job failed there."""


class ReplicaStatus(StatusModel):
    """The pods of one role, counted."""

    name: str
    """The role."""
    active: int = 0
    """Pods that are pending or run."""
    ready: Annotated[int | None, WrittenAlways()] = 0
    """Pods that run and are ready; left out when the job has ended and none does."""
    succeeded: int = 0
    """Pods that ended well."""
    failed: int = 0
    """Pods that failed."""


class PodPlacement(StatusModel):
    """Where one pod of the job runs, or ran."""

    pod: str
    """The pod."""
    node: str
    """Its node."""
    cached_bytes: int
    """Bytes of the job's datasets on that node when the pod was first seen there."""


CONSIDERED_NODES_LIMIT = 16
"""Nodes of which a status says what they had when pods of the job were placed."""

CONSIDERATIONS_LIMIT = 3
"""Placements of which a status says so: the newest ones, 8 KiB together."""


class ConsideredNode(StatusModel):
    """What a node had when pods of the job were placed."""

    name: str
    """The node."""
    cached_bytes: Measure = 0
    """Bytes of the job's datasets on it."""
    score: Measure = 0
    """What the scheduler's extender gives it for a pod that reads all datasets of the job, 0 to 10."""
    free: Annotated[dict[str, str], Field(json_schema_extra={"x-kubernetes-map-type": "atomic"})] = Field(
        default={}
    )
    """What it had left for these pods, of the resources that they ask for, as quantities."""
    closed_to: list[str] = Field(default=[])
    """The roles whose pods its labels or taints kept away."""


class Consideration(StatusModel):
    """What the nodes had when pods of the job were placed, as the operator saw it right after."""

    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the operator saw the pods on their nodes."""
    nodes: Annotated[list[ConsideredNode], Field(json_schema_extra=one_value())] = Field(default=[])
    """The nodes that the pods got, 8 at most, and those with the highest scores; 16 together."""
    nodes_omitted: int | None = None
    """How many further nodes had data."""


MEETING_NODES = 128
"""Nodes onto which a copy grows for one job at most."""


class DataMeeting(StatusModel):
    """Where the job and the dataset meet: chosen when the job is admitted, by what each way is expected to cost it, and
    again when its pods are placed otherwise than was expected."""

    way: Literal["Near", "Grow", "Wait", "Remote"]
    """Near: its pods go to nodes with the data. Wait: these had no room, and the job waited until they had. Grow: the
    copy is brought to the nodes that the job gets, before its pods start. Remote: its pods read from other nodes as
    long as they run."""
    reason: Literal["SpecFixesNodes", "NoRoomInCache", "CostsLess"] | None = None
    """Why they read from other nodes. SpecFixesNodes: the Dataset's spec says on how many nodes a copy is
    (placement.nodeCount or a mode other than Auto), or nothing is preloaded. NoRoomInCache: the caches of its nodes
    have no room for it next to data that is in use, or the nodes have none that the Dataset may use. CostsLess: the job
    ends before it would gain from it."""
    nodes: list[str] = Field(default=[])
    """The nodes that the choice is for: those that its pods are expected on, then those that they are on; the first 128
    by name."""
    nodes_without_room: list[str] = Field(default=[])
    """Grow: those of these nodes whose cache has no room for the copy next to data that is in use; the copy is not
    brought there, and their pods read from other nodes."""
    bytes: int | None = None
    """Grow: bytes that these nodes lacked."""
    bytes_per_node: int | None = None
    """Grow: the same of one of them."""
    grow_seconds: int | None = None
    """What growing was expected to cost the job, beyond its time next to its data; absent where a copy may not grow."""
    remote_seconds: int | None = None
    """What reading from other nodes was expected to cost it."""
    wait_seconds: int | None = None
    """What waiting for room on the nodes of the data was expected to cost it; absent where nobody knew when there would
    be room, or the job did not wait."""
    expected_seconds: int | None = None
    """Grow and Wait: how long that was expected to take, from decidedTime."""
    decided_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When it was chosen."""
    met_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Grow: when its nodes had the copy, but for nodesWithoutRoom. Wait: when there was room. Compare with
    expectedSeconds."""
    waited_seconds: int | None = None
    """How long the job waited for room on the nodes of the data before it started; where way is not Wait, in vain."""


class CopyUse(StatusModel):
    """Which copy of a dataset the job reads."""

    dataset: str
    """The Dataset."""
    copy_id: Annotated[str, Field(alias="copy")]
    """The copy's id."""
    meeting: DataMeeting | None = None
    """Where the job and the dataset meet."""


class NodeFailures(Model):
    """How often the job failed on a node."""

    node: str
    """The node."""
    failures: int
    """Failures of its pods there, after each of which all pods of the job were restarted."""


class PredictionCheck(Model):
    """How a prediction of the job's time compares with the time that it took."""

    predicted_seconds: int
    """What `tdcs plan` predicted: the time of the training itself, without pulling images and starting frameworks."""
    run_seconds: int
    """From startTime to completionTime."""
    error_percent: int
    """The prediction less the time that it took, in percent of the latter: below 0 it took longer than predicted."""


class DataStall(StatusModel):
    """How long reads of the job's pods waited, and for what, summed over the pods. A pod waits while at least one of
    its reads does; a program that reads ahead of what it works on stands still for less."""

    observed_seconds: int = 0
    """In which the pods were observed: from a pod's first read to its last, or all of its time where diskSeconds is
    known."""
    source_seconds: int = 0
    """Of these, in which a read waited for the source, by the node's remote-read client."""
    peer_seconds: int = 0
    """In which one waited for another node of the cache, by the same."""
    disk_seconds: int | None = None
    """In which the kernel counts that a process of the pod waited for files (cgroup v2, io.pressure), less those two:
    of the node's disk, and of other file systems. Absent where nodes do not count it."""
    loop_seconds: int | None = None
    """In which training loops were watched (tdcs_train.loader.watch), summed over the processes. Absent where none
    was."""
    loop_wait_seconds: int | None = None
    """Of loopSeconds, in which they stood still for their next batch, whatever kept it."""
    percent: Measure = 0
    """Source, peer and disk together, of observedSeconds."""
    advice: Literal["ComputeBound", "CacheMore", "Replicate", "FasterDisk", "FasterLoader"] = "ComputeBound"
    """What would shorten the waits most."""
    message: str = ""
    """The same as a sentence. For display only."""


class SetAside(StatusModel):
    """Nodes that no other job of its priority, or below, may begin to use."""

    nodes: list[str] = Field(default=[])
    """Their names; none where there are more than 256."""
    since: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When nodes were first set aside for the job."""


class NodesAsked(StatusModel):
    """A gang that the present nodes cannot hold asks for more (chart value operator.nodeProvisioning)."""

    since: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Since when it asks; absent while it does not."""
    came_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When all of its pods had nodes, of one whose pods were released to ask for them."""
    tries: int | None = None
    """How often nothing came of it since all of its pods ran last."""
    next_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When it asks again, or asked last, after nothing came of it."""


class DataWait(StatusModel):
    """A job that could start elsewhere waits for room on the nodes of its data: that is expected to cost it least."""

    dataset: str
    """The Dataset whose data it would miss most elsewhere."""
    nodes: list[str] = Field(default=[])
    """The nodes of its data; the first 128 by name."""
    since: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When it began to wait."""
    until: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """It waits no longer than until then: then it starts where there is room. Set once; earlier when no room is
    expected in time any more."""
    expected_seconds: int
    """When room was expected, from since: by the deadlines of the jobs that run there, and by how long jobs of the same
    template ran."""
    wait_seconds: int
    """What waiting was expected to cost the job, over all of its datasets."""
    other_way: Literal["Near", "Grow", "Remote"]
    """How it and the dataset would have met otherwise."""
    other_seconds: int
    """What that was expected to cost it, over all of its datasets."""


class QueueRecord(StatusModel):
    """What the operator's own queue has counted and decided about a job; an operator that starts goes on from it."""

    passed: int | None = None
    """How many jobs that came later were admitted before it. It counts on when the job gives its room back, and ends
    when all of its pods run."""
    attempts: int | None = None
    """How often the job has given room or workers back since all of its pods ran last."""
    next_attempt_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Until when it pauses, or paused last, before it is tried again."""
    lack: str = ""
    """What it lacked when it was tried last."""
    preempted_by: str | None = None
    """Which job has taken its place (namespace/name), until all of its pods run again."""
    set_aside: SetAside | None = None
    """The nodes that are set aside for it, as it was passed too often."""
    nodes_asked: NodesAsked | None = None
    """The nodes that it asks for; the condition NodesRequested says what came of it."""
    data_wait: DataWait | None = None
    """Its wait for room on the nodes of its data, until it runs; copies[].meeting says what came of it."""
    ends_by: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When its pods are ended at the latest, restarts included: it was let onto nodes set aside for another job because
    its runPolicy.activeDeadlineSeconds showed that it ends in time. That cannot be raised meanwhile."""


class TrainingJobStatus(StatusModel):
    """How far the job is, and where it runs."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    state: JobState | None = None
    """The conditions in one word, for display only."""
    reason: str = ""
    """Why the job is not running yet, or how it ended, in one word; empty while it runs. For display only."""
    message: str = ""
    """The same as a sentence: what it waits for, and what to do. For display only."""
    conditions: Conditions = Field(default=[])
    """DataReady: its datasets can be read and are cached as far as asked (of a job that runs: were, when it started),
    and the PersistentVolumeClaims that its templates name exist. Queued: it waits for its turn, and for room for all
    its pods. Admitted: its pods may exist. Running: all pods are ready. Restarting: a pod failed and is made again,
    alone or with all others (runPolicy.failurePolicy). Suspended: as runPolicy.suspend asks. NodesRequested: nodes
    that are not there are asked for (operator.nodeProvisioning). Succeeded and Failed: how it ended."""
    replica_statuses: Annotated[list[ReplicaStatus], Field(json_schema_extra=list_map("name"))] = Field(
        default=[]
    )
    """The pods of each role, counted."""
    replicas: Measure = 0
    """Workers that the job has been given; with selector, what an autoscaler reads."""
    admitted_workers: int | None = None
    """How many workers the queue has admitted of an elastic job: as many as asked for, or fewer while there is no room
    for more."""
    suspended_seconds: int | None = None
    """How long the job was suspended in all, before the present suspension. It does not count for the timeouts of
    readiness."""
    selector: str = ""
    """Selects the workers' pods."""
    placement: Annotated[list[PodPlacement], Field(json_schema_extra=one_value())] = Field(default=[])
    """Where the pods run, or ran: those with the lowest indexes, where there are more than can be listed."""
    placement_omitted: int | None = None
    """How many further pods have a node, and are not listed."""
    placement_digest: str | None = None
    """Changes when one of the pods that are not listed is on another node."""
    considered: Annotated[
        list[Consideration], Field(max_length=CONSIDERATIONS_LIMIT, json_schema_extra=one_value())
    ] = Field(default=[])
    """What nodes with the job's data had left when its pods were placed, by which `tdcs explain job` says why they are
    where they are; the newest placements."""
    locality: float | None = None
    """Mean over the pods of: bytes of the data on the pod's node over the most such bytes on any node. 1 means
    that no pod could have been placed better."""
    locality_percent: str | None = None
    """locality as a whole percentage, rounded down, such as 95%; for display only."""
    local_share: float | None = None
    """Mean over the pods of the share of the data that is on the pod's own node."""
    copies: Annotated[list[CopyUse], Field(json_schema_extra=list_map("dataset"))] = Field(default=[])
    """Which copy of each dataset the job reads, chosen when it is admitted: the one with room near it, then the one
    that fewest jobs read."""
    queue_name: str | None = None
    """The LocalQueue of Kueue that decides about the job; absent: the operator's own queue does, or the job has
    ended."""
    passed: int | None = None
    """While it waits: how many jobs that came later were admitted before it. When there were too many, nodes are set
    aside for it."""
    queue: QueueRecord | None = None
    """What the operator's own queue has counted and decided about it."""
    restarts: int | None = None
    """How often all pods of the job were restarted (runPolicy.failurePolicy)."""
    restarts_count_towards_max: int | None = None
    """How many of these count towards maxRestarts: those after failures of the job's own."""
    restarts_after_failures: int | None = None
    """How many of these followed a failure of the job's own, also one that does not count (onExitCodes): the pauses
    between restarts grow with it."""
    node_failures: Annotated[
        list[NodeFailures], Field(max_length=NODE_FAILURES_LIMIT, json_schema_extra=list_map("node"))
    ] = Field(default=[])
    """On which nodes the job failed, and how often; the newest ones."""
    avoided_nodes: Annotated[
        list[str], Field(max_length=NODE_FAILURES_LIMIT, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=[])
    """Nodes on which the job failed repeatedly, and which its pods avoid since its last restart."""
    running_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When all pods of the job were ready for the first time since it was admitted; empty before that."""
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the pods were first allowed to exist."""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the job ended."""
    prediction: PredictionCheck | None = None
    """How far the prediction in the job's annotation tdcs.io/predicted-seconds was off (`tdcs plan --apply` writes it).
    Only of a job that succeeded, and was never suspended."""
    data_stall: DataStall | None = None
    """How long its reads waited, and for what; nothing while no node has reported any."""
