"""Where admitted jobs and their data meet: weighed when a job is admitted, and again when its pods go elsewhere.

The choice stands in the job's status; passes over the Datasets have copies grow by it, before the pods start.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from tdcs.api.dataset import Dataset
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob_status import MEETING_NODES, CopyUse, DataMeeting, DataWait
from tdcs.control.context import Stores
from tdcs.control.job.queue.data_pictures import DataPictures, held_of, size_of
from tdcs.control.job.queue.job_room import JobRoom
from tdcs.control.job_index import template_of
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.data_location import wanted_near
from tdcs.decide.place.data_meeting import Meeting, Way, has_met, weigh
from tdcs.decide.place.node_score import node_scores
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


class DataMeetings:
    """Weighs for each admitted job, and remembers nothing: what was chosen stands in the job's status."""

    def __init__(self, *, stores: Stores, room: JobRoom) -> None:
        self._stores = stores
        self._room = room

    def of(self, obj: Object, observed: Observed, decision: Decision, *, now: str) -> dict[str, DataMeeting]:
        """How the job and each of its datasets meet, by the dataset's name; empty before it is admitted."""
        if not decision.admitted or decision.reason in GAVE_BACK:
            return {}
        meeting_of = {use.dataset: use.meeting for use in observed.status.copies}
        meetings = {}
        for name, dataset in observed.datasets.items():
            before = meeting_of.get(name)
            pods = self._pods(obj, observed, decision, name, before)
            if dataset.status is None or not pods:
                if before is not None:
                    meetings[name] = before
                continue
            after = self._met(dataset, before, now=now) if before is not None else None
            waited = decision.record.data_wait if decision.record is not None else None
            if waited is not None and waited.dataset != name:
                waited = None
            if after is None or after.nodes != _named(pods) or after.reason == NO_ROOM:
                after = self._weighed(obj, observed, dataset, pods, before=after, waited=waited, now=now)
            meetings[name] = after
        return meetings

    def _pods(
        self, obj: Object, observed: Observed, decision: Decision, name: str, before: DataMeeting | None
    ) -> Mapping[str, int]:
        """How many pods that read a dataset each node has, or will get; those that are known when all have one."""
        reading = [
            pod
            for pod in observed.pods
            if name in {use.name for use in observed.spec.datasets_of(pod.role, pod.number)}
        ]
        placed = [pod.node for pod in reading if pod.node]
        if placed and len(placed) == len(reading):
            return {node: placed.count(node) for node in placed}
        if before is not None:
            return dict.fromkeys(before.nodes, 1)
        near = wanted_near({name: observed.datasets[name]}, chosen=decision.copies)
        return self._room.expected_nodes(obj, scores=node_scores(near))

    def _met(self, dataset: Dataset, published: DataMeeting, *, now: str) -> DataMeeting:
        """The same, with the time at which the job's nodes had the copy."""
        if published.way != "Grow" or published.met_time is not None:
            return published
        growing = set(published.nodes) - set(published.nodes_without_room)
        if not has_met(size=size_of(dataset), held=held_of(dataset), nodes=growing):
            return published
        return published.model_copy(update={"met_time": now})

    def _weighed(
        self,
        obj: Object,
        observed: Observed,
        dataset: Dataset,
        pods: Mapping[str, int],
        *,
        before: DataMeeting | None,
        waited: DataWait | None,
        now: str,
    ) -> DataMeeting:
        pictures = DataPictures(stores=self._stores)
        runs = pictures.run_seconds(
            namespace=observed.namespace,
            template=template_of(obj.get("spec")),
            deadline=observed.spec.run_policy.active_deadline_seconds,
        )
        meeting_input = pictures.meets(dataset, pods=pods, run_seconds=runs)
        meeting = weigh(meeting_input)
        if before is not None and before.way == "Wait" and meeting.way is Way.NEAR:
            return before.model_copy(update={"nodes": _named(pods)})
        if before is not None and before.way == meeting.way and before.nodes == _named(pods):
            return before
        new_meeting = _status_of(meeting, nodes=_named(pods), grows=meeting_input.grows, now=now)
        if before is not None:
            return new_meeting.model_copy(
                update={"wait_seconds": before.wait_seconds, "waited_seconds": before.waited_seconds}
            )
        return new_meeting if waited is None else _after_wait(new_meeting, waited, now=now)


def due(meetings: Mapping[str, DataMeeting], *, now: str) -> float | None:
    """Seconds until the next look at how jobs and data meet; None when nothing is under way."""
    growing = [meeting for meeting in meetings.values() if meeting.way == "Grow" and meeting.met_time is None]
    if growing:
        late = all(
            seconds_between(meeting.decided_time, now)
            > max(LATE * (meeting.expected_seconds or 0), AGAIN_SECONDS)
            for meeting in growing
        )
        return AGAIN_SECONDS if late else LOOK_SECONDS
    return AGAIN_SECONDS if any(meeting.reason == NO_ROOM for meeting in meetings.values()) else None


def is_under_way(uses: Sequence[CopyUse]) -> bool:
    """Whether a copy grows to the job's nodes, as its status says."""
    return any(
        use.meeting is not None and use.meeting.way == "Grow" and not use.meeting.met_time for use in uses
    )


def _named(pods: Mapping[str, int]) -> list[str]:
    return sorted(pods)[:MEETING_NODES]


def _status_of(meeting: Meeting, *, nodes: list[str], grows: bool, now: str) -> DataMeeting:
    def seconds(way: Way) -> int | None:
        return math.ceil(meeting.costs[way]) if way in meeting.costs else None

    growing = meeting.way is Way.GROW
    into = len(nodes) - len(meeting.without_room)
    return DataMeeting(
        way=meeting.way.value,
        nodes=nodes,
        nodes_without_room=[node for node in nodes if node in meeting.without_room] if growing else [],
        bytes=meeting.missing_bytes or None,
        bytes_per_node=meeting.missing_bytes // into if growing and into else None,
        grow_seconds=seconds(Way.GROW),
        remote_seconds=seconds(Way.REMOTE),
        expected_seconds=math.ceil(meeting.expected_seconds)
        if growing and meeting.expected_seconds
        else None,
        decided_time=now,
        reason=_reason(meeting, grows=grows),
    )


def _after_wait(meeting: DataMeeting, waited: DataWait, *, now: str) -> DataMeeting:
    """What was chosen for a job that had waited for room at its data: that it came, or how long it waited in vain."""
    took = round(max(seconds_between(waited.since, now), 0.0))
    update: dict[str, object] = {"wait_seconds": waited.wait_seconds, "waited_seconds": took}
    if meeting.way == "Near":
        other_field = {"Grow": "grow_seconds", "Remote": "remote_seconds"}.get(waited.other_way)
        update |= {
            "way": "Wait",
            "expected_seconds": waited.expected_seconds,
            "decided_time": waited.since,
            "met_time": now,
            **({other_field: waited.other_seconds} if other_field is not None else {}),
        }
    return meeting.model_copy(update=update)


def _reason(
    meeting: Meeting, *, grows: bool
) -> Literal["SpecFixesNodes", "NoRoomInCache", "CostsLess"] | None:
    if meeting.way is not Way.REMOTE:
        return None
    if not grows:
        return "SpecFixesNodes"
    return NO_ROOM if meeting.without_room else "CostsLess"
