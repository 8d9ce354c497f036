"""In which order idle datasets leave, by each policy."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.cache.eviction_order import FUTURE, HALF_LIFE, EvictionCandidate, lrfu, lru, next_use

POLICIES = (lru, lrfu, next_use)


def test_each_policy_lets_its_own_one_go_first() -> None:
    candidates = [
        EvictionCandidate(
            name="old but often", held_bytes=1, last_used=80, uses=[70, 74, 76, 80], next_use=0
        ),
        EvictionCandidate(name="new but once", held_bytes=1, last_used=90, uses=[90], next_use=7),
        EvictionCandidate(name="newest, nobody waits", held_bytes=1, last_used=95, uses=[85, 90, 95]),
    ]
    day = HALF_LIFE / 20
    candidates = [
        replace(candidate, last_used=candidate.last_used * day, uses=[use * day for use in candidate.uses])
        for candidate in candidates
    ]
    first = [min(candidates, key=policy).name for policy in POLICIES]
    assert first == ["old but often", "new but once", "newest, nobody waits"]


def test_a_use_counts_half_after_a_half_life() -> None:
    # Two uses of long ago are worth one of a half-life later.
    twice = EvictionCandidate(name="twice", held_bytes=1, uses=[0.0, 0.0])
    assert lrfu(twice) == pytest.approx(HALF_LIFE)
    once = EvictionCandidate(name="once", held_bytes=1, last_used=7.0)
    assert lrfu(once) == 7.0


@given(uses=st.lists(st.floats(min_value=0, max_value=1e7), min_size=1, max_size=8), more=st.floats(0, 1e7))
def test_a_further_use_makes_a_dataset_worth_more_and_at_least_as_much_as_its_last_use(
    uses: list[float], more: float
) -> None:
    before = lrfu(EvictionCandidate(name="x", held_bytes=1, uses=uses))
    assert before >= max(uses)
    assert lrfu(EvictionCandidate(name="x", held_bytes=1, uses=[*uses, more])) >= before - 1e-6


def test_the_dataset_that_is_needed_latest_leaves_first_and_the_next_one_last() -> None:
    candidates = [EvictionCandidate(name=f"in {place}", held_bytes=1, next_use=place) for place in (1, 9, 4)]
    candidates.append(EvictionCandidate(name="never", held_bytes=1, last_used=1e9))
    assert [candidate.name for candidate in sorted(candidates, key=next_use)] == [
        "never",
        "in 9",
        "in 4",
        "in 1",
    ]


@given(last=st.floats(min_value=0, max_value=1e10), place=st.integers(min_value=0, max_value=100_000))
def test_what_a_job_waits_for_stays_before_whatever_was_used_and_nobody_waits_for(
    last: float, place: int
) -> None:
    waited = EvictionCandidate(name="a", held_bytes=1, next_use=place)
    assert next_use(waited) > next_use(EvictionCandidate(name="b", held_bytes=1, last_used=last))
    assert next_use(waited) <= FUTURE
