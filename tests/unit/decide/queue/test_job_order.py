"""Users order the jobs of their own namespace; nobody else's job moves by that."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.job_order import in_rank_order, rank_of_move
from tdcs.decide.queue.queued_job import QueuedJob


def job(name: str, *, namespace: str = "n", age: float = 0, rank: int = 0, priority: int = 0) -> QueuedJob:
    return QueuedJob(
        key=(namespace, name),
        uid=f"{namespace}-{name}",
        priority=priority,
        submitted=age,
        data_ready=True,
        passed=0,
        rank=rank,
        groups=(PodGroup(count=1, request={"cpu": 1}, nodes=None),),
    )


def order(jobs: list[QueuedJob]) -> list[str]:
    return [queued.uid for queued in sorted(in_rank_order(jobs), key=lambda queued: queued.order)]


def test_the_smaller_rank_comes_first_and_of_one_rank_the_older() -> None:
    jobs = [job("a", age=1), job("b", age=2, rank=-1), job("c", age=3, rank=-1), job("d", age=4, rank=5)]
    assert order(jobs) == ["n-b", "n-c", "n-a", "n-d"]


def test_jobs_of_one_second_are_moved_as_well() -> None:
    assert order([job("a"), job("b"), job("c", rank=-1)]) == ["n-c", "n-a", "n-b"]


def test_a_rank_does_not_outweigh_a_priority() -> None:
    assert order([job("a", priority=5), job("b", rank=-9)]) == ["n-a", "n-b"]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(-2, 2), st.integers(0, 1)),
        max_size=12,
    )
)
def test_ranks_of_a_namespace_move_no_job_of_another(drawn: list[tuple[str, int, int, int]]) -> None:
    jobs = [
        job(f"j{number:02}", namespace=namespace, age=age, rank=rank, priority=priority)
        for number, (namespace, age, rank, priority) in enumerate(drawn)
    ]
    before = [queued.owner for queued in sorted(jobs, key=lambda queued: queued.order)]
    after = sorted(in_rank_order(jobs), key=lambda queued: queued.order)
    # Names break ties of age across namespaces, and move with their places: each place keeps its namespace.
    assert [queued.owner for queued in after] == before
    for owner in "ab":
        for priority in (0, 1):
            ranks = [queued.rank for queued in after if queued.owner == owner and queued.priority == priority]
            assert ranks == sorted(ranks)


def test_a_move_goes_before_or_behind_all_others_and_no_further_than_it_must() -> None:
    assert rank_of_move(0, other_ranks=[0, 3], first=True) == -1
    assert rank_of_move(-5, other_ranks=[0, 3], first=True) == -5
    assert rank_of_move(0, other_ranks=[0, 3], first=False) == 4
    assert rank_of_move(7, other_ranks=[], first=True) == 7


def test_a_job_that_cannot_run_lends_its_age_to_no_other_one() -> None:
    new, older = job("new", age=1000), job("other", namespace="m", age=500)
    for parked in (
        replace(job("parked", age=1, rank=9), possible=False),
        replace(job("parked", age=1, rank=9), data_ready=False),
        replace(job("parked", age=1, rank=9), pauses=True),
    ):
        assert order([parked, older, new]) == ["n-parked", "m-other", "n-new"]
    assert order([job("parked", age=1, rank=9), older, new]) == ["n-new", "m-other", "n-parked"]
