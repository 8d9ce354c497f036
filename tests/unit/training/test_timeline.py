"""What a full pipeline takes when only so many mini-batches are in flight."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs_train.plan.stage import Stage, warmup_counts
from tdcs_train.plan.timeline import steady_seconds


def pipeline(
    *seconds: float,
    ways: Sequence[float],
    replicas: Sequence[int] = (),
    sync: float = 0.0,
    ahead: int = 0,
) -> list[Stage]:
    """Stages of which a third is forward; `ways` are those of the tensors between them."""
    counts = replicas or [1] * len(seconds)
    warmups = warmup_counts(counts, ahead=ahead)
    return [
        Stage(
            nodes=(),
            replicas=count,
            compute_seconds=compute,
            forward_seconds=compute / 3,
            arriving_seconds=way,
            sync_seconds=sync if count > 1 else 0.0,
            transfer_seconds=2 * way / count,
            warmup=warmup,
            versions=warmup + 1,
            memory_bytes=0.0,
        )
        for compute, way, count, warmup in zip(seconds, [0.0, *ways], counts, warmups, strict=True)
    ]


def test_without_transfers_it_is_the_slowest_stage() -> None:
    assert steady_seconds(pipeline(0.08, 0.07, ways=[0.0])) == pytest.approx(0.08)
    assert steady_seconds(pipeline(0.3, 0.1, ways=[0.0], replicas=[3, 1])) == pytest.approx(0.1, rel=0.02)


def test_short_transfers_are_hidden_behind_the_slowest_stage() -> None:
    assert steady_seconds(pipeline(0.08, 0.05, ways=[0.01])) == pytest.approx(0.08)


def test_long_transfers_cost_the_way_of_a_mini_batch_over_those_in_flight() -> None:
    """Two are in flight: one's way through both stages and back may take as long as two of them together."""
    assert steady_seconds(pipeline(0.08, 0.07, ways=[0.03])) == pytest.approx((0.15 + 2 * 0.03) / 2)
    assert steady_seconds(pipeline(1, 1, 1, 1, ways=[0.5] * 3)) == pytest.approx((4 + 6 * 0.5) / 4, rel=0.02)


def test_one_more_in_flight_hides_transfers_up_to_what_the_link_takes() -> None:
    assert steady_seconds(pipeline(0.08, 0.07, ways=[0.03], ahead=1)) == pytest.approx(0.08)
    assert steady_seconds(pipeline(1, 1, 1, 1, ways=[0.1] * 3)) == pytest.approx(1.15)
    assert steady_seconds(pipeline(1, 1, 1, 1, ways=[0.1] * 3, ahead=1)) == pytest.approx(1.0)
    assert steady_seconds(pipeline(0.08, 0.07, ways=[0.2], ahead=9)) >= 0.2 - 1e-9


@pytest.mark.parametrize(
    ("ahead", "replicas"), [(9, [1, 1, 1, 1]), (64, [1, 1, 1, 1]), (64, [3, 1]), (64, [1, 2])]
)
def test_however_many_are_in_flight_a_mini_batch_takes_what_the_slowest_stage_does(
    ahead: int, replicas: list[int]
) -> None:
    seconds = [count * 1.0 for count in replicas]
    ways = [0.1] * (len(replicas) - 1)
    assert steady_seconds(pipeline(*seconds, ways=ways, replicas=replicas, ahead=ahead)) == pytest.approx(1.0)


def test_replicas_wait_for_the_average_of_their_gradients() -> None:
    assert steady_seconds(pipeline(0.3, ways=[], replicas=[3], sync=0.06)) == pytest.approx(0.12)
    stages = pipeline(0.3, 0.1, ways=[0.0], replicas=[3, 1], sync=0.06)
    assert steady_seconds(stages) == pytest.approx(0.12, rel=0.03)


@settings(max_examples=6, deadline=None)
@given(
    seconds=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=4),
    replicas=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    way=st.floats(0.0, 0.5),
)
def test_it_is_never_less_than_the_slowest_stage_nor_more_than_all_acts_in_turn(
    seconds: list[float], replicas: list[int], way: float
) -> None:
    counts = replicas[: len(seconds)]
    period = steady_seconds(pipeline(*seconds, ways=[way] * (len(seconds) - 1), replicas=counts))
    slowest = max(compute / count for compute, count in zip(seconds, counts, strict=True))
    assert 0.97 * slowest <= period <= 1.03 * (sum(seconds) + 2 * way * (len(seconds) - 1))
