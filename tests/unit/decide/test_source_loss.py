"""When a source that has less than before is believed."""

from dataclasses import replace

import pytest

from tdcs.decide.source_loss import (
    LossRule,
    SecondCount,
    SourceLoss,
    loss_of,
    loss_text,
    next_look,
    sees_more,
)
from tdcs.model.listing_limit import SourcesSize

RULE = LossRule(percent=50, confirm_seconds=100.0)
BEFORE = SourcesSize(files=100, bytes=1000)


def loss_to(
    files: int, size: int, *, rule: LossRule = RULE, clock: float = 0.0, last: SourceLoss | None = None
) -> SourceLoss | None:
    now = SourcesSize(files=files, bytes=size)
    return loss_of(version="v1", before=BEFORE, now=now, rule=rule, clock=clock, last=last)


@pytest.mark.parametrize(
    ("files", "size", "percent", "lost"),
    [
        (0, 0, 50, True),
        (0, 0, 99, True),
        (0, 0, 100, False),
        (49, 1000, 50, True),
        (50, 500, 50, False),
        (99, 499, 50, True),
        (100, 499, 50, False),  # as many files: they were replaced
        (100, 0, 50, True),  # each of them was cut to nothing
        (99, 990, 0, True),
        (100, 1000, 0, False),
        (1000, 1, 0, False),
    ],
)
def test_a_source_that_lacks_more_than_the_set_share_of_files_or_bytes_has_lost_something(
    files: int, size: int, percent: int, lost: bool
) -> None:
    assert (loss_to(files, size, rule=replace(RULE, percent=percent)) is not None) == lost


def test_what_had_nothing_can_lose_nothing() -> None:
    nothing = SourcesSize()
    assert loss_of(version="v", before=nothing, now=nothing, rule=RULE, clock=0.0, last=None) is None


def test_a_loss_is_believed_when_it_was_found_three_times_over_the_whole_time() -> None:
    last = loss_to(10, 100)
    assert last is not None
    assert loss_to(10, 100, clock=1000.0, last=last) is not None, "twice, whatever the time"
    for clock in (50.0, 99.0):
        last = loss_to(10, 100, clock=clock, last=last)
        assert last is not None
    assert loss_to(10, 100, clock=100.0, last=last) is None


@pytest.mark.parametrize(
    ("second", "believed"),
    [
        (SecondCount(node="b", files=10, bytes=100), True),
        (SecondCount(node="b", files=9, bytes=90), True),  # it finds even less
        (SecondCount(node="b", files=100, bytes=1000), False),
        (SecondCount(node="b", files=10, bytes=1000), False),
        (SecondCount(reason="nobody was asked"), False),
    ],
    ids=["the same", "less", "all", "more bytes", "not counted"],
)
def test_a_loss_is_believed_only_when_another_node_finds_no_more(second: SecondCount, believed: bool) -> None:
    last: SourceLoss | None = None
    for clock in (0.0, 100.0, 200.0, 300.0):
        now = SourcesSize(files=10, bytes=100)
        last = loss_of(version="v1", before=BEFORE, now=now, rule=RULE, clock=clock, last=last, second=second)
        if last is None:
            break
        assert "another node, too" in loss_text(last, rule=RULE, annotation="a")
    assert (last is None) is believed


def test_a_node_that_finds_more_has_the_time_begin_again() -> None:
    now = SourcesSize(files=10, bytes=100)
    last: SourceLoss | None = None
    for clock in (0.0, 50.0, 90.0):
        last = loss_of(version="v1", before=BEFORE, now=now, rule=RULE, clock=clock, last=last)
    more = SecondCount(node="b", files=100, bytes=1000)
    last = loss_of(version="v1", before=BEFORE, now=now, rule=RULE, clock=100.0, last=last, second=more)
    assert last is not None
    assert (last.since, last.times) == (100.0, 1)


def test_a_source_that_loses_more_meanwhile_begins_again() -> None:
    last = loss_to(10, 100)
    for clock in (50.0, 60.0):
        last = loss_to(10, 100, clock=clock, last=last)
    last = loss_to(9, 90, clock=99.0, last=last)
    assert last is not None
    assert (last.since, last.times) == (99.0, 1)


def test_an_empty_source_must_stay_so_for_a_day_and_not_an_hour() -> None:
    last = loss_to(0, 0)
    for clock in (100.0, 200.0, 2399.0):
        last = loss_to(0, 0, clock=clock, last=last)
        assert last is not None
    assert loss_to(0, 0, clock=2400.0, last=last) is None


def test_what_somebody_accepts_of_this_version_is_believed_and_of_another_one_is_not() -> None:
    assert loss_to(0, 0, rule=replace(RULE, accepted=frozenset({"v1"}))) is None
    assert loss_to(0, 0, rule=replace(RULE, accepted=frozenset({"v0"}))) is not None


def test_the_sentence_says_what_was_lost_what_stays_and_what_to_do() -> None:
    loss = loss_to(1, 10)
    assert loss is not None
    text = loss_text(loss, rule=RULE, annotation="tdcs.io/accept-loss")
    for part in (
        "has 1 file (10 bytes)",
        "100 files",
        "nothing is removed",
        "100 s",
        "tdcs.io/accept-loss=v1",
    ):
        assert part in text


def test_a_lost_source_is_looked_at_later_each_time_and_no_later_than_it_would_be_believed() -> None:
    loss = SourceLoss(version="v1", before=BEFORE, now=SourcesSize(files=1, bytes=10), since=1000.0)

    def seconds(times: int, *, clock: float = 1000.0, compared_by: LossRule = RULE) -> float:
        repeated = replace(loss, times=times)
        return next_look(repeated, rule=RULE, compared_by=compared_by, least=10.0, clock=clock)

    assert [seconds(times) for times in (1, 2, 3, 9)] == [10.0, 20.0, 40.0, 100.0]
    assert seconds(9, clock=1060.0) == 40.0
    assert seconds(9, clock=1095.0) == 10.0
    assert seconds(9, compared_by=LossRule(percent=10)) == 0.0


@pytest.mark.parametrize(
    ("witness", "than", "more"),
    [
        (1, 0, True),
        (0, 0, False),
        (20, 5, True),
        (100, 99, False),
        (100, 98, True),
        (5, 20, False),
        (10**6, 990_000, False),
    ],
)
def test_a_node_that_sees_more_than_changes_meanwhile_is_right(witness: int, than: int, more: bool) -> None:
    assert sees_more(witness, than=than) is more
