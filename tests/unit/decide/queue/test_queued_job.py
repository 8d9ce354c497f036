"""A job in the queue: what it asks for, and its place."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.queue.test_gang_turn import job

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.copy_places import PlaceRequest
from tdcs.decide.queue.namespace_quota import QuotaCharge
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queued_job import Growth, QueuedJob, Shortage

SHORT = Shortage(reason=Reason.QUOTA, message="no quota")


def growth(count: int = 3, **more: Any) -> Growth:
    return Growth(base=2, pods=PodGroup(count=count, request={GPU_RESOURCE: 2}), **more)


def test_a_job_asks_for_all_its_pods_together() -> None:
    assert job("a", 4, 2, 2).asks == {GPU_RESOURCE: 8}
    assert job("a").asks == {}


@pytest.mark.parametrize("changes", [{"data_ready": False}, {"possible": False}])
def test_a_job_that_cannot_start_asks_for_nothing(changes: dict[str, bool]) -> None:
    waiting = replace(job("a", 4), **changes)  # type: ignore[arg-type]
    assert waiting.asks == {}
    assert not waiting.ready


def test_a_job_without_quota_asks_for_room_and_is_not_ready() -> None:
    waiting = replace(job("a", 4), short=SHORT)
    assert waiting.asks == {GPU_RESOURCE: 4}
    assert not waiting.ready
    assert job("a", 4).ready


def test_a_job_that_runs_asks_only_for_its_further_workers() -> None:
    assert replace(job("a", 4), growth=growth(3), runs=True).asks == {GPU_RESOURCE: 6}
    assert replace(job("a", 4), growth=growth(3)).asks == {GPU_RESOURCE: 4}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"turn": 0, "priority": 1}, {"turn": 1, "priority": 9}, id="the share before priority"),
        pytest.param({"priority": 2}, {"priority": 1, "submitted": -9.0}, id="priority before age"),
        pytest.param({"submitted": 5.0}, {"runs": True, "submitted": 1.0}, id="a start before a growth"),
        pytest.param({"submitted": 1.0}, {"submitted": 2.0}, id="age"),
        pytest.param({"key": ("z", "a")}, {"key": ("b", "b")}, id="the name where the age is equal"),
        pytest.param({"key": ("b", "a")}, {"key": ("z", "a")}, id="then the namespace"),
        pytest.param(
            {"key": ("n", "z"), "submitted": 9.0, "stands_as": (1.0, "a")},
            {"key": ("n", "b"), "submitted": 2.0},
            id="a job that was moved stands as its place says",
        ),
    ],
)
def test_the_queue_is_sorted_by(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert replace(job("x", 1), **first).order < replace(job("x", 1), **second).order


def test_a_long_wait_raises_the_place_and_not_the_class() -> None:
    aged = replace(job("a", 1, priority=9), own_priority=0)
    assert (aged.class_priority, aged.order[1]) == (0, -9)
    assert job("a", 1, priority=9).class_priority == 9


def test_a_job_takes_of_its_namespaces_share_unless_several_share_one() -> None:
    assert job("a", 1).owner == "team"
    assert replace(job("a", 1), share="research").owner == "research"


def test_gpus_are_scarce_where_any_pod_has_them_and_cpu_elsewhere() -> None:
    servers = PodGroup(count=2, request={"cpu": 500, GPU_RESOURCE: 0})
    mixed = replace(job("a", 4), groups=(servers, *job("a", 4).groups))
    assert (mixed.scarce, mixed.pods, mixed.pod_count) == (GPU_RESOURCE, [0, 0, 4], 3)
    plain = replace(job("a"), groups=(servers,))
    assert (plain.scarce, plain.pods) == ("cpu", [500, 500])


def test_demands_are_equal_where_pods_need_the_same_on_the_same_nodes() -> None:
    group = PodGroup(count=2, request={"cpu": 1, GPU_RESOURCE: 2})
    reordered = PodGroup(count=2, request={GPU_RESOURCE: 2, "cpu": 1}, nowhere="elsewhere")
    pinned = replace(group, nodes=frozenset("a"))

    def demand(*groups: PodGroup) -> object:
        return replace(job("a"), groups=groups).demand_key

    assert demand(group) == demand(reordered)
    assert len({demand(group), demand(pinned), demand(replace(group, count=3)), demand()}) == 4


@pytest.mark.parametrize("waiting", [job("a", 1), replace(job("a", 1), growth=growth(0))])
def test_a_job_that_wants_no_further_worker_does_not_grow(waiting: QueuedJob) -> None:
    assert waiting.growing() is None


def test_a_job_that_started_queues_for_one_worker_at_a_time_with_a_clean_record() -> None:
    charge = QuotaCharge(quota="team", takes={GPU_RESOURCE: 2})
    starting = replace(
        job("a", 2, 2, passed=7, ready=False),
        growth=growth(3, charges=(charge,)),
        access=(PlaceRequest(dataset="team/m", limit=1),),
        short=SHORT,
        turn=1,
        growth_turn=4,
    )
    growing = starting.growing()
    assert growing is not None
    assert (growing.runs, growing.pods, growing.passed, growing.short, growing.access) == (
        True,
        [2],
        0,
        None,
        (),
    )
    assert (growing.charges, growing.turn, growing.data_ready) == ((charge,), 4, True)
    assert growing.asks == {GPU_RESOURCE: 6}
