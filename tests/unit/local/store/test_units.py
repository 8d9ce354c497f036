"""Rates and sizes of the object store as people write them."""

import pytest
from deploy.images.store.tdcs_store.units import (
    MAX_RATE,
    MIN_RATE,
    UnitError,
    format_rate,
    parse_rate,
    parse_size,
    parse_sizes,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("200mbit", 200_000_000),
        ("1gbit", 1_000_000_000),
        (" 2.5 Gbit ", 2_500_000_000),
        ("500kbit", 500_000),
        ("100000bit", 100_000),
        ("unlimited", None),
    ],
)
def test_a_rate_is_read_in_bits_per_second(text: str, bits: int | None) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize(
    "text", ["", "200", "200mb", "200mbps", "-5mbit", "fast", "0mbit", "1kbit", "1000gbit"]
)
def test_what_is_no_rate_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(UnitError, match="bit"):
        parse_rate(text)


@given(st.one_of(st.none(), st.integers(MIN_RATE, MAX_RATE)))
def test_a_written_rate_reads_back_the_same(rate: int | None) -> None:
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("17", 17),
        ("100KiB", 102_400),
        ("100Ki", 102_400),
        ("2MB", 2_000_000),
        ("1.5g", 1_500_000_000),
        ("5b", 5),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "10 potatoes", "-1", "1e6"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="is not a size"):
        parse_size(text)


def test_a_range_of_sizes_has_a_smallest_and_a_largest() -> None:
    assert parse_sizes("10KiB-200KiB") == (10_240, 204_800)
    assert parse_sizes("7") == (7, 7)
    with pytest.raises(UnitError, match="2-9"):
        parse_sizes("9-2")
