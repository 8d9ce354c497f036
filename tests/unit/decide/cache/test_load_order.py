"""Loading ahead: never more than there is, most worth first, nobody waits forever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.cache.load_order import Load, Subset, budget, share

amounts = st.floats(min_value=0.0, max_value=1e10)
loads_ = st.lists(
    st.builds(
        Load,
        name=st.uuids().map(str),
        missing_bytes=amounts,
        worth=amounts,
        waiting_jobs=st.integers(min_value=0, max_value=9),
        limit=st.floats(min_value=1.0, max_value=1e10) | st.just(float("inf")),
    ),
    max_size=8,
    unique_by=lambda load: load.name,
)


@given(loads=loads_, capacity=amounts)
def test_the_bandwidth_is_not_exceeded_and_none_is_left_while_a_load_could_take_it(
    loads: list[Load], capacity: float
) -> None:
    rates = share(loads=loads, capacity=capacity)
    open_ = [load for load in loads if load.missing_bytes > 0]
    assert sum(rates.values()) <= capacity * (1 + 1e-9)
    assert all(rates[load.name] <= load.limit * (1 + 1e-9) for load in loads)
    assert sum(rates.values()) == pytest.approx(min(capacity, sum(load.limit for load in open_)), rel=1e-6)


@given(loads=loads_, capacity=st.floats(min_value=1.0, max_value=1e10))
def test_a_load_with_a_waiting_job_always_moves(loads: list[Load], capacity: float) -> None:
    rates = share(loads=loads, capacity=capacity)
    assert all(rates[load.name] > 0 for load in loads if load.waiting_jobs and load.missing_bytes > 0)


def test_the_load_that_saves_most_gets_most() -> None:
    loads = [Load(name="much", missing_bytes=9, worth=2.0), Load(name="little", missing_bytes=9, worth=1.0)]
    assert share(loads=loads, capacity=5.0) == {"much": 5.0, "little": 0.0}


@given(capacity=amounts, reading=amounts)
def test_loading_leaves_the_running_jobs_what_they_read_or_half(capacity: float, reading: float) -> None:
    given_ = budget(capacity=capacity, reading=reading)
    assert capacity * 0.5 <= given_ <= capacity
    assert capacity - given_ >= min(reading, capacity * 0.5) - 1e-3


files_ = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "c", "d e", "ü"]), min_size=1, max_size=4).map("/".join),
    st.integers(0, 1000),
    max_size=40,
)


@pytest.mark.parametrize(
    ("subset", "words"),
    [
        ({"fraction": 0.0}, "fraction must be above 0"),
        ({"fraction": 1.5}, "fraction must be above 0"),
        ({"amount": -1}, "amount must not be negative"),
        ({"fraction": 0.5, "amount": 1}, "exclude each other"),
        ({"paths": ("a/../..",)}, "leads out of the source"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(subset: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Subset(**subset)  # type: ignore[arg-type]


def test_the_common_part_is_shared_by_the_number_of_waiting_jobs() -> None:
    """Neither load takes more than its part: a third one, worth most, takes the rest."""
    loads = [
        Load(name="one", missing_bytes=9, worth=0.0, waiting_jobs=1),
        Load(name="nine", missing_bytes=9, worth=0.0, waiting_jobs=9),
        Load(name="worth most", missing_bytes=9, worth=1.0),
    ]
    rates = share(loads=loads, capacity=100.0, waiting_share=0.5)
    assert rates == pytest.approx({"one": 5.0, "nine": 45.0, "worth most": 50.0})
