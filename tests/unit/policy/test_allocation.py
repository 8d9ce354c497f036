"""Cache and bandwidth: nothing is given twice, what saves most comes first, everyone gets a fair part."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.policy.allocation import (
    DatasetDemand,
    StoreLimits,
    allocate,
    allocate_cache,
    fair_level,
    saved_per_byte,
    water_fill,
)

amounts = st.floats(min_value=0.0, max_value=1e12)


@st.composite
def demands(draw: st.DrawFn) -> list[DatasetDemand]:
    count = draw(st.integers(min_value=0, max_value=8))
    return [
        DatasetDemand(
            name=f"d{i}",
            size_bytes=draw(st.floats(min_value=1.0, max_value=1e12)),
            demand=draw(amounts),
            held_bytes=draw(amounts),
            floor_bytes=draw(st.sampled_from([0.0, 1e6])),
        )
        for i in range(count)
    ]


@given(asked=st.lists(amounts, max_size=20), capacity=amounts)
def test_water_filling_gives_no_more_than_there_is_and_no_more_than_is_asked(
    asked: list[float], capacity: float
) -> None:
    given_ = water_fill(demands=asked, capacity=capacity)
    assert all(0 <= share <= want for share, want in zip(given_, asked, strict=True))
    assert sum(given_) <= capacity * (1 + 1e-9)
    assert sum(given_) == pytest.approx(min(sum(asked), capacity), rel=1e-6)


@given(asked=st.lists(amounts, min_size=1, max_size=20), capacity=st.floats(min_value=1.0, max_value=1e12))
def test_who_gets_less_than_asked_has_no_less_than_anyone_else(asked: list[float], capacity: float) -> None:
    given_ = water_fill(demands=asked, capacity=capacity)
    short = [share for share, want in zip(given_, asked, strict=True) if share < want]
    assert all(share >= max(given_) * (1 - 1e-9) for share in short)


def test_with_enough_for_all_there_is_no_level() -> None:
    assert fair_level(demands=[1.0, 2.0], capacity=3.0) == math.inf
    assert fair_level(demands=[1.0, 9.0], capacity=5.0) == 4.0


@given(datasets=demands(), cache=amounts)
def test_cache_grants_keep_to_the_cache_and_to_the_datasets(
    datasets: list[DatasetDemand], cache: float
) -> None:
    grants = allocate_cache(datasets=datasets, cache_bytes=cache, margin=0.5)
    assert sum(grants.values()) <= cache * (1 + 1e-9) + 1e-6
    for one in datasets:
        assert 0 <= grants[one.name] <= one.size_bytes * (1 + 1e-9)


@given(datasets=demands(), cache=amounts, more=amounts)
def test_a_larger_cache_never_gives_a_dataset_less(
    datasets: list[DatasetDemand], cache: float, more: float
) -> None:
    before = allocate_cache(datasets=datasets, cache_bytes=cache)
    after = allocate_cache(datasets=datasets, cache_bytes=cache + more)
    assert all(after[name] >= before[name] * (1 - 1e-9) - 1e-3 for name in before)


@given(datasets=demands(), cache=amounts, other=st.randoms(use_true_random=False))
def test_no_other_split_of_the_cache_saves_more(datasets: list[DatasetDemand], cache: float, other) -> None:  # type: ignore[no-untyped-def]
    free = [DatasetDemand(name=one.name, size_bytes=one.size_bytes, demand=one.demand) for one in datasets]
    grants = allocate_cache(datasets=free, cache_bytes=cache)
    shuffled, left, saved = other.sample(free, len(free)), cache, 0.0
    for one in shuffled:
        part = min(one.size_bytes, left) * other.random()
        saved += part * saved_per_byte(one)
        left -= part
    assert sum(grants[one.name] * saved_per_byte(one) for one in free) >= saved * (1 - 1e-9)


def test_bytes_that_are_there_are_not_pushed_out_by_ones_worth_little_more() -> None:
    old = DatasetDemand(name="old", size_bytes=100, demand=100, held_bytes=100)
    for demand, winner in ((120, "old"), (200, "new")):
        new = DatasetDemand(name="new", size_bytes=100, demand=demand)
        grants = allocate_cache(datasets=[new, old], cache_bytes=100, margin=0.5)
        assert grants[winner] == 100


@given(datasets=demands(), cache=amounts, bandwidth=amounts)
def test_cache_and_bandwidth_are_never_promised_twice(
    datasets: list[DatasetDemand], cache: float, bandwidth: float
) -> None:
    grants = allocate(datasets=datasets, cache_bytes=cache, remote_rate=bandwidth)
    assert sum(grant.remote_rate for grant in grants) <= bandwidth * (1 + 1e-9) + 1e-6
    assert sum(grant.cache_bytes for grant in grants) <= cache * (1 + 1e-9) + 1e-6


@given(size=st.floats(min_value=1.0, max_value=1e9))
def test_a_reader_within_its_share_of_the_store_exceeds_neither_limit(size: float) -> None:
    store = StoreLimits(bytes_per_second=1.25e9, requests_per_second=10_000)
    rate = 1.0 / store.share_per_byte(object_bytes=size)
    assert rate <= store.bytes_per_second * (1 + 1e-9)
    assert rate / size <= store.requests_per_second * (1 + 1e-9)


@given(datasets=demands(), cache=amounts)
def test_floors_are_met_whatever_the_demand_as_far_as_the_cache_goes(
    datasets: list[DatasetDemand], cache: float
) -> None:
    grants = allocate_cache(datasets=datasets, cache_bytes=cache)
    floors = [min(one.floor_bytes, one.size_bytes) for one in datasets]
    if sum(floors) <= cache:
        assert all(
            grants[one.name] >= floor * (1 - 1e-9) for one, floor in zip(datasets, floors, strict=True)
        )


def test_a_floor_comes_before_a_dataset_that_saves_more() -> None:
    idle = DatasetDemand(name="idle", size_bytes=100, demand=0, floor_bytes=40)
    busy = DatasetDemand(name="busy", size_bytes=100, demand=100)
    assert allocate_cache(datasets=[busy, idle], cache_bytes=100) == {"idle": 40, "busy": 60}
