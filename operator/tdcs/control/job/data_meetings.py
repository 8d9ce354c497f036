"""Where admitted jobs and their data meet: weighed when a job is admitted, and again when its pods go elsewhere.

The choice stands in the job's status; passes over the Datasets have copies grow by it, before the pods start.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob_status import MEETING_NODES, CopyUse, DataMeeting
from tdcs.control.context import Stores
from tdcs.decide.cache.wants import subset_of
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.data_location import copies_of, wanted_near
from tdcs.decide.place.data_meeting import PEER_RATE, Meeting, MeetingInput, Way, has_met, weigh
from tdcs.decide.place.dataset_copies import merged
from tdcs.decide.place.node_score import node_scores
from tdcs.decide.place.slot_nodes import RESERVE_RATIO, matches
from tdcs.decide.queue.pod_admission import GAVE_BACK
from tdcs.model.kube_objects import Object

LOOK_SECONDS = 5.0
"""A job whose copy grows looks so often whether its nodes have it."""

AGAIN_SECONDS = 60.0
"""What reads from other nodes for lack of room is weighed again so often: there may be room by then."""

LATE = 10
"""What takes so many times as long as was expected is looked at less often: a quota may keep it out, say."""

NO_ROOM: Final = "NoRoomInCache"
"""What changes without the job: it is weighed again."""

MEASURED_SECONDS = 10.0
"""Growth that took less says nothing of a rate."""


class ExpectedNodes(Protocol):
    """Says how many pods that read data each node will get."""

    def __call__(self, obj: Object, *, scores: Mapping[str, int]) -> Mapping[str, int]:
        """Gets the job, and the scores of the nodes."""


class DataMeetings:
    """Weighs for each admitted job, and remembers nothing: what was chosen stands in the job's status."""

    def __init__(self, *, stores: Stores, expected: ExpectedNodes) -> None:
        self._stores = stores
        self._expected = expected

    def of(self, obj: Object, seen: Observed, decision: Decision, *, now: str) -> dict[str, DataMeeting]:
        """How the job and each of its datasets meet, by the dataset's name; empty before it is admitted."""
        if not decision.admitted or decision.reason in GAVE_BACK:
            return {}
        known = {use.dataset: use.meeting for use in seen.known.copies}
        found = {}
        for name, dataset in seen.datasets.items():
            before = known.get(name)
            pods = self._pods(obj, seen, decision, name, before)
            if dataset.status is None or not pods:
                if before is not None:
                    found[name] = before
                continue
            after = self._met(dataset, before, now=now) if before is not None else None
            if after is None or after.nodes != _named(pods) or after.reason == NO_ROOM:
                after = self._weighed(seen, dataset, pods, before=after, now=now)
            found[name] = after
        return found

    def _pods(
        self, obj: Object, seen: Observed, decision: Decision, name: str, before: DataMeeting | None
    ) -> Mapping[str, int]:
        """How many pods that read a dataset each node has, or will get; those that are known when all have one."""
        reading = [
            pod
            for pod in seen.pods
            if name in {use.name for use in seen.spec.datasets_of(pod.role, pod.number)}
        ]
        placed = [pod.node for pod in reading if pod.node]
        if placed and len(placed) == len(reading):
            return {node: placed.count(node) for node in placed}
        if before is not None:
            return dict.fromkeys(before.nodes, 1)
        near = wanted_near({name: seen.datasets[name]}, chosen=decision.copies)
        return self._expected(obj, scores=node_scores(near))

    def _met(self, dataset: Dataset, known: DataMeeting, *, now: str) -> DataMeeting:
        """The same, with the time at which the job's nodes had the copy."""
        if known.way != "Grow" or known.met_time is not None:
            return known
        growing = set(known.nodes) - set(known.nodes_without_room)
        if not has_met(size=_size(dataset), held=_held(dataset), nodes=growing):
            return known
        return known.model_copy(update={"met_time": now})

    def _weighed(
        self,
        seen: Observed,
        dataset: Dataset,
        pods: Mapping[str, int],
        *,
        before: DataMeeting | None,
        now: str,
    ) -> DataMeeting:
        placement, preload = dataset.spec.placement, dataset.spec.preload
        grows = (
            preload.enabled
            and placement.mode == "Auto"
            and placement.node_count is None
            and not preload.paths
            and len(pods) <= MEETING_NODES
        )
        coming = {
            node: size
            for copy in copies_of(dataset).values()
            for node, size in copy.arriving.items()
            if node not in pods
        }
        held = _held(dataset)
        limit = seen.spec.run_policy.active_deadline_seconds
        found = weigh(
            MeetingInput(
                size=_size(dataset),
                held={node: held.get(node, 0) + coming.get(node, 0) for node in {*held, *coming}},
                pods=pods,
                room=self._room(dataset, pods) if grows else {},
                grows=grows,
                peer_rate=self._peer_rate(),
                run_seconds=float(limit) if limit is not None else None,
            )
        )
        if before is not None and before.way == found.way and before.nodes == _named(pods):
            return before
        return _status_of(found, nodes=_named(pods), grows=grows, now=now)

    def _room(self, dataset: Dataset, nodes: Mapping[str, int]) -> dict[str, int]:
        """Bytes that the cache of each node could give to a Dataset: all but what others that are in use have there."""
        cluster = dataset.spec.cache_cluster_ref.name
        mine = dataset.status.mount_path if dataset.status is not None else ""
        found: dict[str, int] = {}
        for worker in ((self._stores.cache_cluster(cluster) or {}).get("status") or {}).get("workers") or ():
            if (
                worker["node"] in nodes
                and worker.get("state") == "Ready"
                and self._allows(dataset, worker["node"])
            ):
                found[worker["node"]] = int(int(worker.get("capacityBytes") or 0) * (1 - RESERVE_RATIO))
        for other in self._stores.datasets.values():
            status, spec = other.get("status") or {}, other.get("spec") or {}
            if status.get("mountPath") in ("", None, mine) or names.cache_cluster_of(other) != cluster:
                continue
            pinned = (spec.get("eviction") or {}).get("policy") == "Pin"
            if not (pinned or status.get("inUse") or status.get("activeJobs") or status.get("waitingJobs")):
                continue  # it leaves for what is read
            for copy in status.get("copies") or ():
                for node in copy.get("nodes") or ():
                    if node["name"] in found:
                        taken = int(node.get("bytes") or 0) + int(node.get("arriving") or 0)
                        found[node["name"]] -= taken
        return found

    def _allows(self, dataset: Dataset, node: str) -> bool:
        """Whether the Dataset may lie on a node at all."""
        labels = (self._stores.nodes.get(("", node)) or {"metadata": {}})["metadata"].get("labels") or {}
        return matches(labels, dataset.spec.placement.node_selector)

    def _peer_rate(self) -> float:
        """Bytes a second that a node got when copies grew for jobs that are there: the middle of what was measured."""
        rates = []
        for job in self._stores.live_jobs().values():
            for use in (job.get("status") or {}).get("copies") or ():
                meeting = use.get("meeting") or {}
                if not meeting.get("metTime") or not meeting.get("bytesPerNode"):
                    continue
                took = seconds_between(meeting["decidedTime"], meeting["metTime"])
                if took >= MEASURED_SECONDS:
                    rates.append(meeting["bytesPerNode"] / took)
        return statistics.median(rates) if rates else PEER_RATE


def due(meetings: Mapping[str, DataMeeting], *, now: str) -> float | None:
    """Seconds until the next look at how jobs and data meet; None when nothing is under way."""
    growing = [one for one in meetings.values() if one.way == "Grow" and one.met_time is None]
    if growing:
        late = all(
            seconds_between(one.decided_time, now) > max(LATE * (one.expected_seconds or 0), AGAIN_SECONDS)
            for one in growing
        )
        return AGAIN_SECONDS if late else LOOK_SECONDS
    return AGAIN_SECONDS if any(one.reason == NO_ROOM for one in meetings.values()) else None


def is_under_way(uses: Sequence[CopyUse]) -> bool:
    """Whether a copy grows to the job's nodes, as its status says."""
    return any(
        use.meeting is not None and use.meeting.way == "Grow" and not use.meeting.met_time for use in uses
    )


def _named(pods: Mapping[str, int]) -> list[str]:
    return sorted(pods)[:MEETING_NODES]


def _held(dataset: Dataset) -> Mapping[str, int]:
    """What lies on each node, of whichever copy."""
    found = merged(list(copies_of(dataset).values()))
    return found.node_bytes if found is not None else {}


def _size(dataset: Dataset) -> int:
    """Bytes of one copy that its preload wants."""
    total = dataset.status.total_bytes if dataset.status is not None else 0
    return subset_of(dataset.spec.preload).limit(total)


def _status_of(found: Meeting, *, nodes: list[str], grows: bool, now: str) -> DataMeeting:
    def seconds(way: Way) -> int | None:
        return math.ceil(found.costs[way]) if way in found.costs else None

    growing = found.way is Way.GROW
    into = len(nodes) - len(found.without_room)
    return DataMeeting(
        way=found.way.value,
        nodes=nodes,
        nodes_without_room=[node for node in nodes if node in found.without_room] if growing else [],
        bytes=found.missing_bytes or None,
        bytes_per_node=found.missing_bytes // into if growing and into else None,
        grow_seconds=seconds(Way.GROW),
        remote_seconds=seconds(Way.REMOTE),
        expected_seconds=math.ceil(found.expected_seconds) if growing and found.expected_seconds else None,
        decided_time=now,
        reason=_reason(found, grows=grows),
    )


def _reason(found: Meeting, *, grows: bool) -> Literal["SpecFixesNodes", "NoRoomInCache", "CostsLess"] | None:
    if found.way is not Way.REMOTE:
        return None
    if not grows:
        return "SpecFixesNodes"
    return NO_ROOM if found.without_room else "CostsLess"
