"""When a source is listed again."""

import math

import pytest

from tdcs.api.dataset import DatasetStatus
from tdcs.decide.relisting import next_check, relisting_pause, unwritten_check

NOW = "2026-01-01T01:00:00Z"


@pytest.mark.parametrize(
    ("case", "due", "seconds_left"),
    [
        ({"checked_at": None}, True, 60.0),  # never listed, by any process
        ({"checked_at": 90.0}, False, 50.0),
        ({"checked_at": 40.0}, True, 60.0),
        ({"checked_at": 90.0, "intervals": ("0s", "1h")}, False, 3590.0),
        ({"checked_at": 90.0, "intervals": ("0s",)}, False, math.inf),
        ({"checked_at": 90.0, "took": 10.0}, False, 190.0),  # 20 times as long as a listing takes
        ({"checked_at": 90.0, "asked": "1"}, True, 60.0),
        ({"checked_at": 90.0, "asked": "1", "answered": "1"}, False, 50.0),
        ({"checked_at": 90.0, "asked": "1", "status": {"refreshed": "1"}}, False, 50.0),
        ({"checked_at": 90.0, "asked": "1", "answered": "0", "status": {"refreshed": "1"}}, True, 60.0),
        ({"status": {"lastSourceCheckTime": "2026-01-01T00:59:30Z"}}, False, 30.0),  # by a process before
        ({"status": {"lastSourceCheckTime": "2026-01-01T00:58:30Z"}}, True, 60.0),
    ],
)
def test_a_source_is_listed_by_the_shortest_interval_and_at_once_for_a_new_annotation(
    case: dict[str, object], due: bool, seconds_left: float
) -> None:
    status = case.pop("status", None)
    arguments: dict[str, object] = {
        "intervals": ("5m", "60s"),
        "asked": None,
        "answered": None,
        "checked_at": None,
        "took": 0.0,
        **case,
    }
    check = next_check(
        status=None if status is None else DatasetStatus.model_validate(status),
        clock=100.0,
        now=NOW,
        **arguments,  # type: ignore[arg-type]
    )
    assert (check.due, check.seconds_left) == (due, seconds_left)


def test_the_time_of_a_check_that_changed_nothing_is_written_once_an_hour() -> None:
    assert unwritten_check("2026-01-01T00:30:00Z", now=NOW) == ("lastSourceCheckTime",)
    assert unwritten_check("2026-01-01T00:00:00Z", now=NOW) == ()
    assert unwritten_check(None, now=NOW) == ()


def test_pauses_between_listings_that_change_nothing_double_up_to_the_most() -> None:
    assert [relisting_pause(count, first=30.0, most=200.0) for count in (0, 1, 2, 3, 10**6)] == [
        30.0,
        60.0,
        120.0,
        200.0,
        200.0,
    ]
