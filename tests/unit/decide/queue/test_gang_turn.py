"""The queue: gangs, bounded passing, and copies with a limit."""

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decide.builders import fits, groups_of

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.pod_admission import (
    MAX_PASSES,
)
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import Order, QueuedJob
from tdcs_labs.scheduling import place_pods


def job(
    name: str, *pods: int, priority: int = 0, submitted: float = 0.0, ready: bool = True, passed: int = 0
) -> QueuedJob:
    return QueuedJob(
        key=("team", name),
        uid=name,
        priority=priority,
        submitted=submitted,
        data_ready=ready,
        passed=passed,
        groups=groups_of(pods),
    )


@given(
    pods=st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=6),
    free=st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=6),
)
def test_a_gang_that_is_said_to_fit_can_be_placed_and_takes_no_gpu_twice(
    pods: list[int], free: list[int]
) -> None:
    nodes = {f"n{i}": gpus for i, gpus in enumerate(free)}
    placed = place_pods(pods=pods, free_gpus=nodes, scores={})
    assert fits(pods, nodes) == (placed is not None)
    if placed:
        used: Counter[str] = Counter()
        for node, gpus in zip(placed, pods, strict=True):
            used[node] += gpus
        assert all(used[node] <= nodes[node] for node in nodes)


def test_pods_go_to_the_best_score_then_to_the_fullest_node() -> None:
    free = {"empty": 8, "half": 4, "holds data": 8}
    assert place_pods(pods=[2], free_gpus=free, scores={"holds data": 7}) == ("holds data",)
    assert place_pods(pods=[2], free_gpus=free, scores={}) == ("half",)
    assert place_pods(pods=[8, 8, 8], free_gpus=free, scores={}) is None


def test_pods_keep_off_the_nodes_that_they_leave_while_others_have_room() -> None:
    free = {"empty": 8, "half": 4, "holds data": 8}
    leave = {2: {"empty", "holds data"}}
    scores = {"holds data": 7}
    assert place_pods(pods=[2], free_gpus=free, scores=scores, leave=leave) == ("half",)
    # The third finds no room elsewhere, and then goes to its data.
    assert place_pods(pods=[2, 2, 2], free_gpus=free, scores=scores, leave=leave) == (
        "half",
        "half",
        "holds data",
    )
    assert place_pods(pods=[8], free_gpus=free, scores=scores, leave=leave) == ("holds data",)


def run_pass(
    *jobs: QueuedJob, free: Mapping[str, int], holder: str = "", aside: frozenset[str] = frozenset()
) -> Schedule:
    return schedule(
        waiting=jobs,
        nodes=Nodes(
            free={name: {GPU_RESOURCE: gpus} for name, gpus in free.items()},
            capacity={name: {GPU_RESOURCE: 8} for name in free},
        ),
        holder=holder,
        aside=aside,
    )


def test_a_large_job_is_not_passed_forever() -> None:
    """Small jobs come without end, each for a short time: the large one still gets its two nodes."""
    queue = {"large": job("large", 8, 8)}
    free = {f"n{i}": 0 for i in range(4)}
    running = [(node, 1) for node in free for _ in range(8)]
    random.Random(5).shuffle(running)
    holder, aside = "", frozenset[str]()
    for step in range(2000):
        node, gpus = running.pop(0)
        free[node] += gpus
        queue[f"small-{step}"] = job(f"small-{step}", 1, submitted=100 + step)
        decision = run_pass(*queue.values(), free=free, holder=holder, aside=aside)
        holder, aside = decision.holder, decision.aside
        queue = {queued.uid: queued for queued in decision.waiting}
        for entering in decision.admitted:
            if entering.uid == "large":
                assert step > MAX_PASSES
                return
            open_nodes = {name: gpus for name, gpus in free.items() if name not in aside}
            nodes = place_pods(pods=[1], free_gpus=open_nodes, scores={})
            assert nodes is not None
            free[nodes[0]] -= 1
            running.append((nodes[0], 1))
        assert holder == ("large" if queue["large"].passed >= MAX_PASSES else "")
    pytest.fail("the large job never got its nodes")


jobs = st.lists(
    st.tuples(
        st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=4),
        st.integers(min_value=0, max_value=3),
        st.booleans(),
        st.integers(min_value=0, max_value=2 * MAX_PASSES),
    ),
    max_size=8,
)


@given(drawn=jobs, free=st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=5))
def test_whoever_enters_is_ready_and_fits_and_who_waits_found_no_room(
    drawn: list[tuple[list[int], int, bool, int]], free: list[int]
) -> None:
    queue = [
        job(f"j{i}", *pods, priority=priority, submitted=i, ready=ready, passed=passed)
        for i, (pods, priority, ready, passed) in enumerate(drawn)
    ]
    nodes = {f"n{i}": gpus for i, gpus in enumerate(free)}
    decision = run_pass(*queue, free=nodes)
    assert all(queued.ready for queued in decision.admitted)
    assert sum(sum(queued.pods) for queued in decision.admitted) <= sum(free)
    entered = {queued.uid for queued in decision.admitted}
    first = min(
        (queued for queued in queue if queued.ready and fits(queued.pods, nodes)), default=None, key=order
    )
    aside = {name: gpus for name, gpus in nodes.items() if name not in decision.aside}
    if first is not None and (not decision.holder or fits(first.pods, aside)):
        assert first.uid in entered
    for queued in decision.waiting:
        later = [later_job for later_job in decision.admitted if later_job.order > queued.order]
        if (
            queued.ready
            and queued.possible
            and queued.priority >= max((o.priority for o in later), default=0)
        ):
            before = next(queued_before.passed for queued_before in queue if queued_before.uid == queued.uid)
            assert queued.passed == before + len(later)


def order(queued: QueuedJob) -> Order:
    return queued.order


@given(
    size=st.integers(min_value=1, max_value=8),
    count=st.integers(min_value=1, max_value=6),
    free=st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=5),
    node=st.integers(min_value=0, max_value=4),
)
def test_more_free_gpus_never_keep_a_gang_of_equal_pods_out(
    size: int, count: int, free: list[int], node: int
) -> None:
    def fit(gpus: list[int]) -> bool:
        return fits([size] * count, {f"n{i}": free for i, free in enumerate(gpus)})

    more = [*free]
    more[node % len(free)] += 1
    assert fit(more) >= fit(free)
