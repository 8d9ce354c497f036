"""A job whose data is where there is no room for it waits for a place there, where one is expected soon."""

import math
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.data_meeting import LONGEST_WAIT, MeetingInput, data_nodes, weigh_wait
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.data_wait import MOST_WAITING, JobData
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.occupants import Occupant, measured_in
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import Growth, QueuedJob

GPU = "nvidia.com/gpu"
GB = 10**9


def job(name: str, *, pods: int = 1, age: float = 0, passed: int = 0, priority: int = 0) -> QueuedJob:
    return QueuedJob(
        key=("n", name),
        uid=name,
        priority=priority,
        submitted=age,
        data_ready=True,
        passed=passed,
        groups=(PodGroup(count=pods, request={GPU: 1}, nodes=frozenset("abc")),),
    )


def data(
    queued: QueuedJob,
    *,
    size: int = 200 * GB,
    room: Mapping[str, int] | None = None,
    seconds_left: float | None = None,
) -> JobData:
    """Data of this size on node a alone."""
    (group,) = queued.groups
    return JobData(
        nodes=frozenset("a"),
        alongside=(PodGroup(count=group.count, request=group.request, nodes=frozenset("a")),),
        readers=queued.groups,
        scores={"a": 100},
        meets=lambda pods: {
            "pictures": MeetingInput(size=size, held={"a": size}, pods=pods, room=room or {})
        },
        seconds_left=seconds_left,
    )


def turns(
    *jobs: QueuedJob,
    ends_in: float = 60.0,
    free: Mapping[str, int] | None = None,
    data_by_job: Mapping[str, JobData] | None = None,
    takes: int = 1,
) -> Schedule:
    """Nodes a to c, of which a is taken by a job that ends then."""
    runs = Occupant(key=("n", "runs"), uid="runs", priority=0, takes={"a": {GPU: takes}}, ends_in=ends_in)
    amounts = {node: {GPU: count} for node, count in (free or {"a": 0, "b": 1, "c": 1}).items()}
    datas = {queued.uid: data(queued) for queued in jobs} if data_by_job is None else data_by_job
    return schedule(
        waiting=jobs,
        nodes=Nodes(free=amounts, capacity={node: {GPU: 4} for node in "abc"}),
        occupants=[runs],
        max_passes=5,
        data_of=lambda queued: datas.get(queued.uid),
    )


def test_a_job_waits_for_a_place_at_its_data_that_comes_soon() -> None:
    decision = turns(job("train"))
    assert not decision.admitted
    assert decision.awaits_data == {"train"}
    choice = decision.data_waits["train"]
    assert (choice.expected_seconds, choice.nodes) == (60.0, frozenset("a"))
    assert choice.wait_cost < choice.other_cost
    assert 60.0 <= choice.longest_seconds <= LONGEST_WAIT


def test_a_job_starts_at_once_where_waiting_costs_more_or_nobody_knows_when_room_comes() -> None:
    for ends_in in (math.inf, LONGEST_WAIT + 1):
        assert [queued.uid for queued in turns(job("train"), ends_in=ends_in).admitted] == ["train"]
    small = job("train")
    grows = turns(small, data_by_job={"train": data(small, size=GB // 10, room={"b": GB, "c": GB})})
    assert [queued.uid for queued in grows.admitted] == ["train"]


def test_others_use_the_gpus_that_a_job_which_waits_leaves_free() -> None:
    first, second = job("first"), job("second", age=1)
    decision = turns(first, second, data_by_job={"first": data(first)})
    assert [queued.uid for queued in decision.admitted] == ["second"]
    assert decision.awaits_data == {"first"}
    assert decision.passed == {"first": 1}


def test_a_job_goes_to_its_data_once_there_is_room() -> None:
    train = job("train")
    data_by_job = {"train": data(train, seconds_left=30.0)}
    decision = turns(train, free={"a": 1, "b": 1, "c": 1}, data_by_job=data_by_job)
    assert [queued.uid for queued in decision.admitted] == ["train"]


def test_a_wait_ends_at_its_bound_and_when_room_comes_no_more_in_time() -> None:
    train = job("train")
    over = turns(train, ends_in=1.0, data_by_job={"train": data(train, seconds_left=0.0)})
    assert [queued.uid for queued in over.admitted] == ["train"]
    late = turns(train, ends_in=31.0, data_by_job={"train": data(train, seconds_left=30.0)})
    assert [queued.uid for queued in late.admitted] == ["train"]
    assert late.waited_in_vain == {"train"}
    goes_on = turns(train, ends_in=29.0, data_by_job={"train": data(train, seconds_left=30.0)})
    assert goes_on.awaits_data == {"train"}
    assert not goes_on.data_waits  # its end was set when it began


def test_a_job_that_was_passed_too_often_waits_for_its_data_no_longer() -> None:
    train = job("train", passed=5)
    assert [queued.uid for queued in turns(train).admitted] == ["train"]


def test_two_jobs_do_not_wait_for_the_same_place() -> None:
    first, second = job("first"), job("second", age=1)
    decision = turns(first, second)
    assert decision.awaits_data == {"first"}
    assert [queued.uid for queued in decision.admitted] == ["second"]
    roomier = turns(first, second, takes=2)
    assert roomier.awaits_data == {"first", "second"}


def pinned(name: str, *, pods: int) -> QueuedJob:
    """A job of a higher priority whose pods run on node a alone."""
    pinned_job = job(name, pods=pods, priority=10)
    return replace(pinned_job, groups=(replace(pinned_job.groups[0], nodes=frozenset("a")),))


def test_a_job_waits_for_no_room_that_a_job_before_it_in_the_queue_will_take() -> None:
    small = job("small", age=1)
    decision = turns(pinned("large", pods=4), small, takes=4, data_by_job={"small": data(small)})
    assert not decision.awaits_data
    assert [queued.uid for queued in decision.admitted] == ["small"]
    alongside = turns(pinned("large", pods=3), small, takes=4, data_by_job={"small": data(small)})
    assert alongside.awaits_data == {"small"}


def test_a_wait_ends_once_a_job_that_came_before_it_in_the_queue_will_take_the_room() -> None:
    small = job("small", age=1)
    data_by_job = {"small": data(small, seconds_left=100.0)}
    decision = turns(pinned("large", pods=4), small, takes=4, data_by_job=data_by_job)
    assert decision.waited_in_vain == {"small"}
    assert [queued.uid for queued in decision.admitted] == ["small"]


def test_jobs_that_what_comes_is_too_small_for_leave_it_to_a_job_that_waits_for_its_data() -> None:
    small = job("small", age=1)
    decision = turns(job("huge", pods=12, priority=10), small, takes=4, data_by_job={"small": data(small)})
    assert decision.awaits_data == {"small"}


def test_workers_that_an_elastic_job_before_it_asks_for_take_the_room_first() -> None:
    small = job("small", age=1)
    smallest = pinned("grows", pods=1)
    pods = replace(smallest.groups[0], count=4)
    grows = replace(smallest, runs=True, growth=Growth(base=1, pods=pods))
    decision = turns(grows, small, takes=4, data_by_job={"small": data(small)})
    assert not decision.awaits_data
    assert [queued.uid for queued in decision.admitted] == ["small"]


def test_only_so_many_jobs_wait_at_once() -> None:
    jobs = [job(f"{number:02}", age=number) for number in range(MOST_WAITING + 4)]
    decision = turns(*jobs, takes=40, free={"a": 0, "b": 100, "c": 0})
    assert len(decision.awaits_data) == MOST_WAITING
    assert len(decision.admitted) == 4


def test_a_node_that_is_set_aside_for_another_is_no_place_to_wait_for() -> None:
    large = job("large", pods=8, passed=5)
    small = job("small", age=1)
    decision = schedule(
        waiting=[large, small],
        nodes=Nodes(
            free={"a": {GPU: 0}, "b": {GPU: 4}, "c": {GPU: 1}},
            capacity={"a": {GPU: 4}, "b": {GPU: 4}, "c": {GPU: 1}},
        ),
        occupants=[Occupant(key=("n", "runs"), uid="runs", priority=0, takes={"a": {GPU: 4}}, ends_in=60.0)],
        holder="large",
        aside=("a", "b"),
        max_passes=5,
        data_of=lambda queued: data(queued) if queued.uid == "small" else None,
    )
    assert [queued.uid for queued in decision.admitted] == ["small"]


def test_a_job_of_two_datasets_waits_only_where_both_together_are_worth_it() -> None:
    def waits(*sizes: int, seconds: float) -> bool:
        meetings = {
            str(number): MeetingInput(size=size, held={"a": size}, pods={"b": 1})
            for number, size in enumerate(sizes)
        }
        return weigh_wait(meetings, wait_seconds=seconds).waits

    assert not waits(2 * GB, seconds=100.0)
    assert waits(2 * GB, GB, seconds=100.0)


def test_next_to_a_copy_that_is_spread_over_nodes_a_job_reads_the_rest_remotely_all_the_same() -> None:
    """Four nodes have a quarter each: a place there saves a quarter of the remote reads, and no more."""
    spread = dict.fromkeys("abde", 5 * GB)
    away = MeetingInput(size=20 * GB, held=spread, pods={"c": 1})
    whole = MeetingInput(size=20 * GB, held={"a": 20 * GB}, pods={"c": 1})
    assert weigh_wait({"x": whole}, wait_seconds=400.0).waits
    assert not weigh_wait({"x": away}, wait_seconds=400.0).waits
    assert weigh_wait({"x": away}, wait_seconds=100.0).waits


def test_the_nodes_of_the_data_have_nearly_as_much_as_any() -> None:
    spread = MeetingInput(size=20, held={"a": 10, "b": 9, "c": 1}, pods={})
    assert data_nodes([spread]) == {"a", "b"}
    assert data_nodes([MeetingInput(size=20, held={}, pods={})]) == frozenset()


def test_what_jobs_of_a_template_ran_says_when_one_ends_until_it_has_run_for_longer() -> None:
    assert measured_in(started=100.0, ran=60.0, grace=30.0, now=110.0) == 80.0
    assert measured_in(started=100.0, ran=60.0, now=170.0) == math.inf
    assert measured_in(started=100.0, ran=None, now=110.0) == math.inf


@given(
    sizes=st.lists(st.integers(1, 10**12), min_size=1, max_size=3),
    held=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10**12)),
    pods=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4), min_size=1),
    seconds=st.floats(0, 1e5),
)
def test_no_job_waits_longer_than_another_way_costs_it(
    sizes: list[int], held: dict[str, int], pods: dict[str, int], seconds: float
) -> None:
    waits = weigh_wait(
        {str(number): MeetingInput(size=size, held=held, pods=pods) for number, size in enumerate(sizes)},
        wait_seconds=seconds,
    )
    assert 0 <= waits.longest_seconds <= min(waits.other_cost, LONGEST_WAIT)
    assert not waits.waits or waits.wait_cost <= waits.other_cost * (1 + 1e-9)
