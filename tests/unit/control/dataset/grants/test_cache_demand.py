"""Who asks for a dataset, how it stands among others, and which further copies its jobs need."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.api.conditions import Condition
from tdcs.api.dataset import Copy, Dataset, DatasetStatus
from tdcs.api.namespace_selector import NamespaceSelector
from tdcs.api.sharing import Access
from tdcs.decide.cache.dataset_demand import use_of
from tdcs.decide.cache.eviction_order import lrfu, lru, next_use
from tdcs.decide.cache.eviction_times import mistake
from tdcs.decide.cache.grants import GrantTier
from tdcs.decide.cache.mount_standing import CacheUser, DatasetJobs, UsersOfDataset, is_kept_by_twin, standing
from tdcs.decide.cache.node_room import NodeSpace, has_to_wait, is_crowded, usable_on
from tdcs.decide.place.wanted_clones import clones
from tdcs.model.agent_state import AgentState, MountState

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


def test_the_end_of_a_use_is_noted_also_when_no_operator_saw_it() -> None:
    reading = DatasetStatus(active_jobs=1, last_used_time=EARLIER, uses=[EARLIER])
    ended = use_of(status=reading, jobs=DatasetJobs(), mounted=False, now=NOW)
    assert (ended.last_used, ended.uses) == (NOW, (EARLIER,))
    still = use_of(status=reading, jobs=DatasetJobs(active=(JOB,)), mounted=False, now=NOW)
    assert still.last_used == EARLIER
    second = use_of(status=reading, jobs=DatasetJobs(active=(JOB, JOB)), mounted=True, now=NOW)
    assert (second.last_used, second.uses) == (EARLIER, (EARLIER, NOW))


def test_uses_that_are_still_to_come_count_as_now() -> None:
    """Else a Dataset that a job used while a clock was a year ahead would be the last to go for a year."""
    ahead = "2027-01-01T00:00:00Z"
    status = DatasetStatus(last_used_time=ahead, uses=[EARLIER, ahead])
    use = use_of(status=status, jobs=DatasetJobs(), mounted=False, now=NOW)
    assert (use.last_used, use.uses) == (NOW, (EARLIER, NOW))


def test_a_copy_that_is_to_be_idle_in_a_year_is_idle_from_now_on() -> None:
    copies = (Copy(id="clone-1", idle_since="2027-01-01T00:00:00Z"),)
    access = Access(max_concurrent_jobs=2, on_limit="Clone")
    (clone,) = clones(
        access=access, copies=1, readers={}, jobs=0, existing_copies=copies, now=NOW, idle_seconds=600.0
    )
    assert clone.idle_since == NOW


def clone_ids(access: Access, *, jobs: int, existing: tuple[Copy, ...] = (), **more: Any) -> list[str]:
    arguments = {"copies": 1, "readers": {}, "now": NOW, "idle_seconds": 600.0, **more}
    return [copy.id for copy in clones(access=access, jobs=jobs, existing_copies=existing, **arguments)]


CLONE = Access(max_concurrent_jobs=2, on_limit="Clone")


@pytest.mark.parametrize(("jobs", "count"), [(0, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_there_are_as_many_copies_as_the_jobs_need(jobs: int, count: int) -> None:
    assert len(clone_ids(CLONE, jobs=jobs)) == count


def test_no_more_copies_are_made_than_the_spec_allows() -> None:
    assert clone_ids(CLONE.model_copy(update={"max_copies": 2}), jobs=9) == ["clone-1"]
    assert clone_ids(Access(max_concurrent_jobs=2), jobs=9) == []


def test_fewer_copies_than_there_are_let_those_stay_that_jobs_read() -> None:
    fewer = CLONE.model_copy(update={"max_copies": 1})
    copies = tuple(Copy(id=f"clone-{number}", idle_since=EARLIER) for number in (1, 2))
    assert clone_ids(fewer, jobs=9, existing=copies, readers={"clone-2": 1}) == ["clone-2"]
    assert clone_ids(fewer, jobs=9, existing=copies) == []


def test_a_clone_that_is_read_stays_and_one_that_nobody_needs_goes_after_a_while() -> None:
    copies = tuple(Copy(id=f"clone-{number}") for number in (1, 2))
    assert clone_ids(CLONE, jobs=1, existing=copies, readers={"clone-2": 1}) == ["clone-1", "clone-2"]
    old = (Copy(id="clone-1", idle_since=EARLIER), Copy(id="clone-2"))
    assert clone_ids(CLONE, jobs=1, existing=old, readers={"clone-2": 1}) == ["clone-2"]
    # The id of one that went is used again; another one keeps its own.
    assert clone_ids(CLONE, jobs=6, existing=(Copy(id="clone-2"),), readers={"clone-2": 2}) == [
        "clone-1",
        "clone-2",
    ]


def state(capacity: int, **held: int) -> AgentState:
    mounts = {f"/{name}": MountState(mount=f"/{name}", held_bytes=size) for name, size in held.items()}
    return AgentState(
        node="a",
        instance="i",
        revision=1,
        capacity_bytes=capacity,
        used_bytes=sum(held.values()),
        mounts=mounts,
    )


def test_what_is_not_known_yet_keeps_its_room() -> None:
    node = NodeSpace(capacity=1000, state=state(1000, known=300, stranger=200))
    assert usable_on(node, managed={"/known"}) == 780
    assert usable_on(node, managed={"/known", "/stranger"}) == 980


def test_what_was_granted_waits_for_what_has_to_leave() -> None:
    node = NodeSpace(capacity=1000, state=state(1000, old=900))
    granted = {"/old": 100, "/new": 800}
    assert is_crowded(node, granted)
    assert has_to_wait(node, path="/new", granted=800)
    space = NodeSpace(capacity=1000, state=state(1000, old=100))
    assert not is_crowded(space, granted)
    assert not has_to_wait(space, path="/new", granted=800)


@given(st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")))
def test_selectors_of_namespaces_are_those_of_kubernetes(labels: dict[str, str]) -> None:
    def holds(operator: str, *values: str) -> bool:
        term = {"key": "a", "operator": operator, "values": list(values)}
        return NamespaceSelector.model_validate({"matchExpressions": [term]}).selects(labels)

    assert NamespaceSelector().selects(labels)
    assert holds("In", "x") is (labels.get("a") == "x")
    assert holds("NotIn", "x") is (labels.get("a") != "x")
    assert holds("Exists") is ("a" in labels)
    assert holds("DoesNotExist") is ("a" not in labels)


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
