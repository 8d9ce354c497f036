"""The order of a pipeline's worker follows from its actors' registers; stages never wait for each other for ever."""

import math
import time
from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pipeline_order import one_forward_one_backward

from tdcs_train.actors import ActorPlan, RegisterSpec, Task, check
from tdcs_train.actors.task import no_kernel
from tdcs_train.errors import InputError
from tdcs_train.pipeline import credits
from tdcs_train.pipeline.order import Act, check_counts, neighbours, place_of, share, warm_up

REPLICAS = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("replicas", "counts"), [((3, 1), [1, 0]), ((1, 1, 1, 1), [3, 2, 1, 0]), ((1, 2, 1), [3, 1, 0])]
)
def test_the_warm_up_of_a_stage_is_the_published_one(replicas: tuple[int, ...], counts: list[int]) -> None:
    assert [warm_up(replicas, stage) for stage in range(len(replicas))] == counts


def acted(batches: Sequence[int], *, ahead: int, delays: Sequence[float] = (0.0,)) -> list[Act]:
    """What the actors of a worker do, each act late by one of some delays."""
    done: list[Act] = []

    def forward(batch: int) -> None:
        time.sleep(delays[2 * batch % len(delays)])
        done.append(Act("forward", batch))

    def backward(batch: int) -> None:
        time.sleep(delays[(2 * batch + 1) % len(delays)])
        done.append(Act("backward", batch))

    credits.run(batches, warm_up=ahead, forward=forward, backward=backward)
    return done


def test_warm_up_and_one_registers_give_one_forward_and_one_backward_in_turn() -> None:
    order = [f"{act.direction[0].upper()}{act.batch}" for act in acted(range(6), ahead=2)]
    assert order == ["F0", "F1", "F2", "B0", "F3", "B1", "F4", "B2", "F5", "B3", "B4", "B5"]


@settings(max_examples=40, deadline=None)
@given(
    ahead=st.integers(0, 5),
    batches=st.lists(st.integers(0, 1000), max_size=12, unique=True),
    delays=st.lists(st.floats(0.0, 0.0005), min_size=1, max_size=8),
)
def test_the_actors_of_a_worker_keep_the_published_order_whatever_is_late(
    ahead: int, batches: list[int], delays: list[float]
) -> None:
    assert acted(batches, ahead=ahead, delays=delays) == one_forward_one_backward(batches, warm_up=ahead)


def test_no_more_mini_batches_are_in_flight_than_there_are_registers() -> None:
    in_flight = most = 0
    for act in acted(range(30), ahead=3):
        in_flight += 1 if act.direction == "forward" else -1
        most = max(most, in_flight)
    assert (most, in_flight) == (4, 0)


def test_a_plan_whose_backward_waits_for_more_forwards_than_there_are_registers_is_refused() -> None:
    def plan(count: int) -> ActorPlan:
        registers = (RegisterSpec(name="in flight", count=count), RegisterSpec(name="ahead", lag=3))
        return ActorPlan(
            (
                Task(name="forward", kernel=no_kernel, produces=registers),
                Task(name="backward", kernel=no_kernel, consumes=("in flight", "ahead")),
            )
        )

    check(plan(4))
    with pytest.raises(InputError, match="too few registers: in flight of forward has 3 and needs 4"):
        check(plan(3))


@pytest.mark.parametrize("error", [ValueError("no such file"), SystemExit(3)])
def test_what_ends_a_forward_ends_the_worker_with_the_same_error(error: BaseException) -> None:
    def forward(batch: int) -> None:
        if batch == 4:
            raise error

    with pytest.raises(type(error)) as raised:
        credits.run(range(9), warm_up=1, forward=forward, backward=lambda _: None)
    assert raised.value is error


@given(replicas=REPLICAS)
def test_every_mini_batch_goes_to_one_replica_of_each_stage_and_neighbours_know_each_other(
    replicas: tuple[int, ...],
) -> None:
    places = [place_of(rank, replicas) for rank in range(sum(replicas))]
    assert [place.rank for place in places] == list(range(sum(replicas)))
    for stage in range(len(replicas)):
        in_stage = [place for place in places if place.stage == stage]
        assert sorted(batch for place in in_stage for batch in share(place, first=0, count=24)) == list(
            range(24)
        )
    for place in places:
        for neighbour in places:
            if neighbour.stage == place.stage + 1:
                meet = bool(set(share(place, first=0, count=144)) & set(share(neighbour, first=0, count=144)))
                assert (neighbour.replica in neighbours(place, step=1)) == meet
                assert (place.replica in neighbours(neighbour, step=-1)) == meet


@given(replicas=REPLICAS)
def test_stages_that_step_in_whole_rounds_never_wait_for_each_other_forever(
    replicas: tuple[int, ...],
) -> None:
    assert comes_to_its_end(replicas)


def test_a_number_of_mini_batches_that_replicas_cannot_share_is_refused_with_one_that_fits() -> None:
    with pytest.raises(
        InputError, match=r"20 mini-batches .* 3 replicas of stage 0: give a multiple of 6, such as 18"
    ):
        check_counts((3, 2), 20)
    check_counts((3, 2), 18)


def comes_to_its_end(replicas: Sequence[int]) -> bool:
    """Whether a run of some rounds comes to its end: each act is done as soon as what it needs is there."""
    count = math.lcm(*replicas) * (max(warm_up(replicas, 0), 1) + 2)
    lines = {
        (stage, replica): deque(
            one_forward_one_backward(range(replica, count, replicas[stage]), warm_up=warm_up(replicas, stage))
        )
        for stage in range(len(replicas))
        for replica in range(replicas[stage])
    }
    done: set[tuple[int, Act]] = set()
    moved = True
    while moved:
        moved = False
        for (stage, _), line in lines.items():
            while line and _possible(stage, line[0], replicas, done, lines):
                done.add((stage, line.popleft()))
                moved = True
    return not any(lines.values())


def _possible(
    stage: int,
    act: Act,
    replicas: Sequence[int],
    done: set[tuple[int, Act]],
    lines: dict[tuple[int, int], deque[Act]],
) -> bool:
    if act.direction == "forward":
        before = Act("backward", act.batch - (warm_up(replicas, stage) + 1) * replicas[stage])
        return (stage == 0 or (stage - 1, act) in done) and _round_done(stage, before, replicas, done, lines)
    return stage == len(replicas) - 1 or (stage + 1, act) in done


def _round_done(
    stage: int,
    act: Act,
    replicas: Sequence[int],
    done: set[tuple[int, Act]],
    lines: dict[tuple[int, int], deque[Act]],
) -> bool:
    """Whether the gradients of the round of a mini-batch are averaged: all its backwards have begun."""
    first = act.batch - act.batch % replicas[stage]
    return act.batch < 0 or all(
        (stage, Act("backward", batch)) in done for batch in range(first, first + replicas[stage])
    )
