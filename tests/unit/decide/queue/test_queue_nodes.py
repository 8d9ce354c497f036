"""Jobs that would fit on empty nodes."""

from dataclasses import replace

from tests.unit.decide.queue.test_gang_turn import job

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.queue_nodes import KNOWN_DEMANDS, EmptyNodes

TWO_NODES = {"a": {GPU_RESOURCE: 8}, "b": {GPU_RESOURCE: 4}}


def test_a_job_fits_when_all_its_pods_do_at_once() -> None:
    empty = EmptyNodes()
    assert empty.holds(job("fits", 8, 4), TWO_NODES)
    assert not empty.holds(job("one pod too large", 9), TWO_NODES)
    assert not empty.holds(job("too many pods", 8, 4, 1), TWO_NODES)
    assert empty.holds(job("no pods"), TWO_NODES)


def test_no_job_takes_room_from_the_next_one() -> None:
    empty = EmptyNodes()
    assert all(empty.holds(job(name, 8, 4), TWO_NODES) for name in "abc")


def test_without_nodes_nothing_fits_and_there_is_nothing() -> None:
    assert not EmptyNodes().holds(job("a", 1), {})
    assert EmptyNodes().total({}) == {}


def test_the_total_adds_up_all_nodes() -> None:
    assert EmptyNodes().total({**TWO_NODES, "c": {"cpu": 500}}) == {GPU_RESOURCE: 12, "cpu": 500}


def test_answers_stay_right_when_more_demands_come_than_are_remembered() -> None:
    empty, large = EmptyNodes(), job("large", 9)
    assert not empty.holds(large, TWO_NODES)
    for count in range(KNOWN_DEMANDS):
        demand = PodGroup(count=1, request={GPU_RESOURCE: 1, "cpu": -count})
        assert empty.holds(replace(large, groups=(demand,)), TWO_NODES)
    assert not empty.holds(large, TWO_NODES)
