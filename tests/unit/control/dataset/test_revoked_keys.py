"""When refused keys count as revoked: after an hour after the first refusal, whatever becomes of the operator."""

import datetime

import pytest

from tdcs.control.context import WorkKey
from tdcs.control.dataset.access.revoked_keys import RevokedKeys
from tdcs.model.kube_resources import DATASETS

KEY = WorkKey(DATASETS, "n", "pictures")
START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


class Operator:
    """A process with a clock of its own, and the time of day; `written` is what the status says."""

    def __init__(self, *, at: float = 0.0, written: str | None = None) -> None:
        self.clock, self.began, self.written = 0.0, at, written
        self.keys = RevokedKeys(
            seconds=3600.0, grace=600.0, clock=lambda: self.clock, now=lambda: self.time(self.clock)
        )

    def time(self, seconds: float) -> str:
        return (START + datetime.timedelta(seconds=self.began + seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def note(self, refused: bool | None, *, at: float) -> float | None:
        self.clock = at
        seconds = self.keys.note(KEY, refused=refused, written=self.written)
        self.written = self.keys.since(KEY, written=self.written)
        return seconds


@pytest.mark.threat("revoked-keys-mounted")
def test_keys_are_revoked_an_hour_after_the_first_refusal() -> None:
    operator = Operator()
    assert operator.note(None, at=0) is None
    assert operator.note(True, at=10) == 3600
    assert operator.note(None, at=20) == 3590
    assert operator.written == "2026-03-01T12:00:10Z"
    operator.clock = 3609
    assert not operator.keys.are_revoked(KEY)
    operator.clock = 3610
    assert operator.keys.are_revoked(KEY)


@pytest.mark.threat("revoked-keys-mounted")
def test_a_cache_that_is_away_begins_nothing_again() -> None:
    operator = Operator()
    operator.note(True, at=0)
    operator.keys.unanswered(KEY)
    assert operator.note(True, at=3000) == 600


@pytest.mark.threat("revoked-keys-mounted")
def test_keys_that_the_source_takes_begin_again() -> None:
    operator = Operator()
    operator.note(True, at=0)
    assert operator.note(False, at=3000) is None
    assert operator.written is None
    assert operator.note(None, at=3001) is None
    assert operator.note(True, at=3002) == 3600


@pytest.mark.threat("revoked-keys-mounted")
def test_a_refusal_after_a_restart_counts_from_the_first_one() -> None:
    for restarts in range(1, 13):
        operator = Operator(at=restarts * 300.0, written="2026-03-01T12:00:00Z")
        assert operator.note(None, at=1) == max(3600 - restarts * 300 - 1, 600)
        assert operator.note(True, at=2) == max(3600 - restarts * 300 - 2, 0)
        assert operator.written == "2026-03-01T12:00:00Z"


@pytest.mark.threat("revoked-keys-mounted")
def test_a_source_that_says_nothing_after_a_restart_has_the_time_to_be_asked() -> None:
    operator = Operator(at=86_400, written="2026-03-01T12:00:00Z")
    assert operator.note(None, at=0) == 600
    operator.clock = 500
    operator.keys.unanswered(KEY)  # the cache is away
    operator.clock = 1000
    assert not operator.keys.are_revoked(KEY)
    assert operator.note(None, at=1000) == 100
    operator.clock = 1100
    assert operator.keys.are_revoked(KEY)


@pytest.mark.threat("revoked-keys-mounted")
def test_a_time_that_is_still_to_come_counts_from_now_on() -> None:
    operator = Operator(written="2027-01-01T00:00:00Z")
    assert operator.note(True, at=0) == 3600
    assert operator.written == "2026-03-01T12:00:00Z"


@pytest.mark.threat("revoked-keys-mounted")
def test_what_is_mounted_again_has_an_hour_again() -> None:
    operator = Operator(at=86_400, written="2026-03-01T12:00:00Z")
    operator.keys.begin(KEY)
    assert operator.note(None, at=0) is None
    assert operator.written is None
    assert operator.note(True, at=1) == 3600
