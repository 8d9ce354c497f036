"""What leaves the cache, and what never does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.policy.eviction import HALF_LIFE, Candidate, Policy, choose, lrfu, lru, next_use

POLICIES = (lru, lrfu, next_use)


def candidates() -> st.SearchStrategy[list[Candidate]]:
    one = st.builds(
        Candidate,
        name=st.uuids().map(str),
        held_bytes=st.floats(min_value=0, max_value=1e12),
        active_jobs=st.integers(min_value=0, max_value=2),
        pinned=st.booleans(),
        expires_at=st.none() | st.floats(min_value=0, max_value=200),
        last_used=st.floats(min_value=0, max_value=100),
        uses=st.lists(st.floats(min_value=0, max_value=100), max_size=5),
        next_use=st.none() | st.integers(min_value=0, max_value=50),
    )
    return st.lists(one, max_size=10, unique_by=lambda candidate: candidate.name)


@given(found=candidates(), needed=st.floats(min_value=0, max_value=1e13), policy=st.sampled_from(POLICIES))
def test_pinned_read_and_timed_datasets_stay_and_no_more_leaves_than_is_needed(
    found: list[Candidate], needed: float, policy: Policy
) -> None:
    by_name = {one.name: one for one in found}
    victims = choose(candidates=found, needed_bytes=needed, now=100.0, policy=policy)
    assert len({victim.name for victim in victims}) == len(victims)
    for victim in victims:
        one = by_name[victim.name]
        assert not one.pinned
        assert one.active_jobs == 0
        assert one.expires_at is None or one.expires_at <= 100.0
        assert 0 < victim.freed_bytes <= one.held_bytes
    may_leave = sum(
        one.held_bytes
        for one in found
        if not one.pinned and not one.active_jobs and (one.expires_at is None or one.expires_at <= 100.0)
    )
    assert sum(victim.freed_bytes for victim in victims) == pytest.approx(min(needed, may_leave))


@given(found=candidates(), policy=st.sampled_from(POLICIES), shuffle=st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_does_not_matter(found, policy, shuffle) -> None:  # type: ignore[no-untyped-def]
    once = choose(candidates=found, needed_bytes=1e11, now=100.0, policy=policy)
    again = choose(candidates=shuffle.sample(found, len(found)), needed_bytes=1e11, now=100.0, policy=policy)
    assert once == again


def test_each_policy_lets_its_own_one_go_first() -> None:
    found = [
        Candidate(name="old but often", held_bytes=1, last_used=80, uses=[70, 74, 76, 80], next_use=0),
        Candidate(name="new but once", held_bytes=1, last_used=90, uses=[90], next_use=7),
        Candidate(name="newest, nobody waits", held_bytes=1, last_used=95, uses=[85, 90, 95]),
    ]
    day = HALF_LIFE / 20
    found = [
        replace(one, last_used=one.last_used * day, uses=[use * day for use in one.uses]) for one in found
    ]
    first = [
        choose(candidates=found, needed_bytes=1, now=100 * day, policy=policy)[0].name for policy in POLICIES
    ]
    assert first == ["old but often", "new but once", "newest, nobody waits"]


def test_a_timed_dataset_stays_until_it_is_due_then_leaves_before_all_others() -> None:
    timed = Candidate(name="timed", held_bytes=5, expires_at=50.0, last_used=49.0)
    other = Candidate(name="other", held_bytes=5, last_used=1.0)
    assert [one.name for one in choose(candidates=[timed, other], needed_bytes=9, now=40)] == ["other"]
    assert [one.name for one in choose(candidates=[timed, other], needed_bytes=5, now=50)] == ["timed"]


def test_a_use_counts_half_after_a_half_life() -> None:
    # Two uses of long ago are worth one of a half-life later.
    twice = Candidate(name="twice", held_bytes=1, uses=[0.0, 0.0])
    assert lrfu(twice) == pytest.approx(HALF_LIFE)
    once = Candidate(name="once", held_bytes=1, last_used=7.0)
    assert lrfu(once) == 7.0


@given(
    found=candidates(),
    needed=st.floats(min_value=0, max_value=1e13),
    more=st.floats(min_value=0, max_value=1e13),
    policy=st.sampled_from(POLICIES),
)
def test_needing_more_room_spares_nobody_who_had_to_leave(
    found: list[Candidate], needed: float, more: float, policy: Policy
) -> None:
    few = choose(candidates=found, needed_bytes=needed, now=100.0, policy=policy)
    many = choose(candidates=found, needed_bytes=needed + more, now=100.0, policy=policy)
    assert [one.name for one in many[: len(few)]] == [one.name for one in few]
    freed = {one.name: one.freed_bytes for one in many}
    assert all(freed[one.name] >= one.freed_bytes for one in few)


@given(uses=st.lists(st.floats(min_value=0, max_value=1e7), min_size=1, max_size=8), more=st.floats(0, 1e7))
def test_a_further_use_makes_a_dataset_worth_more_and_at_least_as_much_as_its_last_use(
    uses: list[float], more: float
) -> None:
    before = lrfu(Candidate(name="x", held_bytes=1, uses=uses))
    assert before >= max(uses)
    assert lrfu(Candidate(name="x", held_bytes=1, uses=[*uses, more])) >= before - 1e-6


def test_the_dataset_that_is_needed_latest_leaves_first_and_the_next_one_last() -> None:
    found = [Candidate(name=f"in {place}", held_bytes=1, next_use=place) for place in (1, 9, 4)]
    found.append(Candidate(name="never", held_bytes=1))
    order = choose(candidates=found, needed_bytes=4, now=0, policy=next_use)
    assert [one.name for one in order] == ["never", "in 9", "in 4", "in 1"]


@pytest.mark.parametrize("policy", POLICIES)
def test_among_equals_the_least_recently_used_leaves_first_then_the_first_by_name(policy: Policy) -> None:
    found = [
        Candidate(name=name, held_bytes=1, last_used=last, next_use=3)
        for name, last in (("c", 5.0), ("b", 9.0), ("a", 9.0))
    ]
    order = choose(candidates=found, needed_bytes=3, now=10, policy=policy)
    assert [one.name for one in order] == ["c", "a", "b"]


def test_a_timed_dataset_that_is_due_leaves_before_a_less_recently_used_one() -> None:
    found = [
        Candidate(name="old", held_bytes=1, last_used=0.0),
        Candidate(name="due late", held_bytes=1, last_used=9.0, expires_at=1.0),
        Candidate(name="due", held_bytes=1, last_used=8.0, expires_at=2.0),
    ]
    order = choose(candidates=found, needed_bytes=3, now=10)
    assert [one.name for one in order] == ["due", "due late", "old"]
