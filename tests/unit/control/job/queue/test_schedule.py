"""The queue of jobs that start with all their pods at once, on a cluster's real nodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.fair_share import Shares
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.kept_nodes import LEAVE_MOST
from tdcs.decide.queue.namespace_quota import Allowances, QuotaCharge
from tdcs.decide.queue.occupants import Occupant
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import Growth, QueuedJob
from tdcs.decide.queue.room_table import RoomTable
from tdcs.decide.queue.wait_message import waiting_admission

GPU = "nvidia.com/gpu"


def nodes(*gpus: int, cpu: int = 96_000) -> dict[str, dict[str, int]]:
    """Nodes a, b, c, … with so many GPUs free."""
    return {chr(ord("a") + i): {GPU: count, "cpu": cpu, "pods": 110} for i, count in enumerate(gpus)}


def group(count: int, gpus: int = 1, **more: Any) -> PodGroup:
    """So many pods with so many GPUs each."""
    return PodGroup(count=count, request={GPU: gpus, "cpu": 1000, "pods": 1}, **more)


def job(name: str, *groups: PodGroup, age: float = 0, **more: Any) -> QueuedJob:
    """A job whose data is ready; a larger age is an older job."""
    fields = {"priority": 0, "data_ready": True, "passed": 0, **more}
    return QueuedJob(key=("team", name), uid=name, submitted=-age, groups=groups, **fields)


def line(
    *waiting: QueuedJob,
    free: dict[str, dict[str, int]],
    capacity: dict[str, dict[str, int]] | None = None,
    lasting: dict[str, dict[str, int]] | None = None,
    reserved: Sequence[PodGroup] = (),
    **more: Any,
) -> Schedule:
    """The queue on nodes that are empty unless `capacity` says otherwise."""
    nodes_now = Nodes(free=free, capacity=capacity or free, lasting=lasting)
    admitted = [Occupant(key=("team", "admitted"), uid="admitted", priority=0, reserved=reserved)]
    return schedule(waiting=waiting, occupants=admitted, nodes=nodes_now, **more)


def enters(decision: Schedule) -> str:
    return " ".join(member.uid for member in decision.admitted) or "nobody"


@pytest.mark.failure_mode("two-jobs-of-more-than-half")
def test_of_two_jobs_that_need_more_than_half_one_enters_and_the_other_waits_for_it() -> None:
    first, second = job("first", group(6), age=2), job("second", group(6), age=1)
    free = nodes(4, 4)
    assert enters(line(first, second, free=free)) == "first"
    # The first was let in, and none of its pods has a node yet.
    decision = line(second, free=free, reserved=[group(6)])
    assert enters(decision) == "nobody"
    admission = waiting_admission(decision, "second")
    assert (admission.admitted, admission.reason) == (False, Reason.NO_ROOM)
    assert "needs 6 nvidia.com/gpu at once, 2 nvidia.com/gpu free" in admission.message
    assert "position 1 in the queue" in admission.message


def test_priority_comes_before_age() -> None:
    free = nodes(4)
    old, urgent = job("old", group(4), age=9), job("urgent", group(4), priority=10)
    decision = line(old, urgent, free=free)
    assert enters(decision) == "urgent"
    assert waiting_admission(decision, "old").reason is Reason.NO_ROOM
    held = line(old, urgent, free=nodes(4), capacity=nodes(8), reserved=[group(1)])
    assert "position 2 in the queue; behind team/urgent" in waiting_admission(held, "old").message


def test_a_job_that_no_node_can_ever_hold_is_not_counted_ahead() -> None:
    giants = [job(f"giant-{number}", group(1, gpus=9), age=9 - number) for number in range(3)]
    before, mine = job("before", group(4), age=2), job("mine", group(4), age=1)
    decision = line(*giants, before, mine, free=nodes(1, 1), capacity=nodes(4, 4))
    assert waiting_admission(decision, "giant-0").reason is Reason.NEVER
    assert "position 1 in the queue" in waiting_admission(decision, "before").message
    assert "behind" not in waiting_admission(decision, "before").message
    assert "position 2 in the queue; behind team/before" in waiting_admission(decision, "mine").message


def test_jobs_of_one_second_enter_by_name_however_they_are_found() -> None:
    first = replace(job("train-1", group(8)), uid="f00d")
    second = replace(job("train-2", group(8)), uid="beef")
    for decision in (line(first, second, free=nodes(8)), line(second, first, free=nodes(8))):
        assert enters(decision) == first.uid


def test_one_node_is_not_called_nodes() -> None:
    busy = line(job("x", group(8)), free=nodes(2), capacity=nodes(8))
    assert (
        "2 nvidia.com/gpu free on the only node that its 8 pods may use"
        in waiting_admission(busy, "x").message
    )
    large = job("large", group(1, gpus=4), age=9, passed=3)
    held = line(large, job("small", group(1)), free=nodes(2), capacity=nodes(4), max_passes=3)
    assert "1 node is set aside for team/large" in waiting_admission(held, "small").message


@pytest.mark.failure_mode("large-job-passed")
def test_a_small_job_passes_a_large_one_until_that_was_passed_too_often() -> None:
    free, capacity = nodes(2, 4), nodes(4, 4)
    large, small = job("large", group(8), age=9, passed=2), job("small", group(1))
    decision = line(large, small, free=free, capacity=capacity, max_passes=3)
    assert enters(decision) == "small"
    assert decision.passed == {"large": 3}
    large = job("large", group(8), age=9, passed=3)
    decision = line(large, small, free=free, capacity=capacity, max_passes=3)
    assert enters(decision) == "nobody"
    assert (decision.holder, decision.aside) == ("large", frozenset("ab"))
    assert "2 nodes are set aside for team/large" in waiting_admission(decision, "small").message
    # Once the nodes have emptied, it enters.
    assert enters(line(large, small, free=capacity, capacity=capacity, holder="large")) == "large"


def test_a_job_that_can_never_run_says_so_and_holds_up_nobody() -> None:
    giant = job("giant", group(1, gpus=16), age=9, passed=1000)
    decision = line(giant, job("small", group(1)), free=nodes(8))
    assert enters(decision) == "small"
    admission = waiting_admission(decision, "giant")
    assert admission.reason is Reason.NEVER
    assert "16 nvidia.com/gpu, and the largest node that it may use has 8 nvidia.com/gpu" in admission.message


NEVER: dict[str, tuple[PodGroup, str]] = {
    "more pods than there is room for": (group(9, gpus=4), "even with all nodes empty only 2 of its 9 pods"),
    "another resource": (
        PodGroup(count=1, request={"cpu": 200_000, "pods": 1}),
        "200 cpu, and the largest node that it may use has 96 cpu",
    ),
    "a misspelt device": (
        PodGroup(count=1, request={"nvidia.com/gpus": 1, "pods": 1}),
        "a pod asks for nvidia.com/gpus, which no node that it may use has; they have nvidia.com/gpu: correct the name",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_makes_a_job_impossible_is_named(name: str) -> None:
    pods, sentence = NEVER[name]
    admission = waiting_admission(line(job("x", pods), free=nodes(4, 4)), "x")
    assert admission.reason is Reason.NEVER
    assert sentence in admission.message


def test_a_pod_that_no_node_may_run_says_why_with_a_reason_of_its_own() -> None:
    nowhere = group(1, nodes=frozenset(), nowhere="no node has the label zone=mars")
    admission = waiting_admission(line(job("x", group(1), nowhere), free=nodes(4, 4)), "x")
    assert (admission.reason, admission.message) == (Reason.NO_MATCH, "no node has the label zone=mars")


def test_a_job_whose_data_is_not_there_may_be_passed_freely() -> None:
    loading = job("loading", group(4), age=9, data_ready=False, passed=1000)
    decision = line(loading, job("small", group(4)), free=nodes(4))
    assert enters(decision) == "small"
    assert decision.passed == {}


def test_room_spread_over_too_many_nodes_is_reported_as_such() -> None:
    admission = waiting_admission(
        line(job("x", group(2, gpus=4)), free=nodes(2, 2, 4), capacity=nodes(4, 4, 4)), "x"
    )
    assert (
        "only 1 of its 2 pods would find room at once: 8 nvidia.com/gpu are free on the 3 nodes"
        in admission.message
    )


def test_roles_with_different_needs_fit_together_or_not_at_all() -> None:
    servers = PodGroup(count=2, request={"cpu": 60_000, "pods": 1})
    free = nodes(4, 4)
    assert enters(line(job("x", group(8), servers), free=free)) == "x"
    assert enters(line(job("x", group(8), PodGroup(count=3, request=servers.request)), free=free)) == "nobody"


def test_pods_run_only_on_their_own_nodes() -> None:
    only_b = group(4, nodes=frozenset("b"))
    assert enters(line(job("x", only_b), free=nodes(8, 3))) == "nobody"
    assert enters(line(job("x", only_b), free=nodes(0, 4))) == "x"


def test_a_job_that_joins_behind_changes_no_message_of_those_before_it() -> None:
    free, capacity = nodes(0), nodes(4)
    first, second = job("first", group(4), age=9), job("second", group(4), age=5)
    before = waiting_admission(line(first, second, free=free, capacity=capacity), "second")
    after = waiting_admission(
        line(first, second, job("third", group(4)), free=free, capacity=capacity), "second"
    )
    assert before == after


@pytest.mark.failure_mode("large-job-passed")
def test_nodes_set_aside_never_hold_up_a_job_of_higher_priority() -> None:
    large = job("large", group(8), age=9, passed=3)
    urgent = job("urgent", group(4), priority=10)
    small = job("small", group(4))
    free, capacity = nodes(4, 0), nodes(4, 4)
    held = line(large, small, free=free, capacity=capacity, max_passes=3)
    assert (enters(held), held.holder) == ("nobody", "large")
    decision = line(
        large, small, urgent, free=free, capacity=capacity, max_passes=3, holder="large", aside=held.aside
    )
    assert enters(decision) == "urgent"
    assert decision.holder == "large"


def test_the_job_that_holds_nodes_waits_for_one_of_higher_priority() -> None:
    large = job("large", group(8), age=9, passed=3)
    urgent = job("urgent", group(8), priority=10)
    decision = line(large, urgent, free=nodes(4, 4), max_passes=3, holder="large", aside={"a", "b"})
    assert enters(decision) == "urgent"


@pytest.mark.failure_mode("large-job-passed")
def test_as_few_nodes_are_set_aside_as_the_pods_need_and_they_are_kept() -> None:
    large = job("large", group(64), age=9, passed=3)
    names = [f"n{i:02}" for i in range(16)]
    capacity = {name: {GPU: 8, "cpu": 96_000, "pods": 110} for name in names}
    free = {name: {**capacity[name], GPU: 3 if i < 10 else 0} for i, name in enumerate(names)}
    decision = line(large, free=free, capacity=capacity, max_passes=3)
    assert len(decision.aside) == 8
    assert decision.aside < set(names[:10])
    # Others become free later: the nodes stay the ones that were chosen.
    later = {name: {**capacity[name], GPU: 0 if i < 10 else 7} for i, name in enumerate(names)}
    again = line(
        large, free=later, capacity=capacity, max_passes=3, holder=decision.holder, aside=decision.aside
    )
    assert again.aside == decision.aside


def test_nodes_with_pods_of_others_are_set_aside_only_when_the_rest_is_not_enough() -> None:
    large = job("large", group(1, gpus=4), age=9, passed=3)
    capacity = nodes(4, 4)
    lasting = {**capacity, "a": {**capacity["a"], GPU: 1}}
    decision = line(large, free=nodes(1, 0), capacity=capacity, lasting=lasting, max_passes=3)
    assert decision.aside == {"b"}
    pair = job("both", group(2, gpus=4), age=9, passed=3)
    decision = line(pair, free=nodes(1, 0), capacity=capacity, lasting=lasting, max_passes=3)
    assert decision.aside == {"a", "b"}


def elastic(name: str, *, least: int, most: int, **more: Any) -> QueuedJob:
    """An elastic job that enters with `least` workers and asks for `most`."""
    return job(name, group(least), growth=Growth(base=least, pods=group(most - least)), **more)


def test_an_elastic_job_enters_with_its_smallest_number_and_grows_into_what_is_left() -> None:
    decision = line(elastic("train", least=2, most=8), free=nodes(4, 1))
    assert enters(decision) == "train"
    assert decision.workers == {"train": 5}
    waiting = waiting_admission(decision, "train")
    assert waiting.message.startswith("3 more workers wait for room: needs 1 nvidia.com/gpu at once, 0 ")


def test_growth_comes_after_jobs_of_its_priority_that_wait_to_start_and_before_lower_ones() -> None:
    grows = elastic("train", least=2, most=6, age=9).growing()
    assert grows is not None
    decision = line(grows, job("equal", group(3)), free=nodes(4))
    assert enters(decision) == "equal"
    assert decision.workers == {"train": 3}
    decision = line(replace(grows, priority=1), job("low", group(3)), free=nodes(4))
    assert enters(decision) == "nobody"
    assert decision.workers == {"train": 6}
    # However many workers it grows by, it passes the others once.
    large = job("large", group(8), priority=2)
    assert line(grows, large, free=nodes(4), capacity=nodes(8)).passed == {"large": 1}


def test_growth_keeps_off_nodes_that_are_set_aside() -> None:
    grows = elastic("train", least=2, most=6, age=9).growing()
    assert grows is not None
    large = job("large", group(8), passed=3)
    decision = line(grows, large, free=nodes(4, 0, 1), capacity=nodes(4, 4, 1), max_passes=3)
    assert decision.aside == {"a", "b"}
    assert decision.workers == {"train": 3}


def test_room_off_the_nodes_that_are_set_aside_is_given_once() -> None:
    free, capacity = nodes(1, 1), nodes(4, 4)
    large = job("large", group(1, gpus=2), age=9, passed=3)
    small = [job(name, group(1), age=age) for name, age in (("one", 2), ("two", 1))]
    decision = line(large, *small, free=free, capacity=capacity, max_passes=3)
    assert len(decision.aside) == 1
    assert enters(decision) == "one"


def test_a_job_leaves_empty_nodes_to_a_gang_of_whole_nodes_that_waits() -> None:
    small, large = job("small", group(1, gpus=2)), job("large", group(3, gpus=8), age=1)
    free, capacity = nodes(8, 8, 4), nodes(8, 8, 8)
    decision = line(small, large, free=free, capacity=capacity)
    assert enters(decision) == "small"
    assert decision.leave == {"small": {2: frozenset("ab")}}
    assert line(small, free=free, capacity=capacity).leave == {}
    asleep = replace(large, data_ready=False)
    assert line(small, asleep, free=free, capacity=capacity).leave == {}
    # A job that runs says as much of what is to come as one that waits.
    assert line(small, free=free, capacity=capacity, running=[large]).leave == {"small": {2: frozenset("ab")}}
    # Pods that were admitted before and have no node yet take theirs, too.
    assert line(small, large, free=free, capacity=capacity, reserved=[group(1, gpus=8)]).leave == {
        "small": {2: frozenset("b")}
    }


def test_pods_leave_the_nodes_that_are_set_aside_unless_their_job_is_more_urgent() -> None:
    starved = job("starved", group(3, gpus=8), age=9, passed=64)
    small = job("small", group(1, gpus=2), group(1, gpus=1))
    free, capacity = nodes(8, 5, 4, 3), nodes(8, 8, 8, 8)
    decision = line(starved, small, free=free, capacity=capacity)
    assert (enters(decision), decision.holder, decision.aside) == ("small", "starved", frozenset("abc"))
    assert decision.leave == {"small": {2: frozenset("abc"), 1: frozenset("abc")}}
    urgent = replace(small, priority=1)
    assert line(starved, urgent, free=free, capacity=capacity, holder="starved", aside="abc").leave == {}


def test_of_many_nodes_to_leave_those_that_are_set_aside_are_named_first() -> None:
    begun = frozenset({"x", "y"})
    starved = job("starved", group(2, gpus=8, nodes=begun), age=9, passed=64)
    wide, small = job("wide", group(300, gpus=8), age=8), job("small", group(1, gpus=2))
    empty = {f"n{number:03}": {GPU: 8, "cpu": 96_000, "pods": 110} for number in range(280)}
    halves = {name: {GPU: 4, "cpu": 96_000, "pods": 110} for name in [*begun, *map(str, range(18))]}
    free = {**empty, **halves}
    capacity = {name: {**amounts, GPU: 8} for name, amounts in free.items()}
    decision = line(starved, wide, small, free=free, capacity=capacity)
    assert (enters(decision), decision.aside) == ("small", begun)
    assert decision.leave["small"][2] == begun | set(sorted(empty)[: LEAVE_MOST - 2])


def test_nodes_and_running_jobs_are_looked_at_once_however_many_jobs_are_admitted() -> None:
    looks: list[str] = []

    class Capacity(dict[str, dict[str, int]]):
        def items(self) -> Any:
            looks.append("nodes")
            return super().items()

    class Running:
        priority, ready = 0, True

        @property
        def groups(self) -> list[PodGroup]:
            looks.append("job")
            return [group(3, gpus=8)]

    small = [job(f"small-{number}", group(1, gpus=2)) for number in range(5)]
    free, capacity = nodes(8, 8, 8, 4), nodes(8, 8, 8, 8)
    decision = line(
        *small, free=free, capacity=Capacity(capacity), running=cast("list[QueuedJob]", [Running()])
    )
    assert len(decision.admitted) == 5
    # The first two fill the node that is begun; the third begins an empty one.
    assert decision.leave == {
        "small-0": {2: frozenset("abc")},
        "small-1": {2: frozenset("abc")},
        "small-2": {2: frozenset("abc")},
        "small-3": {2: frozenset("bc")},
        "small-4": {2: frozenset("bc")},
    }
    assert sorted(looks) == ["job", "nodes"]


def test_an_elastic_job_grows_in_one_step_however_many_workers_it_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    rooms = RoomTable._rooms

    def counted(self: RoomTable, pods: PodGroup, but: Any) -> Any:
        looks.append(pods.count)
        return rooms(self, pods, but)

    monkeypatch.setattr(RoomTable, "_rooms", counted)
    free = {f"n{number:04}": {GPU: 8, "cpu": 96_000, "pods": 110} for number in range(200)}
    decision = line(*(elastic(f"train-{i}", least=1, most=1000, age=i) for i in range(8)), free=free)
    assert sum(decision.workers.values()) == 1600
    assert len(looks) < 100  # and not one for each of 1,600 workers


def test_quota_bounds_growth_in_one_step() -> None:
    quotas = {("team", "gpus"): {"spec": {"hard": {"requests.nvidia.com/gpu": "5"}}}}
    charge = QuotaCharge(quota="gpus", takes={f"requests.{GPU}": 1})
    grows = elastic("train", least=2, most=64)
    assert grows.growth is not None
    grows = replace(
        grows,
        charges=(replace(charge, takes={f"requests.{GPU}": 2}),),
        growth=replace(grows.growth, charges=(charge,)),
    )
    decision = line(grows, free=nodes(64), allowances=Allowances(quotas))
    assert decision.workers == {"train": 5}
    assert waiting_admission(decision, "train").reason is Reason.QUOTA


def test_of_jobs_that_wait_each_demand_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    fits = RoomTable.take

    def counted(self: RoomTable, *args: Any, **more: Any) -> Any:
        looks.append(1)
        return fits(self, *args, **more)

    monkeypatch.setattr(RoomTable, "take", counted)
    jobs = [job(f"job-{number:04}", group(8, gpus=1 + number % 4), age=number) for number in range(2000)]
    capacity = {f"n{number}": {GPU: 8, "cpu": 96_000, "pods": 110} for number in range(9)}
    full = {name: {**amounts, GPU: 0} for name, amounts in capacity.items()}
    decision = line(*jobs, free=full, capacity=capacity)
    assert len(decision.waiting) == 2000
    assert len(looks) <= 2 * 4


def of(team: str, queued: QueuedJob) -> QueuedJob:
    """The same job of another namespace."""
    return replace(queued, key=(team, queued.key[1]))


def test_of_two_namespaces_the_one_with_less_of_the_cluster_enters_first() -> None:
    many = [of("many", job(f"m{number}", group(1), age=9 - number)) for number in range(4)]
    single = of("one", job("one", group(1)))
    fair = Shares(used={"many": {GPU: 2}})
    assert enters(line(*many, single, free=nodes(1), capacity=nodes(8))) == "m0"
    assert enters(line(*many, single, free=nodes(1), capacity=nodes(8), shares=fair)) == "one"
    assert (
        enters(line(*many, single, free=nodes(3), capacity=nodes(8), shares=Shares(used={}))) == "m0 one m1"
    )
    weighted = Shares(used={"many": {GPU: 2}}, weights={"many": 4.0, "one": 1.0})
    assert enters(line(*many, single, free=nodes(1), capacity=nodes(8), shares=weighted)) == "one"
    weighted = Shares(used={"many": {GPU: 2}, "one": {GPU: 1}}, weights={"many": 4.0})
    assert enters(line(*many, single, free=nodes(1), capacity=nodes(8), shares=weighted)) == "m0"


def test_jobs_that_cannot_start_take_no_turn_of_their_namespace() -> None:
    asleep = [of("many", job(f"m{n}", group(4), age=9, data_ready=False)) for n in range(4)]
    ready, only = of("many", job("ready", group(1), age=2)), of("one", job("one", group(1), age=1))
    decision = line(*asleep, ready, only, free=nodes(1), capacity=nodes(8), shares=Shares(used={}))
    assert enters(decision) == "ready"


def test_a_growing_job_takes_turns_with_the_namespaces_that_wait() -> None:
    grows = of("many", elastic("train", least=1, most=8, age=9))
    waiting = [of("one", job(f"o{number}", group(1), age=number)) for number in range(3)]
    decision = line(grows, *waiting, free=nodes(4), capacity=nodes(8), shares=Shares(used={}))
    assert enters(decision) == "train o2 o1"
    assert decision.workers == {"train": 2}  # so that each of them has half


def test_whoever_is_more_urgent_than_the_job_with_nodes_set_aside_uses_them_in_any_namespace() -> None:
    large = of("a", job("large", group(8), age=9, passed=3))
    urgent, small = of("b", job("urgent", group(4), priority=10)), of("c", job("small", group(1), age=8))
    fair = Shares(used={"b": {GPU: 8}})
    decision = line(
        large, urgent, small,
        free=nodes(4, 0), capacity=nodes(4, 4), max_passes=3, holder="large", aside="ab", shares=fair,
    )  # fmt: skip
    assert (enters(decision), decision.holder) == ("urgent", "large")
