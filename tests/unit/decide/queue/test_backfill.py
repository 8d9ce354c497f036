"""A job whose deadline shows that it ends in time runs on nodes that are set aside; another one does not."""

import math

import pytest

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.occupants import Occupant
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queued_job import QueuedJob

GPU = "nvidia.com/gpu"
PASSED = 5


def job(
    name: str, *, pods: int, age: float, passed: int = 0, lasts: float = math.inf, priority: int = 0
) -> QueuedJob:
    return QueuedJob(
        key=("n", name),
        uid=name,
        priority=priority,
        submitted=age,
        data_ready=True,
        passed=passed,
        lasts=lasts,
        groups=(PodGroup(count=pods, request={GPU: 1}, nodes=None),),
    )


LARGE = job("large", pods=8, age=0, passed=PASSED)


def admitted(*jobs: QueuedJob, ends_in: float, holder: str = "large") -> list[str]:
    """Two nodes of four GPUs: on `b` somebody runs for `ends_in` seconds, and both are set aside for `large`."""
    runs = Occupant(key=("n", "runs"), uid="runs", priority=0, takes={"b": {GPU: 4}}, ends_in=ends_in)
    decision = schedule(
        waiting=[LARGE, *jobs],
        nodes=Nodes(free={"a": {GPU: 4}, "b": {GPU: 0}}, capacity={"a": {GPU: 4}, "b": {GPU: 4}}),
        holder=holder,
        aside=("a", "b") if holder else (),
        max_passes=PASSED,
        occupants=[runs],
    )
    assert decision.holder == "large"
    return [entry.uid for entry in decision.admitted]


@pytest.mark.parametrize("holder", ["large", ""])
def test_a_job_that_ends_before_the_room_comes_runs_on_nodes_that_are_set_aside(holder: str) -> None:
    short, long = job("short", pods=2, age=1, lasts=600), job("long", pods=2, age=1, lasts=4000)
    assert admitted(long, short, ends_in=3600, holder=holder) == ["short"]


def test_without_a_deadline_nobody_knows_and_nobody_runs_there() -> None:
    assert admitted(job("unknown", pods=1, age=1), ends_in=3600) == []
    assert admitted(job("short", pods=1, age=1, lasts=600), ends_in=math.inf) == []


def test_what_ends_in_time_takes_no_more_than_is_free() -> None:
    many = [job(f"short{number}", pods=3, age=1 + number, lasts=60) for number in range(3)]
    assert admitted(*many, ends_in=3600) == ["short0"]


def test_nothing_fills_the_nodes_that_victims_are_about_to_leave() -> None:
    occupants = [
        Occupant(key=("", ""), uid="", priority=0, takes={"b": {GPU: 4}}, leaves=True),
        Occupant(key=("n", "runs"), uid="runs", priority=0, takes={"c": {GPU: 4}}, ends_in=100_000.0),
    ]
    decision = schedule(
        waiting=[LARGE, job("short", pods=2, age=1, lasts=600)],
        nodes=Nodes(
            free={"a": {GPU: 4}, "b": {GPU: 0}, "c": {GPU: 0}}, capacity={name: {GPU: 4} for name in "abc"}
        ),
        holder="large",
        aside=("a", "b"),
        max_passes=PASSED,
        occupants=occupants,
    )
    assert decision.holder == "large"
    assert not decision.admitted
