"""The queue: gangs, bounded passing, and copies with a limit."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.gang_fit import PodGroup, place
from tdcs.decide.queue.pod_admission import (
    MAX_PASSES,
    choose_copy,
    gang_fits,
    next_to_admit,
    nodes_to_set_aside,
    queue_key,
)
from tdcs_labs.scheduling import place_pods


@dataclass
class Job:
    pods: tuple[int, ...]
    priority: int = 0
    submitted: float = 0.0
    ready: bool = True
    passed: int = 0


def by_free(free: dict[str, int]) -> list[int]:
    count = Counter(free.values())
    return [count[size] for size in range(max(free.values(), default=0) + 1)]


@given(
    pods=st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=6),
    free=st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=6),
)
def test_a_gang_that_is_said_to_fit_can_be_placed_and_takes_no_gpu_twice(
    pods: list[int], free: list[int]
) -> None:
    nodes = {f"n{i}": gpus for i, gpus in enumerate(free)}
    fits = gang_fits(pods=pods, nodes_by_free_gpus=by_free(nodes))
    placed = place_pods(pods=pods, free_gpus=nodes, scores={})
    assert fits == (placed is not None)
    if placed:
        taken: Counter[str] = Counter()
        for node, gpus in zip(placed, pods, strict=True):
            taken[node] += gpus
        assert all(taken[node] <= nodes[node] for node in nodes)


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


@pytest.mark.parametrize(
    ("queue", "admits", "starves"),
    [
        ([], None, None),
        ([Job((1,))], 0, None),
        ([Job((8, 8)), Job((1,))], 1, None),
        ([Job((8, 8), passed=MAX_PASSES), Job((1,))], None, 0),
        ([Job((1,), ready=False), Job((1,))], 1, None),
        ([Job((1,), ready=False, passed=10 * MAX_PASSES), Job((1,))], 1, None),
    ],
)
def test_which_job_is_admitted_to_a_cluster_with_one_free_node(
    queue: list[Job], admits: int | None, starves: int | None
) -> None:
    admission = next_to_admit(queue=queue, nodes_by_free_gpus=[3, 0, 0, 0, 0, 0, 0, 0, 1])
    assert (admission.admits, admission.starves) == (admits, starves)


def test_while_one_job_has_nodes_set_aside_the_others_go_on() -> None:
    first, second = Job((8, 8), passed=MAX_PASSES), Job((8, 8), passed=MAX_PASSES)
    admission = next_to_admit(queue=[first, second, Job((1,))], nodes_by_free_gpus=[0, 1], holder=first)
    assert (admission.admits, admission.starves) == (2, None)
    assert set_aside(pods=first.pods, free={"n0": 1, "n1": 3, "n2": 2}) == ("n1", "n2")


def test_a_large_job_is_not_passed_for_ever() -> None:
    """Small jobs come without end, each for a short time: the large one still gets its two nodes."""
    large = Job((8, 8), submitted=0)
    free = {f"n{i}": 0 for i in range(4)}
    running = [(node, 1) for node in free for _ in range(8)]
    random.Random(5).shuffle(running)
    queue = [large, *(Job((1,), submitted=i) for i in range(1, 5))]
    aside: tuple[str, ...] = ()
    for step in range(2000):
        node, gpus = running.pop(0)
        free[node] += gpus
        if aside and all(free[name] >= 8 for name in aside):
            return
        queue.append(Job((1,), submitted=100 + step))
        while True:
            rest = {name: gpus for name, gpus in free.items() if name not in aside}
            holder = large if aside else None
            admission = next_to_admit(queue=queue, nodes_by_free_gpus=by_free(rest), holder=holder)
            if admission.starves is not None:
                assert queue[admission.starves] is large
                aside = set_aside(pods=large.pods, free=free)
                continue
            if admission.admits is None:
                break
            for job in queue[: admission.admits]:
                job.passed += 1
            entering = queue.pop(admission.admits)
            nodes = place_pods(pods=entering.pods, free_gpus=rest, scores={})
            assert nodes is not None
            for name, gpus in zip(nodes, entering.pods, strict=True):
                free[name] -= gpus
                running.append((name, gpus))
        assert large.passed <= MAX_PASSES or aside
    pytest.fail("the large job never got its nodes")


def test_priority_comes_before_age() -> None:
    queue = [Job((1,), submitted=1), Job((1,), submitted=2, priority=5)]
    assert sorted(queue, key=queue_key)[0].priority == 5


@pytest.mark.parametrize(
    ("active", "options", "copy"),
    [
        ({"0": 3}, {}, "0"),
        ({"0": 3, "1": 1}, {"limit": 4}, "1"),
        ({"0": 1, "1": 3}, {"room": {"0": 2, "1": 6}}, "1"),
        ({"0": 3, "1": 1}, {"room": {"0": 6, "1": 6}}, "1"),
        ({"0": 4, "1": 1}, {"limit": 4, "room": {"0": 6, "1": 0}}, "1"),
        ({"0": 4}, {"limit": 4}, None),
        ({}, {}, None),
    ],
)
def test_which_copy_a_job_reads(active: dict[str, int], options: dict[str, object], copy: str | None) -> None:
    assert choose_copy(active=active, **options) == copy  # type: ignore[arg-type]


@given(
    active=st.dictionaries(
        st.integers(min_value=0, max_value=5).map(str), st.integers(min_value=0, max_value=9)
    ),
    limit=st.integers(min_value=1, max_value=9),
)
def test_a_copy_is_never_given_more_jobs_than_its_limit_and_none_with_a_place_is_left_out(
    active: dict[str, int], limit: int
) -> None:
    copy = choose_copy(active=active, limit=limit)
    if copy is None:
        assert all(jobs >= limit for jobs in active.values())
    else:
        assert active[copy] < limit


jobs = st.builds(
    Job,
    pods=st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=4).map(tuple),
    priority=st.integers(min_value=0, max_value=3),
    submitted=st.floats(min_value=0, max_value=100),
    ready=st.booleans(),
    passed=st.integers(min_value=0, max_value=2 * MAX_PASSES),
)


@given(queue=st.lists(jobs, max_size=8), free=st.lists(st.integers(min_value=0, max_value=8), max_size=5))
def test_whoever_enters_is_ready_and_fits_and_passes_nobody_whose_patience_is_at_its_end(
    queue: list[Job], free: list[int]
) -> None:
    queue.sort(key=queue_key)
    nodes = {f"n{i}": gpus for i, gpus in enumerate(free)}
    admission = next_to_admit(queue=queue, nodes_by_free_gpus=by_free(nodes))
    fits = [job.ready and gang_fits(pods=job.pods, nodes_by_free_gpus=by_free(nodes)) for job in queue]
    if admission.admits is not None:
        assert fits[admission.admits]
        assert not any(fits[: admission.admits])
        assert all(not job.ready or job.passed < MAX_PASSES for job in queue[: admission.admits])
    elif admission.starves is not None:
        starving = queue[admission.starves]
        assert starving.ready
        assert starving.passed >= MAX_PASSES
        assert not any(fits[: admission.starves + 1])
    elif any(free):
        assert not any(fits)


@given(
    size=st.integers(min_value=1, max_value=8),
    count=st.integers(min_value=1, max_value=6),
    free=st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=5),
    node=st.integers(min_value=0, max_value=4),
)
def test_more_free_gpus_never_keep_a_gang_of_equal_pods_out(
    size: int, count: int, free: list[int], node: int
) -> None:
    def fits(gpus: list[int]) -> bool:
        return gang_fits(
            pods=[size] * count, nodes_by_free_gpus=by_free({f"n{i}": one for i, one in enumerate(gpus)})
        )

    more = [*free]
    more[node % len(free)] += 1
    assert fits(more) >= fits(free)


def set_aside(
    *, pods: Sequence[int], free: Mapping[str, int], size: int = 8, kept: Sequence[str] = ()
) -> tuple[str, ...]:
    """What is set aside of nodes of one size for a gang."""

    def holds(nodes: Sequence[str]) -> bool:
        return gang_fits(pods=pods, nodes_by_free_gpus=[*[0] * size, len(nodes)])

    return nodes_to_set_aside(free=free, sizes=dict.fromkeys(free, size), holds=holds, kept=kept)


@given(
    pods=st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=20),
    free=st.dictionaries(st.sampled_from("abcdefg"), st.integers(min_value=0, max_value=8)),
)
def test_the_fewest_nodes_are_set_aside_that_hold_the_job_and_those_with_the_most_free(
    pods: list[int], free: dict[str, int]
) -> None:
    aside = set_aside(pods=pods, free=free)
    count = len(aside)
    assert len(set(aside)) == count
    needed = next(
        (n for n in range(len(free) + 1) if gang_fits(pods=pods, nodes_by_free_gpus=[*[0] * 8, n])), None
    )
    assert count == (needed or 0)
    rest = [gpus for node, gpus in free.items() if node not in aside]
    assert all(free[node] >= max(rest, default=0) for node in aside)
    # Chosen once and kept, whatever becomes free elsewhere.
    assert set(set_aside(pods=pods, free=dict.fromkeys(free, 8), kept=aside)) == set(aside)


def test_sixty_four_pods_of_one_gpu_need_eight_nodes_of_eight() -> None:
    free = {f"n{i}": 0 for i in range(64)}
    assert len(set_aside(pods=[1] * 64, free=free)) == 8


def test_a_starving_job_of_higher_priority_takes_the_place_of_the_one_that_holds_nodes() -> None:
    holder, urgent = Job((8,), passed=MAX_PASSES), Job((8, 8), priority=5, passed=MAX_PASSES)
    admission = next_to_admit(queue=[urgent, holder], nodes_by_free_gpus=[0, 1], holder=holder)
    assert (admission.admits, admission.starves) == (None, 0)
    equal = Job((8, 8), passed=MAX_PASSES)
    admission = next_to_admit(queue=[equal, holder], nodes_by_free_gpus=[0, 1], holder=holder)
    assert (admission.admits, admission.starves) == (None, None)


@given(
    pods=st.lists(st.integers(min_value=1, max_value=8), min_size=1, max_size=6),
    free=st.lists(st.integers(min_value=0, max_value=8), min_size=1, max_size=6),
)
def test_where_only_gpus_count_a_gang_fits_over_all_resources_when_it_fits_by_gpus(
    pods: list[int], free: list[int]
) -> None:
    nodes = {f"n{i}": gpus for i, gpus in enumerate(free)}
    groups = [PodGroup(count=count, request={"gpu": size}) for size, count in Counter(pods).items()]
    left = place(groups=groups, free={name: {"gpu": gpus} for name, gpus in nodes.items()}, scarce="gpu")
    assert (left is not None) == gang_fits(pods=pods, nodes_by_free_gpus=by_free(nodes))
    if left is not None:
        assert sum(one["gpu"] for one in left.values()) == sum(free) - sum(pods)


def test_the_job_that_nodes_are_set_aside_for_takes_no_others() -> None:
    holder = Job((1,), passed=MAX_PASSES)
    admission = next_to_admit(queue=[holder, Job((1,))], nodes_by_free_gpus=[0, 2], holder=holder)
    assert (admission.admits, admission.starves) == (1, None)
    admission = next_to_admit(queue=[holder], nodes_by_free_gpus=[0, 2], holder=holder)
    assert (admission.admits, admission.starves) == (None, None)
