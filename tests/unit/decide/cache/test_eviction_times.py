"""Times of `spec.eviction.schedule`."""

import datetime

import pytest

from tdcs.decide.cache.eviction_times import mistake, next_time

WEDNESDAY_NOON = datetime.datetime(2026, 1, 7, 12, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("30 2 * * *", datetime.datetime(2026, 1, 8, 2, 30, tzinfo=datetime.UTC)),
        ("0 12 * * *", datetime.datetime(2026, 1, 8, 12, tzinfo=datetime.UTC)),
        ("0 0 L * *", datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)),
        ("0 0 29 2 *", datetime.datetime(2028, 2, 29, tzinfo=datetime.UTC)),
        ("0 3 * * SUN", datetime.datetime(2026, 1, 11, 3, tzinfo=datetime.UTC)),
    ],
)
def test_the_next_time_of_a_line_is_after_the_moment_and_in_utc(
    line: str, expected: datetime.datetime
) -> None:
    assert next_time(line, after=WEDNESDAY_NOON) == expected.timestamp()
    assert mistake(line) == ""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("60 2 * * *", "bad minute: must be 0-59"),
        ("0 24 * * *", "bad hour: must be 0-23"),
        ("0 0 32 * *", "bad day-of-month: must be 1-31, a day that the month has, or L for the last"),
        ("0 0 * 13 *", "bad month: must be 1-12, or JAN-DEC"),
        ("0 0 * * 8", "bad day-of-week: must be 0-7, or SUN-SAT"),
    ],
)
def test_a_line_that_never_fires_has_no_time_and_names_the_field_and_its_range(line: str, text: str) -> None:
    assert next_time(line, after=WEDNESDAY_NOON) is None
    assert mistake(line) == text


@pytest.mark.parametrize("line", ["0 0 30 2 *", "", "daily"])
def test_every_line_without_a_time_has_a_mistake(line: str) -> None:
    assert next_time(line, after=WEDNESDAY_NOON) is None
    assert mistake(line)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("61 3 * * *", "bad minute: must be 0-59"),
        ("0 24 * * *", "bad hour: must be 0-23"),
        ("0 0 30 2 *", "bad day-of-month: must be 1-31, a day that the month has, or L for the last"),
        ("0 3 * *", "wrong number of fields"),
    ],
)
def test_a_mistake_in_a_schedule_names_what_the_field_may_be(line: str, text: str) -> None:
    assert mistake(line) == text
