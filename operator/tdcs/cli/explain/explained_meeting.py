"""Where a job and a dataset meet, in words: what was chosen, what it was expected to cost, and what came of it."""

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob_status import DataMeeting
from tdcs.model.humanize import human

NODES_NAMED = 3

_WHY_REMOTE = {
    "SpecFixesNodes": "its spec says how many nodes hold a copy; leave placement.nodeCount out, with placement.mode "
    "Auto and preload.enabled, to have the copy come to its jobs",
    "NoRoomInCache": "the caches of the job's nodes have no room for it next to data that is in use, or the nodes have "
    "no cache that its placement.nodeSelector allows",
    "CostsLess": "the job's activeDeadlineSeconds ends it before it would gain from a copy there",
}


def meeting_sentence(dataset: str, meeting: DataMeeting) -> str:
    """What is to be said of a meeting; empty where the job is next to its data."""
    remote = f"expected to cost {meeting.remote_seconds or 0} s"
    if meeting.way == "Wait":
        return _waited(dataset, meeting)
    vain = ""
    if meeting.waited_seconds is not None:
        vain = f" It waited {meeting.waited_seconds} s in vain for room on the nodes of its data."
    if meeting.way == "Remote":
        why = _WHY_REMOTE.get(meeting.reason or "", "that costs less")
        return f"It reads Dataset {dataset} from other nodes ({remote}): {why}.{vain}"
    if meeting.way != "Grow":
        return ""
    first_nodes = ", ".join(meeting.nodes[:NODES_NAMED])
    more = f" and {len(meeting.nodes) - NODES_NAMED} more" if len(meeting.nodes) > NODES_NAMED else ""
    text = (
        f"The nodes with Dataset {dataset} had no room for it, so the copy grows onto {first_nodes}{more}: "
        f"{human(meeting.bytes or 0)}, expected to take {meeting.expected_seconds or 0} s and to cost the job "
        f"{meeting.grow_seconds or 0} s; reading from other nodes was {remote}"
    )
    if meeting.nodes_without_room:
        few = ", ".join(meeting.nodes_without_room[:NODES_NAMED])
        text += (
            f". {len(meeting.nodes_without_room)} of these nodes have no room in their cache next to data in use "
            f"({few}): pods there read from other nodes"
        )
    if meeting.met_time is None:
        way = "It is on its way; the Dataset's condition Placed says what keeps it out, if anything does."
        return f"{text}. {way}{vain}"
    took = round(seconds_between(meeting.decided_time, meeting.met_time))
    return f"{text}. It took {took} s.{vain}"


def _waited(dataset: str, meeting: DataMeeting) -> str:
    """Of a job that waited for room on the nodes of its data, and got it."""
    costs = {
        "a copy on other nodes": meeting.grow_seconds,
        "reading from other nodes": meeting.remote_seconds,
    }
    other_text = next(
        (f"; {way} was to cost {cost} s" for way, cost in costs.items() if cost is not None), ""
    )
    return (
        f"It waited {meeting.waited_seconds or 0} s for room on the nodes with Dataset {dataset}, and got it: that was "
        f"expected after {meeting.expected_seconds or 0} s, and to cost it {meeting.wait_seconds or 0} s{other_text}."
    )
