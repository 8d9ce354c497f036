"""Priority of a mount for cache space."""

from dataclasses import replace
from typing import Any

import pytest

from tdcs.api.conditions import Condition
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.decide.cache.eviction_order import lrfu, lru, next_use
from tdcs.decide.cache.eviction_times import mistake
from tdcs.decide.cache.grants import GrantTier
from tdcs.decide.cache.mount_standing import CacheUser, DatasetJobs, UsersOfDataset, is_kept_by_twin, standing

NOW = "2026-03-01T12:00:00Z"
EARLIER = "2026-03-01T11:00:00Z"
POLICIES = {"LRU": lru, "LRFU": lrfu, "NextUse": next_use}
JOB = ("n", "job")


def cache_user(
    *,
    policy: str = "LRU",
    ttl: str | None = None,
    schedule: str | None = None,
    active: int = 0,
    waiting: int = 0,
    loaded: str = EARLIER,
    last_used: str | None = None,
    reason: str = "",
    **more: Any,
) -> CacheUser:
    times = {"ttl": ttl, "schedule": schedule}
    eviction = {"policy": policy} | {name: value for name, value in times.items() if value}
    condition = {"type": "Loaded", "status": "True", "reason": "Loaded", "lastTransitionTime": loaded}
    status = {"conditions": [condition], "grant": {"reason": reason}}
    dataset = {"spec": {"source": {"uri": "file:///x"}, "eviction": eviction}, "status": status}
    jobs = DatasetJobs(active=(JOB,) * active, waiting=(JOB,) * waiting)
    return CacheUser(
        dataset=Dataset.model_validate(dataset),
        created="2026-01-01T00:00:00Z",
        use=UsersOfDataset(jobs=jobs, last_used=last_used),
        **more,
    )


def tier(*cache_users: CacheUser) -> GrantTier:
    return standing(cache_users, size=100, policies=POLICIES, now=NOW).tier


def test_a_mount_stands_as_the_best_of_its_datasets() -> None:
    assert tier(cache_user()) is GrantTier.IDLE
    assert tier(cache_user(), cache_user(waiting=1)) is GrantTier.WAITING
    assert tier(cache_user(active=1), cache_user(waiting=1)) is GrantTier.ACTIVE
    assert tier(cache_user(active=1), cache_user(policy="Pin")) is GrantTier.PINNED


def test_a_timed_one_leaves_when_it_was_not_used_for_so_long_and_comes_back_when_a_job_asks() -> None:
    assert tier(cache_user(policy="Timed", ttl="2h")) is GrantTier.KEPT
    standing_now = standing([cache_user(policy="Timed", ttl="2h")], size=1, policies=POLICIES, now=NOW)
    assert standing_now.seconds == 3600
    assert tier(cache_user(policy="Timed", ttl="30m")) is GrantTier.DUE
    assert tier(cache_user(policy="Timed", ttl="30m", last_used=NOW)) is GrantTier.KEPT
    assert tier(cache_user(policy="Timed", ttl="30m", active=1)) is GrantTier.ACTIVE
    assert tier(cache_user(policy="Timed", ttl="30m", waiting=1)) is GrantTier.WAITING
    # Once it has left it stays away, although nothing of it has been loaded since.
    assert tier(cache_user(policy="Timed", ttl="2h", reason="Expired")) is GrantTier.DUE


def test_a_dataset_whose_time_is_over_is_kept_only_by_a_twin_that_has_time_left() -> None:
    over, twin = cache_user(policy="Timed", ttl="30m"), cache_user(policy="Timed", ttl="2h")

    def is_kept(**claims: CacheUser) -> bool:
        return is_kept_by_twin(claims, key="me", policies=POLICIES, now=NOW)

    assert is_kept(me=over, twin=twin)
    assert is_kept(me=over, twin=over, third=cache_user())
    assert not is_kept(me=over)  # its pass has crossed the second at which its time is over
    assert not is_kept(me=over, twin=over)
    assert not is_kept(me=twin, twin=over)
    assert not is_kept(twin=over, third=twin)


def test_a_cron_line_says_when_it_leaves_and_what_was_used_since_stays_until_the_next_time() -> None:
    # Loaded at 11:00, now it is 12:00.
    assert tier(cache_user(policy="Timed", schedule="30 11 * * *")) is GrantTier.DUE
    assert tier(cache_user(policy="Timed", schedule="30 11 * * *", active=1)) is GrantTier.ACTIVE
    later = cache_user(policy="Timed", schedule="30 11 * * *", last_used="2026-03-01T11:45:00Z")
    standing_now = standing([later], size=1, policies=POLICIES, now=NOW)
    assert (standing_now.tier, standing_now.seconds) == (GrantTier.KEPT, 23.5 * 3600)
    assert (
        tier(cache_user(policy="Timed", schedule="30 11 * * *", reason="Expired", last_used=NOW))
        is GrantTier.DUE
    )


@pytest.mark.parametrize("line", ["0 0 30 2 *", "61 * * * *", "at night", "0 0 * * 5#6"])
def test_of_a_line_that_never_fires_nothing_is_evicted(line: str) -> None:
    assert tier(cache_user(policy="Timed", schedule=line)) is GrantTier.PINNED
    assert mistake(line)


def test_its_time_begins_when_it_has_been_loaded_however_long_that_takes() -> None:
    assert tier(cache_user(policy="Timed", ttl="30m", loaded=NOW)) is GrantTier.KEPT


@pytest.mark.parametrize("reason", ["FilesFailed", "CopiesWrong"])
@pytest.mark.parametrize(("since", "expected"), [(EARLIER, GrantTier.DUE), (NOW, GrantTier.KEPT)])
def test_what_can_be_loaded_in_part_only_has_its_time_from_then_on(
    reason: str, since: str, expected: GrantTier
) -> None:
    loaded = Condition(type="Loaded", status="False", reason=reason, last_transition_time=since)
    ready = Condition(type="Ready", status="True", reason=reason, last_transition_time=since)
    user = cache_user(policy="Timed", ttl="30m")
    dataset = user.dataset.model_copy(update={"status": DatasetStatus(conditions=[loaded, ready])})
    partly = replace(user, dataset=dataset)
    assert tier(partly) is expected


def test_a_policy_that_is_not_installed_evicts_nothing_and_is_named() -> None:
    standing_now = standing([cache_user(policy="Magic")], size=1, policies=POLICIES, now=NOW)
    assert (standing_now.tier, standing_now.unknown) == (GrantTier.PINNED, "Magic")


def test_with_next_use_the_first_in_the_queue_is_worth_most() -> None:
    value = [
        standing(
            [cache_user(policy="NextUse", waiting=1, next_use=place)], size=1, policies=POLICIES, now=NOW
        ).value
        for place in (0, 1, 5)
    ]
    assert value == sorted(value, reverse=True)
