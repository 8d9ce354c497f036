"""How long ago a time was, also by clocks that are wrong."""

import math

import pytest

from tdcs.api.durations import past, seconds_since

NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("time", "age", "written"),
    [
        ("2025-12-31T23:59:50Z", 10, "2025-12-31T23:59:50Z"),
        (NOW, 0, NOW),
        # Two machines' clocks are never quite the same.
        ("2026-01-01T00:01:00Z", 0, "2026-01-01T00:01:00Z"),
        ("2026-01-01T00:01:01Z", math.inf, NOW),
        ("2027-01-01T00:00:00Z", math.inf, NOW),
    ],
)
def test_a_time_that_is_still_to_come_is_as_old_as_can_be_and_is_written_as_now(
    time: str, age: float, written: str
) -> None:
    assert seconds_since(time, now=NOW) == age
    assert past(time, now=NOW) == written
