"""What a traced run shows: a timeline, and the acts that its length was made of."""

from collections.abc import Mapping, Sequence
from typing import Any

from tdcs_train.actors.account import ActRecord
from tdcs_train.actors.plan import ActorPlan
from tdcs_train.actors.task import Cause

Records = Mapping[str, Sequence[ActRecord]]


def chrome_trace(plan: ActorPlan, records: Records) -> dict[str, Any]:
    """The acts in the trace format of Chrome and Perfetto: a thread a thread of actors."""
    events: list[dict[str, Any]] = []
    for name, acts in records.items():
        task = plan.by_name[name]
        place = {"pid": 0, "tid": task.thread}
        for act in acts:
            cause = None if act.cause is None else f"{act.cause[0]} {act.cause[1]}"
            events.append(
                {
                    "name": name,
                    "cat": task.kind.value,
                    "ph": "X",
                    "ts": act.started / 1000,
                    "dur": (act.ended - act.started) / 1000,
                    "args": {"act": act.number, "after": cause},
                    **place,
                }
            )
    events.sort(key=lambda event: event["ts"])
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": thread, "args": {"name": ", ".join(actors)}}
        for thread, actors in _threads(plan).items()
    ]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def critical_path(records: Records, *, last: Cause, since: int) -> dict[str, float]:
    """Seconds of each actor on the chain of acts, each waiting for the one before, that led to the act `last`.

    The chain is followed back to the moment `since` (ns), and its parts add up to the time from then to the end of
    `last`. An actor's own part includes what passed between the end of the act it waited for and its own start.
    """
    index = {name: {act.number: act for act in acts} for name, acts in records.items()}
    parts = dict.fromkeys(records, 0.0)
    record = index.get(last[0], {}).get(last[1])
    name, upto = last[0], record.ended if record else since
    while record is not None and upto > since:
        cause = None
        if record.cause is not None and record.cause[0] in index:
            cause = index[record.cause[0]].get(record.cause[1])
        begin = since if cause is None else max(min(cause.ended, upto), since)
        parts[name] += (upto - begin) / 1e9
        upto = begin
        if record.cause is not None:
            name = record.cause[0]
        record = cause
    return parts


def _threads(plan: ActorPlan) -> dict[int, list[str]]:
    tasks: dict[int, list[str]] = {}
    for task in plan.tasks:
        tasks.setdefault(task.thread, []).append(task.name)
    return tasks
