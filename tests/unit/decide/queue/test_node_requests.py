"""Which jobs ask for nodes, and whose the nodes are that come."""

from dataclasses import replace
from typing import Any

import pytest

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.node_requests import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    RequestState,
    answer_of,
    askers,
    pause_after,
    without_nodes_of_others,
)
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queued_job import Growth, QueuedJob

GPU = "nvidia.com/gpu"


def waits(name: str, *, pods: int = 4, nodes: frozenset[str] | None = None, **more: Any) -> QueuedJob:
    return QueuedJob(
        key=("n", name),
        uid=name,
        priority=0,
        submitted=more.pop("submitted", 0),
        data_ready=more.pop("data_ready", True),
        passed=0,
        groups=(PodGroup(count=pods, request={GPU: 1}, nodes=nodes),),
        **more,
    )


def usable(pods: PodGroup) -> list[str]:
    return sorted(pods.nodes or ())


def asking(*jobs: QueuedJob, free: int = 1, resting: set[str] | None = None) -> list[str]:
    nodes = {"x": {GPU: free}} if free else {}
    decision = schedule(waiting=jobs, nodes=Nodes(free=nodes, capacity=nodes))
    return [job.uid for job in askers(decision, resting=resting or set())]


def test_those_ask_that_lack_room_alone() -> None:
    assert asking(waits("a"), waits("b", data_ready=False), waits("c", pauses=True), waits("d", pods=1)) == [
        "a"
    ]
    assert asking(waits("a"), waits("b"), resting={"a"}) == ["b"]
    without_gang = replace(waits("free"), groups=())
    assert asking(without_gang, free=0) == []


def test_on_a_cluster_without_nodes_the_first_jobs_ask() -> None:
    assert asking(*(waits(f"j{number:02}", pods=1) for number in range(20)), free=0) == [
        f"j{number:02}" for number in range(8)
    ]


def test_nodes_that_came_since_a_job_asked_are_left_to_it() -> None:
    jobs = [waits("large"), waits("small", pods=1), waits("picky", nodes=frozenset({"old"}))]
    grows = Growth(base=1, pods=PodGroup(count=1, request={GPU: 1}, nodes=None))
    jobs.append(replace(waits("elastic"), growth=grows))
    created = {"old": "2026-01-01T00:00:00Z", "new": "2026-01-01T00:02:00Z"}
    jobs_left = without_nodes_of_others(jobs, asking={"large": "2026-01-01T00:01:00Z"}, created=created)
    assert [usable(job.groups[0]) for job in jobs_left] == [["new", "old"], ["old"], ["old"], ["old"]]
    assert jobs_left[3].growth is not None
    assert usable(jobs_left[3].growth.pods) == ["old"]
    unchanged = without_nodes_of_others(jobs, asking={"large": "2026-01-01T00:03:00Z"}, created=created)
    assert unchanged == jobs


def test_a_node_that_a_job_cannot_use_is_not_kept_for_it() -> None:
    jobs = [waits("large", nodes=frozenset({"gpu"})), waits("small", pods=1)]
    since, later = "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
    jobs_left = without_nodes_of_others(jobs, asking={"large": since}, created={"cpu": later, "gpu": later})
    assert usable(jobs_left[1].groups[0]) == ["cpu"]


def test_who_asked_first_has_the_nodes_and_one_that_asked_later_waits_for_the_next() -> None:
    jobs = [waits("second"), waits("first")]
    asked_at = {"second": "2026-01-01T00:02:00Z", "first": "2026-01-01T00:01:00Z"}
    jobs_left = without_nodes_of_others(jobs, asking=asked_at, created={"x": "2026-01-01T00:03:00Z"})
    assert [usable(job.groups[0]) for job in jobs_left] == [[], ["x"]]


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], RequestState.REQUESTED),
        ([("Accepted", "False")], RequestState.REQUESTED),
        ([("Accepted", "True"), ("Provisioned", "False")], RequestState.ACCEPTED),
        ([("Accepted", "True"), ("Provisioned", "True")], RequestState.PROVISIONED),
        ([("Provisioned", "True"), ("Failed", "True")], RequestState.FAILED),
        ([("Provisioned", "True"), ("BookingExpired", "True")], RequestState.EXPIRED),
        ([("Provisioned", "True"), ("CapacityRevoked", "True")], RequestState.REVOKED),
        ([("Failed", "False"), ("Provisioned", "Unknown")], RequestState.REQUESTED),
    ],
)
def test_the_worst_condition_of_a_request_counts(
    conditions: list[tuple[str, str]], state: RequestState
) -> None:
    reported = [{"type": kind, "status": status, "message": kind} for kind, status in conditions]
    assert answer_of({"status": {"conditions": reported}}).state is state


def test_pauses_between_requests_grow_and_are_bounded() -> None:
    assert [pause_after(tries) for tries in (1, 2, 3)] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pause_after(10_000) == LONGEST_PAUSE
