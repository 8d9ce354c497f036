"""All that the own queue knows of one job: what it has decided about it, and what it has counted.

There is one such value for each job. The pass that decides replaces it, the job's next status says it, and a new
operator reads it there (`known_turn`). Next to it memory has only what may be forgotten: since when a gang that was
admitted is short of places (`Requeues`), so that it waits once more for its whole patience, and which of the elastic
ones are held back from growing (`GrowthHold`).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.api.durations import past, seconds_between, seconds_from_1970, time_after
from tdcs.api.trainingjob_status import MEETING_NODES, DataWait, NodesAsked, QueueRecord, SetAside
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.data_meeting import LONGEST_WAIT, WaitChoice, Way
from tdcs.decide.queue.kept_nodes import NodesToLeave
from tdcs.decide.queue.pod_admission import GAVE_BACK, Reason
from tdcs.model.kube_objects import Object

TOLD_NODES = 256
"""So many nodes that are set aside stand in a status at most; more are chosen again by an operator that starts."""

TOLD_PASSES = 8
"""So often a job was passed, or once too often, before its status is written for that alone."""


LONGEST_PAUSE = 1800.0
"""Seconds that a job pauses at most before it is tried again, or asks for nodes again."""

START_SECONDS = 30
"""Seconds from the admission of a job until its Jobs are started, at most, for one that has promised its end."""

OTHER_WAYS: Mapping[Way, Literal["Near", "Grow", "Remote"]] = {
    Way.NEAR: "Near",
    Way.GROW: "Grow",
    Way.REMOTE: "Remote",
}
"""The ways to meet data without a wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTurn:
    """What the queue knows of a job.

    Attributes:
        asks: its data is ready, and it asks to be admitted.
        awaits_place: another admitter decides about it, and it waits for a place at its data.
        unreadable: why it cannot be understood; empty when it can.
        admitted: with how many pods it was admitted, until its status says that it was; None when it was not.
        workers: how many workers an elastic job was given, until its status says so.
        copies: which copies of its data were chosen for it, until its status says so.
        leave: which nodes its pods leave to larger ones, by their GPUs; until they start.
        passed: how many later jobs were admitted before it. That it was admitted and gave its room back does not end
            the count; that it runs does.
        attempts: how often it gave room back since it last ran.
        until: when it is tried again, in seconds of the operator's clock; 0: it does not pause.
        next_attempt: the same as a time of the API.
        reason, message: why it pauses, or paused last.
        lack: what it lacked when it was tried last; empty once it runs.
        yields: why it gives way to another job; until its status says that it was suspended for it.
        preempted_by: which job has taken its place last, as namespace/name; empty once it runs again.
        aside: the nodes that are set aside for it; `aside_since`: since when.
        nodes_since: since when it asks for nodes that are not there (`tdcs.decide.queue.node_requests`); empty: it asks
            for none.
        nodes_came: when all of its pods had nodes, of one whose pods were released to ask for them.
        nodes_tries: how often nothing came of that since it last ran.
        nodes_reason, nodes_message: why nothing came of it last; until it asks again.
        data_wait: its wait for a place at its data, if it began one since it last ran; it begins none besides.
        ends_by: when its pods are ended at the latest, restarts included, as it was let onto nodes set aside for
            another job (RFC 3339); empty: it has made no such promise. Until it gives its room back.
        nodes_until: when it asks again, in seconds of the operator's clock; `nodes_next`: as a time of the API.
    """

    asks: bool = False
    awaits_place: bool = False
    unreadable: str = ""
    admitted: int | None = None
    workers: int | None = None
    copies: Mapping[str, str] | None = None
    leave: NodesToLeave = field(default_factory=dict)
    passed: int = 0
    attempts: int = 0
    until: float = 0.0
    next_attempt: str = ""
    reason: Reason = Reason.REQUEUED
    message: str = ""
    lack: str = ""
    yields: str = ""
    preempted_by: str = ""
    aside: frozenset[str] = frozenset()
    aside_since: str = ""
    nodes_since: str = ""
    nodes_came: str = ""
    nodes_tries: int = 0
    nodes_until: float = 0.0
    nodes_next: str = ""
    nodes_reason: str = ""
    nodes_message: str = ""
    data_wait: DataWait | None = None
    ends_by: str = ""

    @property
    def awaits_nodes(self) -> bool:
        """Whether its pods were released to ask for nodes, or a request was made, and not all of them have one."""
        return bool(self.nodes_since) and not self.nodes_came

    def withdrawn(self) -> "JobTurn":
        """The job does not start now; what was counted stays."""
        return replace(
            self,
            asks=False,
            awaits_place=False,
            admitted=None,
            workers=None,
            copies=None,
            leave={},
            yields="",
            nodes_since="",
            nodes_came="",
            ends_by="",
        )

    def is_news(self, after: "JobTurn", *, max_passes: int) -> bool:
        """Whether the status must say something else now, although nothing else about the job may have changed."""
        told_at_once = ("aside", "aside_since", "nodes_since", "data_wait")
        if any(getattr(self, field) != getattr(after, field) for field in told_at_once):
            return True
        is_reported = after.passed // TOLD_PASSES != self.passed // TOLD_PASSES
        return is_reported or (self.passed < max_passes <= after.passed)


def changed(current: JobTurn, *, before: JobTurn, after: JobTurn) -> JobTurn:
    """A turn that may have changed since a pass began, with what that pass has changed of it."""
    if before == after:
        return current
    fields = {
        name: value
        for name in JobTurn.__dataclass_fields__
        if (value := getattr(after, name)) != getattr(before, name)
    }
    return replace(current, **fields)


def record_of(turn: JobTurn) -> QueueRecord | None:
    """What a status says of a turn; None: nothing."""
    nodes = sorted(turn.aside) if len(turn.aside) <= TOLD_NODES else []
    record = QueueRecord(
        passed=turn.passed or None,
        attempts=turn.attempts or None,
        next_attempt_time=turn.next_attempt or None,
        lack=turn.lack,
        preempted_by=turn.preempted_by or None,
        set_aside=SetAside(nodes=nodes, since=turn.aside_since) if turn.aside_since else None,
        nodes_asked=_nodes_asked(turn),
        data_wait=turn.data_wait,
        ends_by=turn.ends_by or None,
    )
    return None if record == QueueRecord() else record


def _nodes_asked(turn: JobTurn) -> NodesAsked | None:
    if not (turn.nodes_since or turn.nodes_tries):
        return None
    return NodesAsked(
        since=turn.nodes_since or None,
        came_time=turn.nodes_came or None,
        tries=turn.nodes_tries or None,
        next_time=turn.nodes_next or None,
    )


def known_turn(job: Object, *, now: str, clock: float) -> JobTurn:
    """What the status of a job says that an earlier operator knew of it.

    Args:
        job: as the API server has it.
        now: the time.
        clock: the same in seconds of this operator's clock.
    """
    status: Mapping[str, Any] = job.get("status") or {}
    record: Mapping[str, Any] = status.get("queue") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    condition: Mapping[str, Any] = next(
        (
            conditions[kind]
            for kind in (names.ADMITTED, names.QUEUED)
            if conditions.get(kind, {}).get("reason") in GAVE_BACK
        ),
        {},
    )
    aside: Mapping[str, Any] = record.get("setAside") or {}
    again, pause = _pause(record.get("nextAttemptTime"), now=now)
    node_request: Mapping[str, Any] = record.get("nodesAsked") or {}
    ask_again, resting = _pause(node_request.get("nextTime"), now=now)
    return JobTurn(
        passed=_count(record.get("passed")),
        attempts=_count(record.get("attempts")),
        until=clock + pause if again else 0.0,
        next_attempt=again,
        reason=Reason(condition["reason"]) if condition else Reason.REQUEUED,
        message=str(condition.get("message") or ""),
        lack=str(record.get("lack") or ""),
        preempted_by=str(record.get("preemptedBy") or ""),
        aside=frozenset(map(str, aside.get("nodes") or ())),
        aside_since=_time(aside.get("since")),
        nodes_since=_time(node_request.get("since")),
        nodes_came=_time(node_request.get("cameTime")),
        nodes_tries=_count(node_request.get("tries")),
        nodes_until=clock + resting if ask_again else 0.0,
        nodes_next=ask_again,
        data_wait=_data_wait(record.get("dataWait")),
        ends_by=_time(record.get("endsBy")),
    )


def ends_by(*, now: str, deadline: int) -> str:
    """When a job ends that begins now, and was let onto nodes that are set aside as it ends in time."""
    return time_after(now, seconds=START_SECONDS + deadline)


def kept_deadline(deadline: int | None, *, ends_by: str, starts: Iterable[str], now: str) -> int | None:
    """The activeDeadlineSeconds that the Jobs of a job get: what it asks for, and no longer than it has promised. So
    restarts, each of which begins the time of a Job again, and a deadline that is raised give it no more.

    Args:
        deadline: what it asks for.
        ends_by: what it has promised; empty: nothing.
        starts: when those of its Jobs were started that have been.
        now: the time.
    """
    if not ends_by:
        return deadline
    remaining = max(math.floor(seconds_between(max(starts, default=now), ends_by)), 1)
    return remaining if deadline is None else min(deadline, remaining)


def data_wait_of(choice: WaitChoice, *, now: str) -> DataWait:
    """The wait of a job that begins now."""
    costs = choice.meeting.costs
    other_way = min(OTHER_WAYS.keys() & costs.keys(), key=lambda way: (costs[way], list(Way).index(way)))
    return DataWait(
        dataset=choice.dataset,
        nodes=sorted(choice.nodes)[:MEETING_NODES],
        since=now,
        until=time_after(now, seconds=math.floor(choice.longest_seconds)),
        expected_seconds=math.ceil(choice.expected_seconds),
        wait_seconds=math.ceil(choice.wait_cost),
        other_way=OTHER_WAYS[other_way],
        other_seconds=math.ceil(choice.other_cost),
    )


def bounded_wait(wait: DataWait, *, now: str) -> DataWait:
    """The wait as it is believed: no longer than any may be. One that began in the future, as a clock was wrong, counts
    from now."""
    since, length = past(wait.since, now=now), seconds_between(wait.since, wait.until)
    if since == wait.since and length <= LONGEST_WAIT:
        return wait
    until = time_after(since, seconds=min(max(length, 0.0), LONGEST_WAIT))
    return wait.model_copy(update={"since": since, "until": until})


def _data_wait(recorded: object) -> DataWait | None:
    try:
        wait = None if recorded is None else DataWait.model_validate(recorded)
    except ValidationError:
        return None  # of another version: the job may start again
    return wait if wait is not None and _time(wait.since) and _time(wait.until) else None


def _pause(until: object, *, now: str) -> tuple[str, float]:
    """When a pause ends that a status tells of, and the seconds until then; empty when it tells of none.

    An end that is farther than any pause is long was written by a clock that was wrong.
    """
    if not (end := _time(until)):
        return "", 0.0
    remaining = seconds_between(now, end)
    if remaining > LONGEST_PAUSE:
        return time_after(now, seconds=LONGEST_PAUSE), LONGEST_PAUSE
    return end, max(remaining, 0.0)


def _time(recorded: object) -> str:
    """A time that a status tells; empty when it is none."""
    return str(recorded) if seconds_from_1970(recorded) is not None else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def over_finding(observed: Observed, turn: JobTurn) -> Finding:
    """The condition NodesRequested of a job that asks for none any more: they came, nothing came, or it needs none."""
    if turn.nodes_reason:
        return finding(names.NODES_REQUESTED, False, turn.nodes_reason, turn.nodes_message)
    if observed.was_admitted:
        return finding(names.NODES_REQUESTED, False, "NodesCame", "its pods have nodes")
    return finding(names.NODES_REQUESTED, False, "NotNeeded", "it needs no further nodes now")


def released_finding(observed: Observed, turn: JobTurn) -> Finding | None:
    """The condition NodesRequested of a job whose pods are released to ask for nodes, or were; None: it says nothing
    new."""
    if turn.awaits_nodes:
        text = f"all its pods exist since {turn.nodes_since}, so that nodes come for those that have no room"
        return finding(names.NODES_REQUESTED, True, "PodsReleased", text)
    return (
        over_finding(observed, turn) if is_true(observed.status.conditions, names.NODES_REQUESTED) else None
    )
