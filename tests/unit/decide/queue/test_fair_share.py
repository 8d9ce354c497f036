"""Namespaces take turns by their weighted shares of the cluster."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.decide.queue.fair_share import dominant_share, turns
from tdcs_labs.run import jain_index

TOTAL = {"gpu": 100, "cpu": 1000, "pods": 10}


@dataclass(frozen=True)
class Job:
    owner: str
    number: int
    gpus: int = 1
    priority: int = 0
    cpu: int = 0

    @property
    def asks(self) -> dict[str, int]:
        return {"gpu": self.gpus, "cpu": self.cpu, "pods": 1000}


def order(job: Job) -> tuple[int, int]:
    return (-job.priority, job.number)


def order_of(
    *jobs: Job, used: dict[str, dict[str, int]] | None = None, weights: dict[str, float] | None = None
) -> str:
    ordered = turns(jobs, order=order, used=used or {}, total=TOTAL, weights=weights or {})
    return " ".join(f"{job.owner}{job.number}" for job in ordered)


MANY = [Job("a", number) for number in range(5)]


def test_a_team_that_queues_many_jobs_does_not_go_before_one_that_comes_later() -> None:
    assert order_of(*MANY, Job("b", 7), Job("b", 8)) == "a0 b7 a1 b8 a2 a3 a4"


def test_who_uses_less_of_the_cluster_goes_first() -> None:
    used = {"a": {"gpu": 2}}
    assert order_of(*MANY, *(Job("b", 10 + number) for number in range(4)), used=used) == (
        "b10 b11 a0 b12 a1 b13 a2 a3 a4"
    )


def test_a_namespace_of_twice_the_weight_gets_two_of_three_turns() -> None:
    jobs = [Job(owner, number) for owner in "ab" for number in range(30)]
    ordered = turns(jobs, order=order, used={}, total=TOTAL, weights={"b": 2.0})
    assert Counter(job.owner for job in ordered[:30]) == {"b": 20, "a": 10}


def test_priority_counts_inside_a_namespace_and_not_between_them() -> None:
    urgent = Job("a", 9, priority=100)
    assert order_of(*MANY[:2], urgent, Job("b", 5)) == "a9 b5 a0 a1"


def test_one_namespace_has_the_order_of_priority_and_age() -> None:
    jobs = [*MANY, Job("a", 9, priority=3)]
    assert order_of(*jobs) == "a9 a0 a1 a2 a3 a4"


def test_a_namespace_of_no_weight_comes_after_all_others() -> None:
    assert order_of(*MANY[:2], Job("b", 5), Job("b", 6), weights={"a": 0.0}) == "b5 b6 a0 a1"


def test_the_resource_that_a_namespace_takes_most_of_is_its_share_and_pods_are_none() -> None:
    assert dominant_share({"gpu": 10, "cpu": 500, "pods": 10}, total=TOTAL) == pytest.approx(0.5)
    assert dominant_share({"other": 5}, total=TOTAL) == 0.0
    # b takes much of the CPUs, and so its turns are fewer.
    few = [Job("b", 10 + number, cpu=300) for number in range(3)]
    assert order_of(*few, *MANY) == "a0 b10 a1 a2 a3 a4 b11 b12"


@settings(max_examples=100)
@given(
    jobs=st.lists(
        st.builds(
            Job,
            owner=st.sampled_from("abc"),
            number=st.integers(0, 10**6),
            gpus=st.integers(0, 64),
            priority=st.integers(0, 2),
        ),
        unique_by=lambda job: job.number,
    ),
    weights=st.dictionaries(st.sampled_from("abc"), st.floats(0, 10, allow_nan=False)),
)
def test_every_job_has_one_turn_and_its_namespace_keeps_its_order(
    jobs: list[Job], weights: dict[str, float]
) -> None:
    ordered = turns(jobs, order=order, used={}, total=TOTAL, weights=weights)
    assert sorted(job.number for job in ordered) == sorted(job.number for job in jobs)
    for owner in "abc":
        mine = [job for job in ordered if job.owner == owner]
        assert mine == sorted(mine, key=order)


def test_the_index_of_jain_is_one_of_equals_and_less_where_one_has_all() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([]) == 1.0
