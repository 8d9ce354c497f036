"""A more important job takes the place of as few running ones as will do, and never for less than that costs."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue import preemption as preemption_module
from tdcs.decide.queue.fair_share import Shares
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.job_order import aged
from tdcs.decide.queue.occupants import LONGEST_WAIT, Occupant, deleted_pods, ends_in, seconds_until_room
from tdcs.decide.queue.preemption import before_those_they_can_end, can_end, fewest
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.decide.queue.wait_message import waiting_admission

GPU = "nvidia.com/gpu"


def waits(
    name: str = "urgent", *, pods: int = 1, gpus: int = 1, priority: int = 100, **more: Any
) -> QueuedJob:
    return QueuedJob(
        key=("n", name),
        uid=name,
        priority=priority,
        submitted=0,
        data_ready=True,
        passed=more.pop("passed", 0),
        may_preempt=more.pop("may_preempt", True),
        groups=(PodGroup(count=pods, request={GPU: gpus}, nodes=None),),
        **more,
    )


def runs(name: str, *, on: dict[str, int], priority: int = 0, started: float = 0, **more: Any) -> Occupant:
    takes = {node: {GPU: gpus} for node, gpus in on.items()}
    return Occupant(key=("n", name), uid=name, priority=priority, takes=takes, started=started, **more)


def queue(*jobs: QueuedJob, nodes: dict[str, int], occupants: list[Occupant], **more: Any) -> Schedule:
    used = {node: sum(occupant.takes.get(node, {}).get(GPU, 0) for occupant in occupants) for node in nodes}
    return schedule(
        waiting=jobs,
        nodes=Nodes(
            free={node: {GPU: gpus - used[node]} for node, gpus in nodes.items()},
            capacity={node: {GPU: gpus} for node, gpus in nodes.items()},
        ),
        occupants=occupants,
        preempts=True,
        **more,
    )


def victims(*jobs: QueuedJob, nodes: dict[str, int], occupants: list[Occupant], **more: Any) -> list[str]:
    return list(queue(*jobs, nodes=nodes, occupants=occupants, **more).victims)


def test_one_large_job_gives_way_rather_than_two_small_ones() -> None:
    occupants = [runs("a", on={"x": 2}, started=9), runs("b", on={"x": 2}, started=8), runs("c", on={"y": 4})]
    assert victims(waits(gpus=4), nodes={"x": 4, "y": 4}, occupants=occupants) == ["c"]


def test_of_equal_ones_the_least_important_and_then_the_youngest_gives_way() -> None:
    occupants = [
        runs("old", on={"x": 1}, started=1),
        runs("young", on={"x": 1}, started=5),
        runs("more", on={"x": 1}, priority=50, started=9),
    ]
    assert victims(waits(), nodes={"x": 3}, occupants=occupants) == ["young"]
    assert victims(waits(pods=2), nodes={"x": 3}, occupants=occupants) == ["young", "old"]


def test_nobody_gives_way_to_a_job_of_its_own_priority_or_one_whose_class_does_not_say_so() -> None:
    occupants = [runs("a", on={"x": 1}, priority=100)]
    assert victims(waits(), nodes={"x": 1}, occupants=occupants) == []
    occupants = [runs("a", on={"x": 1})]
    assert victims(waits(may_preempt=False), nodes={"x": 1}, occupants=occupants) == []
    assert victims(waits(), nodes={"x": 1}, occupants=occupants) == ["a"]


def test_nobody_gives_way_where_that_would_not_be_enough() -> None:
    occupants = [runs("a", on={"x": 2}), runs("kept", on={"y": 2}, priority=500)]
    assert victims(waits(gpus=4), nodes={"x": 2, "y": 2}, occupants=occupants) == []


def test_nobody_gives_way_for_less_than_its_data_costs_to_load_again() -> None:
    ends = runs("a", on={"x": 1}, ends_in=60.0, reload_seconds=300)
    assert victims(waits(), nodes={"x": 1}, occupants=[ends]) == []
    long = runs("a", on={"x": 1}, ends_in=3000.0, reload_seconds=300)
    assert victims(waits(), nodes={"x": 1}, occupants=[long]) == ["a"]
    unknown = runs("a", on={"x": 1}, reload_seconds=300)
    assert victims(waits(), nodes={"x": 1}, occupants=[unknown]) == ["a"]


def test_while_pods_end_that_are_enough_nobody_else_gives_way_and_their_nodes_are_set_aside() -> None:
    occupants = [runs("a", on={"x": 1}, leaves=True), runs("b", on={"y": 1})]
    after = queue(waits(), nodes={"x": 1, "y": 1}, occupants=occupants)
    assert (after.victims, after.holder, after.aside) == ({}, "urgent", frozenset("x"))


def test_nodes_of_victims_are_set_aside_and_each_victim_is_given_the_preemptors_name() -> None:
    occupants = [runs("a", on={"x": 1})]
    after = queue(waits(), nodes={"x": 1}, occupants=occupants)
    assert (after.holder, after.aside) == ("urgent", frozenset("x"))
    assert set(after.preemptors.values()) == {"n/urgent"}
    assert after.victims["a"].startswith("n/urgent took its place, which has priority 100 (this job has 0)")


def test_nodes_that_are_set_aside_for_a_job_as_important_are_not_taken_by_preemption() -> None:
    occupants = [runs("a", on={"x": 1}), runs("b", on={"y": 1})]
    first = waits("first", pods=2, may_preempt=False, passed=64)
    assert victims(first, waits(), nodes={"x": 1, "y": 1}, occupants=occupants) == []
    lesser = waits("first", pods=2, priority=5, may_preempt=False, passed=64)
    assert victims(lesser, waits(), nodes={"x": 1, "y": 1}, occupants=occupants) == ["b"]


def test_a_deadline_says_when_room_comes() -> None:
    assert ends_in(started=100.0, deadline=50, grace=10, now=120.0) == 40.0
    assert ends_in(started=None, deadline=50, grace=10, now=120.0) == 60.0
    assert ends_in(started=100.0, deadline=50, now=1e6) == 0.0
    assert math.isinf(ends_in(started=100.0, deadline=None, now=120.0))
    room = RoomTable({"x": {GPU: 0}, "y": {GPU: 0}})
    group = [PodGroup(count=2, request={GPU: 1}, nodes=None)]
    occupants = [runs("a", on={"x": 1}, ends_in=30.0), runs("b", on={"y": 1}, ends_in=70.0)]
    assert seconds_until_room(room=room, groups=group, scarce=GPU, occupants=occupants) == 70.0
    assert math.isinf(seconds_until_room(room=room, groups=group, scarce=GPU, occupants=occupants[:1]))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_no_smaller_set_would_do(jobs: list[tuple[int, int, int]], pods: int, gpus: int) -> None:
    nodes = {f"n{number}": sum(size for node, size, _ in jobs if node == number) for number in range(3)}
    occupants = [
        runs(f"j{number}", on={f"n{node}": size}, priority=level, started=number)
        for number, (node, size, level) in enumerate(jobs)
    ]
    decision = queue(waits(pods=pods, gpus=gpus), nodes=nodes, occupants=occupants)
    chosen = tuple(occupant for occupant in occupants if occupant.uid in decision.victims)

    def enough(subset: tuple[Occupant, ...]) -> bool:
        places = {
            node: sum(occupant.takes.get(node, {}).get(GPU, 0) for occupant in subset) // gpus
            for node in nodes
        }
        return sum(places.values()) >= pods

    sets = (
        subset
        for count in range(1, len(occupants) + 1)
        for subset in itertools.combinations(occupants, count)
    )
    best = next((subset for subset in sets if enough(subset)), None)
    if best is None:
        assert not chosen
        return
    assert enough(chosen)
    assert len(chosen) == len(best)


def test_with_too_many_sets_to_try_none_of_those_chosen_can_be_spared() -> None:
    candidates = [runs(f"j{number:03}", on={"x": 1 + number % 3}) for number in range(200)]

    def size(occupant: Occupant) -> int:
        return occupant.takes["x"][GPU]

    def enough(subset: Any) -> bool:
        return sum(map(size, subset)) >= 100

    chosen = fewest(candidates, enough=enough, weight=size, looks=50)
    assert chosen is not None
    assert enough(chosen)
    for victim in chosen:
        assert not enough([occupant for occupant in chosen if occupant is not victim])
    assert len(chosen) <= 35


def test_a_victim_of_another_namespace_hears_no_name() -> None:
    occupants = [replace(runs("a", on={"x": 4}), key=("other", "a")), runs("b", on={"y": 4})]
    decision = queue(waits(pods=2, gpus=4), nodes={"x": 4, "y": 4}, occupants=occupants)
    assert decision.preemptors == {"a": "a job of another namespace", "b": "n/urgent"}
    assert decision.victims["a"].startswith("a job of another namespace took its place")
    assert "urgent" not in decision.victims["a"]


def test_jobs_that_ask_the_same_are_looked_at_once_where_nobody_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[float] = []

    def noted(**arguments: Any) -> float:
        answers.append(seconds_until_room(**arguments))
        return answers[-1]

    monkeypatch.setattr(preemption_module, "seconds_until_room", noted)
    many = [waits(f"w{number}", gpus=4) for number in range(50)]
    low = [runs("low", on={"x": 4}, ends_in=10.0, reload_seconds=20.0)]  # it ends before it could give way
    assert not victims(*many, nodes={"x": 4}, occupants=low)
    assert len(answers) == 1
    equal_priority = [runs("same", on={"x": 4}, priority=100)]
    answers.clear()
    assert not victims(*many, nodes={"x": 4}, occupants=equal_priority)
    assert not answers


def waits_elsewhere(name: str, **more: Any) -> QueuedJob:
    """A job of another namespace, which may preempt nobody."""
    return replace(waits(name, may_preempt=False, **more), key=("other", name))


def test_a_team_with_a_smaller_share_gets_no_place_that_it_would_lose_at_once() -> None:
    shares = Shares(used={"n": {GPU: 1}, "other": {}})
    decision = queue(
        waits(), waits_elsewhere("small", priority=0), nodes={"x": 1, "y": 0}, occupants=[], shares=shares
    )
    assert [job.uid for job in decision.admitted] == ["urgent"]
    as_important = waits_elsewhere("small", priority=100)
    decision = queue(waits(), as_important, nodes={"x": 1, "y": 0}, occupants=[], shares=shares)
    assert [job.uid for job in decision.admitted] == ["small"]


def test_a_job_that_has_waited_long_gets_no_place_that_it_would_lose_at_once() -> None:
    unready = replace(waits("unready", priority=200, may_preempt=False), data_ready=False)
    old = waits_elsewhere("old", priority=0, waited=2 * 86400.0)
    jobs = aged([unready, waits(), old], period=86400.0)
    decision = queue(*jobs, nodes={"x": 1}, occupants=[])
    assert [job.uid for job in decision.admitted] == ["urgent"]
    # Nor does it use the nodes that others leave for the important one.
    ending = [runs("low", on={"y": 1}, leaves=True)]
    jobs = aged([unready, waits(pods=2), old], period=86400.0)
    decision = queue(*jobs, nodes={"x": 1, "y": 1}, occupants=ending)
    assert ([job.uid for job in decision.admitted], decision.aside) == ([], frozenset("xy"))


def test_what_a_preempting_job_finds_free_is_not_given_to_those_behind_it() -> None:
    low = waits_elsewhere("low", priority=0)
    decision = queue(waits(pods=2), low, nodes={"x": 1, "y": 1}, occupants=[runs("victim", on={"y": 1})])
    assert (set(decision.victims), decision.admitted) == ({"victim"}, ())


def test_pods_count_as_leaving_for_ten_minutes_and_when_they_have_ten_minutes_left() -> None:
    year = 365 * 86400.0
    asked_now = deleted_pods({"x": {GPU: 1}}, gone_in=year, grace=year)
    asked_long_ago = deleted_pods({"x": {GPU: 1}}, gone_in=year - LONGEST_WAIT - 1, grace=year)
    soon = deleted_pods({"x": {GPU: 1}}, gone_in=30.0, grace=year)
    stuck = deleted_pods({"x": {GPU: 1}}, gone_in=-86400.0)
    assert [occupant.leaves for occupant in (asked_now, asked_long_ago, soon, stuck)] == [
        True,
        False,
        True,
        False,
    ]
    assert [occupant.lingers for occupant in (asked_now, asked_long_ago, soon, stuck)] == [
        False,
        True,
        False,
        False,
    ]
    for held in (asked_long_ago, stuck):
        occupants = [held, runs("victim", on={"y": 1})]
        assert victims(waits(), nodes={"x": 1, "y": 1}, occupants=occupants) == ["victim"]
    for held in (asked_now, soon):
        assert victims(waits(), nodes={"x": 1, "y": 1}, occupants=[held, runs("victim", on={"y": 1})]) == []


def test_the_clock_alone_ends_the_wait_for_pods_and_begins_it_again() -> None:
    grace, at = 3600.0, 0.0
    looks: list[tuple[float, bool]] = []
    while math.isfinite(at) and len(looks) < 9:
        pods = deleted_pods({"x": {GPU: 1}}, gone_in=grace - at, grace=grace)
        looks.append((at, pods.leaves))
        at += pods.changes_in + 1
    assert looks == [(0.0, True), (601.0, False), (3001.0, True), (4201.0, False)]


def test_a_job_with_an_hour_of_grace_is_preempted_only_if_no_other_of_its_priority_is_enough() -> None:
    hour = runs("hour", on={"x": 1}, grace=3600.0, started=9)
    assert victims(waits(), nodes={"x": 1}, occupants=[hour]) == ["hour"]
    assert victims(waits(), nodes={"x": 1, "y": 1}, occupants=[hour, runs("quick", on={"y": 1})]) == ["quick"]
    more = runs("more", on={"y": 1}, priority=50)
    assert victims(waits(), nodes={"x": 1, "y": 1}, occupants=[hour, more]) == ["hour"]


def test_while_a_victim_takes_its_hour_no_second_one_is_ended_that_may_take_as_long() -> None:
    nodes = {"x": 1, "y": 1, "z": 1}
    hour, quick = runs("hour", on={"y": 1}, grace=3600.0), runs("quick", on={"z": 1})

    def ending(*, since: float) -> Occupant:
        gone_by = "2026-01-01T01:00:00Z"
        return deleted_pods({"x": {GPU: 1}}, gone_in=3600.0 - since, grace=3600.0, gone_by=gone_by)

    # For ten minutes what it takes is set aside, and the job says until when that may last.
    at_first = queue(waits(), nodes=nodes, occupants=[ending(since=60.0), hour, quick])
    assert (dict(at_first.victims), at_first.holder, at_first.aside) == ({}, "urgent", frozenset("x"))
    message = waiting_admission(at_first, "urgent").message
    assert "pods are being ended that leave it room, by 2026-01-01T01:00:00Z at the latest" in message
    # Then it takes the place of one whose pods end soon, and of none that may take as long.
    assert victims(waits(), nodes=nodes, occupants=[ending(since=900.0), hour, quick]) == ["quick"]
    later = queue(
        waits(), nodes=nodes, occupants=[ending(since=900.0), hour, runs("z", on={"z": 1}, priority=200)]
    )
    assert (dict(later.victims), later.aside) == ({}, frozenset())
    message = waiting_admission(later, "urgent").message
    assert "pods that are being ended have until 2026-01-01T01:00:00Z, by their termination" in message
    # When its end is near it is waited for again.
    at_last = queue(waits(), nodes=nodes, occupants=[ending(since=3300.0), hour, quick])
    assert (dict(at_last.victims), at_last.aside) == ({}, frozenset("x"))


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.booleans()), max_size=8),
)
def test_none_comes_before_one_that_would_end_it_and_the_rest_keep_their_order(
    given_jobs: list[tuple[str, int, bool]],
) -> None:
    jobs = [
        replace(waits(f"j{number}", priority=priority, may_preempt=able), key=(owner, f"j{number}"))
        for number, (owner, priority, able) in enumerate(given_jobs)
    ]
    reordered = before_those_they_can_end(jobs)
    assert sorted(job.uid for job in reordered) == sorted(job.uid for job in jobs)
    for place, job in enumerate(reordered):
        assert not any(can_end(later, job) for later in reordered[place:])
    unable = [job for job in jobs if not job.may_preempt]
    assert [job for job in reordered if not job.may_preempt] == unable


def test_what_is_kept_for_pods_without_a_node_is_left_with_what_the_others_take() -> None:
    pods = (PodGroup(count=2, request={GPU: 1}, nodes=frozenset("x")),)
    partly, whole = runs("partly", on={"x": 2}, reserved=pods), runs("none", on={}, reserved=pods)
    assert victims(waits(pods=4), nodes={"x": 4}, occupants=[partly]) == ["partly"]
    assert victims(waits(pods=2), nodes={"x": 2}, occupants=[whole]) == ["none"]
    # Pods that fit no node as things are keep the GPUs that they may get, and leave just these.
    large = (PodGroup(count=1, request={GPU: 8}, nodes=None),)
    assert victims(
        waits(pods=4), nodes={"x": 2, "y": 2}, occupants=[runs("large", on={}, reserved=large)]
    ) == ["large"]
    decision = queue(waits(pods=4), nodes={"x": 4}, occupants=[replace(partly, leaves=True)])
    assert not decision.victims
    assert decision.holder == "urgent"


def test_a_job_that_holds_nothing_does_not_give_way() -> None:
    none = runs("none", on={}, reserved=(PodGroup(count=2, request={GPU: 1}, nodes=frozenset("y")),))
    assert victims(waits(pods=2), nodes={"x": 2}, occupants=[runs("a", on={"x": 2}), none]) == ["a"]
