"""What the queue knows of a job is one value, which its status says: it outlives bad luck, and the operator."""

import asyncio
from typing import Any

import pytest
from tests.unit.control.jobs import Jobs

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob_status import DataWait
from tdcs.control.job.queue.job_facts import EPOCH, facts_of
from tdcs.control.job.queue.turns import Turns
from tdcs.decide.queue.job_turn import (
    LONGEST_PAUSE,
    TOLD_PASSES,
    JobTurn,
    bounded_wait,
    changed,
    known_turn,
    record_of,
)
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PODS

NOW = "2026-01-01T00:00:00Z"


async def settle(jobs: Jobs, seconds: float) -> None:
    for _ in range(int(seconds / 0.05)):
        await jobs.play()
        await asyncio.sleep(0.05)


async def starved(jobs: Jobs) -> None:
    """A job of two whole nodes that was passed as often as it may be, and one behind it; then all nodes are free."""
    await jobs.create("old", workers=1, gpus=4)
    await jobs.until(lambda: jobs.bound("old") == 1)
    await jobs.create("big", workers=2, gpus=4)
    await jobs.until(lambda: jobs.condition("Queued", "big").get("status") == "True")
    for number in range(2):
        await jobs.create(f"s{number}", workers=1, gpus=2)
        await jobs.until(lambda number=number: jobs.bound(f"s{number}") == 1)  # type: ignore[misc]
    await jobs.create("next", workers=1, gpus=4)
    await jobs.until(lambda: jobs.condition("Queued", "next").get("status") == "True")
    for name in ("old", "s0", "s1"):
        await jobs.run(name)
        for pod in jobs.pods(name):
            await jobs.end(pod)


async def test_a_gang_that_starved_and_loses_its_turn_by_bad_luck_keeps_it() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, max_passes=2, patience=0.3) as jobs:
        await starved(jobs)
        await jobs.until(lambda: jobs.condition("Admitted", "big").get("status") == "True", play=False)
        await jobs.stranger("stranger", node="b", gpus=1)  # a notebook takes one GPU for a moment
        await jobs.until(lambda: jobs.condition("Admitted", "big").get("reason") == "NotAllPodsPlaced")
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("big") == 2)
        assert not jobs.bound("next")
        assert jobs.status("big")["queue"]["passed"] == 2
        await jobs.until_running("big")
        await jobs.until(lambda: "queue" not in jobs.status("big"))


async def test_an_operator_that_starts_while_such_a_gang_pauses_leaves_it_its_nodes() -> None:
    jobs = Jobs(gpus={"a": 4, "b": 4}, max_passes=2, patience=0.3)
    async with jobs:
        await starved(jobs)
        await jobs.until(lambda: jobs.condition("Admitted", "big").get("status") == "True", play=False)
        await jobs.stranger("stranger", node="b", gpus=1)
        await jobs.until(lambda: jobs.condition("Admitted", "big").get("reason") == "NotAllPodsPlaced")
    await jobs.server.delete(PODS, name="stranger", namespace="else")
    async with jobs:
        await jobs.until(lambda: jobs.bound("big") == 2)
        assert not jobs.bound("next")


async def test_how_often_a_gang_was_tried_outlives_the_operator() -> None:
    jobs = Jobs(gpus={"a": 4, "b": 4}, patience=0.2)
    jobs.refuses = lambda pod: pod["metadata"]["name"].startswith("train-worker-1-")
    async with jobs:
        await jobs.create(workers=2)
        await jobs.until(lambda: jobs.status().get("queue", {}).get("attempts") == 1)
        record = jobs.status()["queue"]
        assert record["nextAttemptTime"]
        assert "1 of its 2 pods found no place" in record["lack"]
        assert jobs.condition("Admitted")["reason"] == "NotAllPodsPlaced"
    async with jobs:
        await jobs.until(lambda: jobs.status().get("queue", {}).get("attempts", 0) >= 2)
        assert "for the 2nd time" in jobs.condition("Admitted")["message"]


async def test_the_nodes_that_are_set_aside_stand_in_the_status_and_outlive_the_operator() -> None:
    jobs = Jobs(gpus={"a": 4, "b": 4, "c": 4}, max_passes=1)
    async with jobs:
        for node in "abc":
            await jobs.stranger(f"on-{node}", node=node, gpus=2)
        await jobs.create("large", workers=2, gpus=4)
        await jobs.until_state("Queued", "large")
        await jobs.create("small", workers=1, gpus=2)
        await jobs.until(lambda: jobs.status("large").get("queue", {}).get("setAside"))
        aside = jobs.status("large")["queue"]["setAside"]
        assert len(aside["nodes"]) == 2
    await jobs.server.delete(PODS, name="on-a", namespace="else")
    async with jobs:
        await jobs.create("other", workers=1, gpus=1)
        await jobs.until(lambda: jobs.condition("Admitted", "other"))
        await settle(jobs, 0.3)
        assert jobs.status("large")["queue"]["setAside"] == aside


async def test_admission_and_what_the_queue_goes_on_from_are_one_write() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, max_passes=2, patience=0.3) as jobs:
        writes: list[tuple[Any, ...]] = []
        apply = jobs.server.apply_status

        async def noted(resource: Any, *, obj: Object) -> Object:
            if obj["metadata"]["name"] == "big":
                status = obj["status"]
                admitted = next(
                    (
                        condition["status"]
                        for condition in status.get("conditions", ())
                        if condition["type"] == "Admitted"
                    ),
                    "",
                )
                queue = status.get("queue") or {}
                writes.append((admitted, queue.get("attempts"), bool(queue.get("setAside"))))
            return await apply(resource, obj=obj)

        jobs.server.apply_status = noted  # type: ignore[method-assign]
        await starved(jobs)
        await jobs.until(lambda: jobs.condition("Admitted", "big").get("status") == "True", play=False)
        await jobs.stranger("stranger", node="b", gpus=1)
        await jobs.until(lambda: jobs.condition("Admitted", "big").get("reason") == "NotAllPodsPlaced")
        assert (
            "True",
            None,
            False,
        ) in writes  # nodes are set aside for it no more, and it says so as it is admitted
        gave_back = [attempts for admitted, attempts, _ in writes[writes.index(("True", None, False)) :]]
        assert gave_back[-1] == 1
        assert ("False", None, False) not in writes[writes.index(("True", None, False)) :]


def test_a_turn_is_read_from_the_status_that_says_it() -> None:
    turn = JobTurn(
        passed=9,
        attempts=2,
        until=130.0,
        next_attempt="2026-01-01T00:00:30Z",
        message="no place",
        lack="1 of its 2 pods found no place",
        aside=frozenset("ab"),
        aside_since=NOW,
    )
    record = record_of(turn)
    assert record is not None
    condition = {"type": "Admitted", "status": "False", "reason": "NotAllPodsPlaced", "message": "no place"}
    queue = record.model_dump(by_alias=True, exclude_none=True, mode="json")
    job = {"status": {"conditions": [condition], "queue": queue}}
    assert known_turn(job, now=NOW, clock=100.0) == turn
    assert record_of(JobTurn(asks=True, admitted=3)) is None
    assert known_turn({"status": {}}, now=NOW, clock=1.0) == JobTurn()
    many = record_of(JobTurn(aside=frozenset(map(str, range(300))), aside_since=NOW))
    assert many is not None
    assert many.set_aside is not None
    assert many.set_aside.nodes == []


def test_what_changes_while_a_pass_goes_on_is_kept() -> None:
    before = JobTurn(asks=True, passed=1)
    after = JobTurn(asks=True, passed=5)
    assert changed(JobTurn(asks=False, passed=1, attempts=1), before=before, after=after) == JobTurn(
        asks=False, passed=5, attempts=1
    )
    turns = Turns(clock=lambda: 0.0, now=lambda: NOW)
    turns.put("u", before)
    copied_turns = turns.copy()
    decided = copied_turns.copy()
    turns.change("u", asks=False)
    decided.change("u", passed=3)
    turns.take_in(before=copied_turns, after=decided)
    assert turns.of("u") == JobTurn(asks=False, passed=3)


def test_a_status_is_written_for_passes_alone_now_and_then_only() -> None:
    turn = JobTurn(passed=1)
    assert not turn.is_news(JobTurn(passed=2), max_passes=64)
    assert turn.is_news(JobTurn(passed=TOLD_PASSES), max_passes=64)
    assert JobTurn(passed=2).is_news(JobTurn(passed=3), max_passes=3)
    assert turn.is_news(JobTurn(passed=1, aside=frozenset("a"), aside_since=NOW), max_passes=64)


WAIT = {
    "dataset": "pictures",
    "nodes": ["a"],
    "since": NOW,
    "until": "2026-01-01T00:10:00Z",
    "expectedSeconds": 60,
    "waitSeconds": 60,
    "otherWay": "Remote",
    "otherSeconds": 600,
}


@pytest.mark.parametrize(
    ("since", "until", "believed"),
    [
        (NOW, "2026-01-01T00:10:00Z", (NOW, "2026-01-01T00:10:00Z")),
        (NOW, "2026-01-31T00:00:00Z", (NOW, "2026-01-01T00:30:00Z")),
        ("2026-03-01T00:00:00Z", "2026-03-01T00:10:00Z", (NOW, "2026-01-01T00:10:00Z")),
        ("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", (NOW, "2026-01-01T00:30:00Z")),
        ("2026-03-01T00:00:00Z", "2026-01-01T00:10:00Z", (NOW, NOW)),
    ],
)
def test_a_wait_ends_no_later_than_any_may_however_wrong_a_clock_was(
    since: str, until: str, believed: tuple[str, str]
) -> None:
    wait = bounded_wait(DataWait.model_validate({**WAIT, "since": since, "until": until}), now=NOW)
    assert (wait.since, wait.until) == believed


def test_a_pause_that_a_status_tells_of_is_no_longer_than_any_may_be() -> None:
    far = "2026-02-01T00:00:00Z"
    turn = known_turn(
        {"status": {"queue": {"nextAttemptTime": far, "nodesAsked": {"nextTime": far}}}}, now=NOW, clock=5.0
    )
    assert (turn.until, turn.next_attempt) == (5.0 + LONGEST_PAUSE, "2026-01-01T00:30:00Z")
    assert (turn.nodes_until, turn.nodes_next) == (5.0 + LONGEST_PAUSE, "2026-01-01T00:30:00Z")


@pytest.mark.parametrize("time", ["2026-01-01T00:05:00", "soon", "0000-01-01T00:00:00Z", "", 5])
def test_times_of_a_status_that_are_none_count_as_left_out(time: object) -> None:
    status = {
        "conditions": [{"type": "Admitted", "status": "False", "lastTransitionTime": time}],
        "queue": {
            "passed": 3,
            "nextAttemptTime": time,
            "setAside": {"nodes": ["a"], "since": time},
            "nodesAsked": {"since": time, "cameTime": time, "nextTime": time, "tries": 2},
            "dataWait": {**WAIT, "until": time},
        },
    }
    job = {"metadata": {"uid": "u", "creationTimestamp": NOW}, "spec": {}, "status": status}
    assert known_turn(job, now=NOW, clock=5.0) == JobTurn(passed=3, aside=frozenset("a"), nodes_tries=2)
    facts = facts_of(job)
    assert facts.waits_since == facts.submitted == seconds_between(EPOCH, NOW)
