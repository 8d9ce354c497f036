"""The store of the simulation: nothing is given twice, and everyone gets a fair part."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs_labs.store import StoreLimits, fair_level

amounts = st.floats(min_value=0.0, max_value=1e12)


@given(demands=st.lists(amounts, max_size=20), capacity=amounts)
def test_readers_get_no_more_than_there_is_and_no_more_than_they_ask_for(
    demands: list[float], capacity: float
) -> None:
    level = fair_level(demands=demands, capacity=capacity)
    given_ = [min(want, level) for want in demands]
    assert all(0 <= share <= want for share, want in zip(given_, demands, strict=True))
    assert sum(given_) == pytest.approx(min(sum(demands), capacity), rel=1e-6)


@given(demands=st.lists(amounts, min_size=1, max_size=20), capacity=st.floats(min_value=1.0, max_value=1e12))
def test_who_gets_less_than_asked_has_no_less_than_anyone_else(demands: list[float], capacity: float) -> None:
    level = fair_level(demands=demands, capacity=capacity)
    given_ = [min(want, level) for want in demands]
    short = [share for share, want in zip(given_, demands, strict=True) if share < want]
    assert all(share >= max(given_) * (1 - 1e-9) for share in short)


def test_with_enough_for_all_there_is_no_level() -> None:
    assert fair_level(demands=[1.0, 2.0], capacity=3.0) == math.inf
    assert fair_level(demands=[1.0, 9.0], capacity=5.0) == 4.0


@given(size=st.floats(min_value=1.0, max_value=1e9))
def test_a_reader_within_its_share_of_the_store_exceeds_neither_limit(size: float) -> None:
    store = StoreLimits(bytes_per_second=1.25e9, requests_per_second=10_000)
    rate = 1.0 / store.share_per_byte(object_bytes=size)
    assert rate <= store.bytes_per_second * (1 + 1e-9)
    assert rate / size <= store.requests_per_second * (1 + 1e-9)
