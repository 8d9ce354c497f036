"""Times that users write: what the schema takes, Python's own reader takes as well, and no other day."""

import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tdcs.api.durations import TIME_PATTERN, Time

READER = TypeAdapter(Time)
DAYS = st.datetimes(
    min_value=datetime.datetime(2000, 1, 1),
    max_value=datetime.datetime(2099, 12, 31),
    timezones=st.just(datetime.UTC),
)


@given(moment=DAYS)
def test_every_time_of_the_century_is_taken(moment: datetime.datetime) -> None:
    assert READER.validate_python(moment.isoformat()) == moment.isoformat()


@given(
    year=st.integers(1990, 2110), month=st.integers(0, 13), day=st.integers(0, 32), hour=st.integers(0, 25)
)
def test_a_day_is_taken_when_there_is_such_a_day(year: int, month: int, day: int, hour: int) -> None:
    text = f"{year:04}-{month:02}-{day:02}T{hour:02}:00:00Z"
    try:
        there = datetime.datetime.fromisoformat(text).year // 100 == 20
    except ValueError:
        there = False
    assert (re.fullmatch(TIME_PATTERN, text) is not None) == there


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-02-30T00:00:00Z",
        "2026-11-01t00:00:00z",
        "0000-01-01T00:00:00Z",
        "2026-11-01T00:00:00",
        "2026-11-01",
        "2026-11-01T24:00:00Z",
    ],
)
def test_what_is_no_time_is_refused_with_one_as_an_example(text: str) -> None:
    with pytest.raises(ValidationError, match="such as 2030-01-31T20:00:00Z"):
        READER.validate_python(text)
