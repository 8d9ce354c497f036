"""Where a job and its data meet: by the least cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.data_meeting import MeetingInput, Way, expected_nodes, has_met, weigh
from tdcs.decide.place.gang_fit import PodGroup

MB, GB = 10**6, 10**9
GPU = "nvidia.com/gpu"


def test_a_small_dataset_grows_onto_the_nodes_of_a_job_that_its_own_node_has_no_room_for() -> None:
    meeting = weigh(MeetingInput(size=55 * MB, held={"a": 55 * MB}, pods={"b": 1}, room={"b": 10 * GB}))
    assert meeting.way is Way.GROW
    assert meeting.missing_bytes == 55 * MB
    assert meeting.costs[Way.GROW] <= meeting.costs[Way.REMOTE]
    assert meeting.expected_seconds is not None
    assert meeting.expected_seconds < 10


@pytest.mark.parametrize(
    ("held", "pods"),
    [
        ({"a": GB}, {"a": 2}),
        ({"a": GB // 2, "b": GB // 2}, {"a": 1, "b": 1}),  # no node has more of it
        ({}, {}),
    ],
)
def test_nothing_is_moved_for_a_job_that_is_as_near_as_it_can_be(
    held: dict[str, int], pods: dict[str, int]
) -> None:
    room = dict.fromkeys("ab", 10 * GB)
    assert weigh(MeetingInput(size=GB, held=held, pods=pods, room=room)).way is Way.NEAR


def test_where_the_cache_has_no_room_or_the_spec_fixes_the_nodes_the_job_reads_remotely() -> None:
    away = MeetingInput(size=GB, held={"a": GB}, pods={"b": 1, "c": 1}, room={"b": GB - 1})
    meeting = weigh(away)
    assert (meeting.way, meeting.without_room) == (Way.REMOTE, ("b", "c"))
    fixed = MeetingInput(size=GB, held={"a": GB}, pods={"b": 1}, room={"b": GB}, grows=False)
    assert Way.GROW not in weigh(fixed).costs


def test_a_copy_grows_where_there_is_room_and_the_other_pods_read_remotely() -> None:
    meeting = weigh(MeetingInput(size=GB, held={"a": GB}, pods={"b": 1, "c": 1}, room={"b": 2 * GB}))
    assert (meeting.way, meeting.missing_bytes, meeting.without_room) == (Way.GROW, GB, ("c",))


def test_nothing_is_moved_for_a_job_that_ends_before_it_would_arrive() -> None:
    def way(run: float) -> Way:
        inputs = MeetingInput(size=GB, held={"a": GB}, pods={"b": 1}, room={"b": GB}, run_seconds=run)
        return weigh(inputs).way

    assert (way(5.0), way(600.0)) == (Way.REMOTE, Way.GROW)


def test_a_short_wait_is_taken_and_a_long_one_is_not() -> None:
    def way(wait: float) -> Way:
        inputs = MeetingInput(
            size=100 * GB, held={"a": 100 * GB}, pods={"b": 1}, room={"b": 200 * GB}, wait_seconds=wait
        )
        return weigh(inputs).way

    assert way(20.0) is Way.WAIT
    assert way(3600.0) is Way.GROW


def test_what_was_measured_of_the_peers_decides_between_waiting_and_growing() -> None:
    def way(rate: float) -> Way:
        inputs = MeetingInput(
            size=100 * GB,
            held={"a": 100 * GB},
            pods={"b": 1},
            room={"b": 200 * GB},
            peer_rate=rate,
            wait_seconds=120.0,
        )
        return weigh(inputs).way

    assert way(1.2e9) is Way.GROW
    assert way(50e6) is Way.WAIT


@given(
    size=st.integers(1, 10**13),
    held=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10**13)),
    pods=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 8), min_size=1),
    room=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10**13)),
    run=st.none() | st.floats(1, 1e7),
    wait=st.none() | st.floats(0, 1e7),
)
def test_the_cheapest_way_is_chosen_and_no_more_travels_than_the_nodes_lack(
    size: int,
    held: dict[str, int],
    pods: dict[str, int],
    room: dict[str, int],
    run: float | None,
    wait: float | None,
) -> None:
    meeting = weigh(
        MeetingInput(size=size, held=held, pods=pods, room=room, run_seconds=run, wait_seconds=wait)
    )
    assert meeting.costs[meeting.way] == min(meeting.costs.values())
    assert all(cost >= 0 for cost in meeting.costs.values())
    assert meeting.missing_bytes <= sum(max(size - held.get(node, 0), 0) for node in pods)
    if meeting.way is Way.GROW:
        assert any(room.get(node, 0) >= size for node in pods)


def test_a_copy_has_arrived_when_all_nodes_have_it() -> None:
    assert has_met(size=GB, held={"a": GB, "b": GB}, nodes=["a", "b"])
    assert not has_met(size=GB, held={"a": GB, "b": GB // 2}, nodes=["a", "b"])


def test_pods_are_expected_where_the_score_is_best_then_on_the_fullest_node() -> None:
    free = {"data": {GPU: 1}, "half": {GPU: 2}, "empty": {GPU: 8}, "closed": {GPU: 8}}
    nodes = frozenset({"data", "half", "empty"})
    group = PodGroup(count=4, request={GPU: 1}, nodes=nodes)
    pods_by_node = expected_nodes(groups=[group], free=free, scores={"data": 10}, scarce=GPU)
    assert pods_by_node == {"data": 1, "half": 2, "empty": 1}
    assert free["data"] == {GPU: 1}
    large = PodGroup(count=9, request={GPU: 8}, nodes=nodes)
    assert expected_nodes(groups=[large], free=free, scores={}, scarce=GPU) == {"empty": 1}
