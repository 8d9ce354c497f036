"""How many cache workers, and which one leaves."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.policy.scaling import (
    Held,
    Reason,
    Thresholds,
    Worker,
    desired_replicas,
    drain_plan,
    leaves_first,
    loss,
)

GB = 10**9
counts = st.integers(min_value=0, max_value=50)


@pytest.mark.parametrize(
    ("situation", "replicas", "reason"),
    [
        ({"asked": 3, "current": 1}, 3, Reason.ASKED),
        ({"asked": 3, "current": 3, "job_nodes": 5}, 5, Reason.JOBS),
        ({"asked": 3, "current": 3, "job_nodes": 5, "follow_jobs": False}, 3, Reason.ASKED),
        ({"asked": 3, "current": 3, "job_nodes": 9, "maximum": 6}, 6, Reason.JOBS),
        ({"asked": 3, "current": 3, "used_ratio": 0.9}, 4, Reason.FULL),
        ({"asked": 3, "current": 6, "used_ratio": 0.7}, 6, Reason.STEADY),
        ({"asked": 3, "current": 6, "used_ratio": 0.3, "low_for": 10.0}, 6, Reason.STEADY),
        ({"asked": 3, "current": 6, "used_ratio": 0.3, "low_for": 600.0}, 5, Reason.EMPTY),
        ({"asked": 3, "current": 3, "used_ratio": 0.1, "low_for": 9999.0}, 3, Reason.ASKED),
    ],
)
def test_the_number_of_workers(situation: dict[str, float], replicas: int, reason: Reason) -> None:
    found = desired_replicas(**situation)  # type: ignore[arg-type]
    assert (found.replicas, found.reason) == (replicas, reason)


@given(
    asked=counts,
    current=counts,
    jobs=counts,
    used=st.floats(min_value=0, max_value=1),
    low_for=st.floats(min_value=0, max_value=1e4),
    more=st.none() | counts,
)
def test_never_fewer_than_asked_never_more_than_allowed(
    asked: int, current: int, jobs: int, used: float, low_for: float, more: int | None
) -> None:
    maximum = None if more is None else asked + more
    found = desired_replicas(
        asked=asked, current=current, job_nodes=jobs, used_ratio=used, low_for=low_for, maximum=maximum
    )
    assert found.replicas >= asked
    assert maximum is None or found.replicas <= maximum


@given(
    current=st.integers(min_value=1, max_value=50),
    used_bytes=st.floats(min_value=0, max_value=50),
)
def test_with_steady_use_the_cache_comes_to_rest(current: int, used_bytes: float) -> None:
    """Growing and shrinking must not alternate: the state it settles in asks for no change."""
    limits, seen = Thresholds(), []
    for _ in range(120):
        ratio = min(used_bytes / current, 1.0)
        wanted = desired_replicas(asked=1, current=current, used_ratio=ratio, low_for=1e6, thresholds=limits)
        seen.append(wanted.replicas - current)
        current = wanted.replicas
    assert seen[-1] == 0
    assert not (1 in seen and -1 in seen)


def worker(node: str, *, last: int, worth: float = 1.0, free: int = 0, jobs: bool = False) -> Worker:
    held = (Held(dataset="a", held_bytes=5 * GB, last_copy_bytes=last, worth=worth),)
    return Worker(node=node, free_bytes=free, held=held, runs_jobs=jobs)


def test_the_worker_whose_bytes_lie_elsewhere_too_leaves_first() -> None:
    workers = [worker("n1", last=5 * GB), worker("n2", last=0), worker("n3", last=0, jobs=True)]
    first = leaves_first(workers)
    assert first is not None
    assert first.node == "n2"
    assert leaves_first([]) is None
    assert loss(worker("x", last=2 * GB, worth=3.0)) > loss(worker("x", last=2 * GB, worth=1.0))


@given(
    free=st.lists(st.integers(min_value=0, max_value=9 * GB), max_size=6),
    last=st.lists(st.integers(min_value=0, max_value=9 * GB), max_size=4),
)
def test_a_drain_moves_every_last_copy_for_which_there_is_room(free: list[int], last: list[int]) -> None:
    draining = Worker(
        node="gone",
        free_bytes=0,
        held=tuple(
            Held(dataset=f"d{i}", held_bytes=size, last_copy_bytes=size, worth=float(i))
            for i, size in enumerate(last)
        ),
    )
    others = [Worker(node=f"n{i}", free_bytes=room) for i, room in enumerate(free)]
    plan = drain_plan(draining=draining, others=[*others, draining])
    moved = sum(move.moved_bytes for move in plan.moves)
    assert moved + plan.lost_bytes == sum(last)
    assert moved == min(sum(last), sum(free))
    for other in others:
        into = sum(move.moved_bytes for move in plan.moves if move.to_node == other.node)
        assert into <= other.free_bytes
    assert all(move.to_node != "gone" for move in plan.moves)


def test_what_is_wanted_most_is_saved_first() -> None:
    draining = Worker(
        node="gone",
        free_bytes=0,
        held=(
            Held(dataset="cold", held_bytes=GB, last_copy_bytes=GB),
            Held(dataset="hot", held_bytes=GB, last_copy_bytes=GB, worth=1.0),
        ),
    )
    plan = drain_plan(draining=draining, others=[Worker(node="n1", free_bytes=GB)])
    assert [move.dataset for move in plan.moves] == ["hot"]
    assert plan.lost_bytes == GB


amounts = st.integers(min_value=0, max_value=10**12)
worths = st.floats(min_value=0.0, max_value=1.0)


@given(last=amounts, more=amounts, worth=worths, wanted=worths)
def test_losing_more_last_copies_or_more_wanted_ones_never_costs_less(
    last: int, more: int, worth: float, wanted: float
) -> None:
    base = loss(worker("x", last=last, worth=worth))
    assert 0 <= base <= loss(worker("x", last=last + more, worth=worth))
    assert base <= loss(worker("x", last=last, worth=max(worth, wanted)))


@given(
    found=st.lists(st.tuples(amounts, worths, st.booleans()), max_size=6),
    shuffle=st.randoms(use_true_random=False),
)
def test_who_leaves_does_not_depend_on_the_order_and_runs_no_job_while_another_runs_none(
    found: list[tuple[int, float, bool]], shuffle: random.Random
) -> None:
    workers = [
        worker(f"n{i}", last=last, worth=worth, jobs=jobs) for i, (last, worth, jobs) in enumerate(found)
    ]
    first = leaves_first(workers)
    assert first == leaves_first(shuffle.sample(workers, len(workers)))
    assert (first is None) == (not workers)
    if first is not None and first.runs_jobs:
        assert all(one.runs_jobs for one in workers)


def test_last_copies_move_to_the_emptiest_node_first() -> None:
    held = (Held(dataset="a", held_bytes=3, last_copy_bytes=3),)
    others = [
        Worker(node="full", free_bytes=1),
        Worker(node="empty", free_bytes=9),
        Worker(node="half", free_bytes=5),
    ]
    plan = drain_plan(draining=Worker(node="gone", free_bytes=0, held=held), others=others)
    assert [(move.to_node, move.moved_bytes) for move in plan.moves] == [("empty", 3)]
