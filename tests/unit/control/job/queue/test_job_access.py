"""Places at the copies of datasets: jobs wait for one in the queue, and say behind whom."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.job.queue.test_schedule import enters, group, job, nodes
from tests.unit.control.jobs import Jobs

from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.copy_places import CopyPlaces, PlaceRequest
from tdcs.decide.queue.gang_turn import schedule
from tdcs.decide.queue.pod_admission import MAX_PASSES, Reason
from tdcs.decide.queue.queue_nodes import Nodes
from tdcs.decide.queue.queue_schedule import Schedule
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.wait_message import waiting_admission
from tdcs.model.kube_resources import DATASETS

READS = [{"name": "pictures", "mountPath": "/data"}]


def request(name: str = "m", *, limit: int = 1, copies: int = 1) -> PlaceRequest:
    return PlaceRequest(dataset=f"team/{name}", limit=limit, copies=copies)


def queue(*waiting: QueuedJob, places: CopyPlaces | None = None, gpus: int = 8, **more: Any) -> Schedule:
    free = nodes(gpus)
    return schedule(waiting=waiting, nodes=Nodes(free=free, capacity=nodes(8)), places=places, **more)


def test_of_jobs_at_one_copy_as_many_enter_as_it_has_places() -> None:
    jobs = [job(name, group(1), age=9 - i, access=(request(limit=2),)) for i, name in enumerate("abc")]
    decision = queue(*jobs, job("free", group(1)))
    assert enters(decision) == "a b free"
    waits = waiting_admission(decision, "c")
    assert waits.reason is Reason.AT_LIMIT
    assert "Dataset team/m lets 2 jobs read it at once" in waits.message
    assert "team/a, team/b read it; it is the next" in waits.message


def test_a_second_copy_has_places_of_its_own() -> None:
    jobs = [job(name, group(1), age=9 - i, access=(request(copies=2),)) for i, name in enumerate("abc")]
    decision = queue(*jobs)
    assert enters(decision) == "a b"
    assert "lets 1 job read each of its 2 copies at once" in waiting_admission(decision, "c").message


def test_a_job_takes_one_place_at_each_of_its_datasets_however_often_it_mounts_them() -> None:
    places = CopyPlaces()
    places.take(("team", "near"), (request("m"), request("m"), request("k")))
    decision = queue(
        job("a", group(1), access=(request("m", limit=2),)),
        job("b", group(1), access=(request("k"),)),
        places=places,
    )
    assert enters(decision) == "a"
    assert "team/near reads it" in waiting_admission(decision, "b").message


def of_namespace(namespace: str, name: str, *groups: PodGroup, **more: Any) -> QueuedJob:
    return replace(job(name, *groups, **more), key=(namespace, name))


@pytest.mark.parametrize(
    ("namespace", "words"), [("team", "behind team/first"), ("other", "behind a job of another namespace")]
)
def test_a_job_waits_behind_one_of_another_namespace_without_its_name(namespace: str, words: str) -> None:
    first = of_namespace(namespace, "first", group(1, 8), age=9)
    decision = queue(first, job("second", group(1, 8), age=1), gpus=4)
    assert words in waiting_admission(decision, "second").message


@pytest.mark.parametrize(
    ("namespace", "words"), [("team", "for team/large,"), ("other", "for a job of another namespace,")]
)
def test_nodes_are_set_aside_for_one_of_another_namespace_without_its_name(
    namespace: str, words: str
) -> None:
    large = of_namespace(namespace, "large", group(1, 8), age=9, passed=MAX_PASSES)
    decision = queue(large, job("small", group(1, 1), age=1), gpus=4)
    assert decision.aside
    assert words in waiting_admission(decision, "small").message


def test_a_job_says_how_many_wait_before_it_and_who_is_the_last_of_them() -> None:
    busy = CopyPlaces({"team/m": [("team", "x")]})
    jobs = [job(name, group(1), age=9 - i, access=(request(),)) for i, name in enumerate("abc")]
    decision = queue(*jobs, places=busy)
    assert "2 are before it, the last of them team/b" in waiting_admission(decision, "c").message


def test_a_job_without_a_place_holds_up_no_other_and_sets_no_nodes_aside() -> None:
    busy = CopyPlaces({"team/m": [("team", "x")]})
    decision = queue(
        job("a", group(8), age=9, passed=1000, access=(request(),)), job("b", group(8)), places=busy
    )
    assert enters(decision) == "b"
    assert decision.aside == frozenset()


def test_a_job_that_was_passed_too_often_keeps_the_next_place_at_each_of_its_datasets() -> None:
    # It needs a place at two datasets; those that need one only would take turns before it forever.
    two_datasets = job("both", group(1), age=9, passed=3, access=(request("m"), request("k")))
    busy = CopyPlaces({"team/k": [("team", "x")]})
    decision = queue(two_datasets, job("single", group(1), access=(request("m"),)), places=busy, max_passes=3)
    assert enters(decision) == "nobody"
    waits = waiting_admission(decision, "single")
    assert "the next place at Dataset team/m is kept for team/both" in waits.message
    passed = queue(
        job("both", group(1), age=9, passed=2, access=(request("m"), request("k"))),
        job("single", group(1), access=(request("k", limit=2),)),
        places=busy,
        max_passes=3,
    )
    assert (enters(passed), passed.passed) == ("single", {"both": 3})


@pytest.mark.parametrize(("readers", "expected"), [(1, "small"), (2, "nobody")])
def test_a_job_that_waits_for_gpus_for_long_keeps_one_place_and_not_all(readers: int, expected: str) -> None:
    big = job("big", group(1, 8), age=9, passed=3, access=(request(limit=3),))
    small = job("small", group(1), access=(request(limit=3),))
    busy = CopyPlaces({"team/m": [("team", str(number)) for number in range(readers)]})
    decision = schedule(
        waiting=(big, small),
        nodes=Nodes(free=nodes(4, 4), capacity=nodes(8, 8)),
        places=busy,
        max_passes=3,
    )
    assert enters(decision) == expected


@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(["m", "k", "mk"]), st.integers(1, 3), st.integers(0, 5)), max_size=12
    ),
    limit=st.integers(1, 3),
    copies=st.integers(1, 2),
)
def test_never_more_jobs_than_places_and_no_place_is_left_empty(
    jobs: list[tuple[str, int, int]], limit: int, copies: int
) -> None:
    waiting = [
        job(
            f"j{i}",
            group(gpus),
            priority=priority,
            access=tuple(request(name, limit=limit, copies=copies) for name in names),
        )
        for i, (names, gpus, priority) in enumerate(jobs)
    ]
    free = nodes(100)
    decision = schedule(waiting=waiting, nodes=Nodes(free=free, capacity=free), places=CopyPlaces())
    for name in "mk":
        readers = [
            reader
            for reader in decision.admitted
            if any(use.dataset == f"team/{name}" for use in reader.access)
        ]
        assert len(readers) <= limit * copies
    for queued in decision.waiting:
        assert queued.short is not None
        full = sum(
            any(use.dataset == queued.short.dataset for use in admitted.access)
            for admitted in decision.admitted
        )
        assert full == limit * copies


def pictures(jobs: Jobs, **access: Any) -> None:
    """A Dataset that can be read, with its data loaded."""
    conditions = [
        {"type": kind, "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Mounted", "Loaded")
    ]
    jobs.server.store(DATASETS)["n", "pictures"] = {
        "metadata": {"name": "pictures", "namespace": "n", "uid": "p", "generation": 1},
        "spec": {"source": {"uri": "file:///data/pictures"}, "access": access},
        "status": {
            "conditions": conditions,
            "claimName": "pictures",
            "mountPath": "/datasets/p",
            "loadedRatio": 1.0,
            "totalBytes": 10,
            "copies": [{"id": "0", "nodes": [{"name": "a", "bytes": 10}]}],
        },
    }


def waits_at_limit(jobs: Jobs, name: str) -> bool:
    return bool(jobs.condition("Queued", name).get("reason") == "DatasetAtLimit")


@pytest.mark.parametrize("gang", [True, False])
async def test_jobs_run_one_after_another_where_a_dataset_lets_one_read(gang: bool) -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        pictures(jobs, maxConcurrentJobs=1)
        names = ["one", "two", "three"]
        for name in names:
            await jobs.create(name, workers=1, datasets=READS, scheduling={"gang": gang})
        done: set[str] = set()
        while len(done) < len(names):

            def one_runs() -> bool:
                active = [name for name in names if name not in done and jobs.bound(name)]
                assert len(active) <= 1
                return bool(active)

            await jobs.until(one_runs)
            running = next(name for name in names if name not in done and jobs.bound(name))
            for name in set(names) - done - {running}:
                await jobs.until(partial(waits_at_limit, jobs, name))
                assert f"n/{running} reads it" in jobs.status(name)["message"]
            await jobs.run(running)
            await jobs.end(jobs.pods(running)[0])
            await jobs.until_state("Succeeded", running)
            done.add(running)


async def test_a_new_operator_counts_the_jobs_that_read_before_it_admits_one() -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        pictures(jobs, maxConcurrentJobs=1)
        await jobs.create("one", workers=1, datasets=READS)
        await jobs.until(lambda: jobs.bound("one") == 1)
    async with jobs:
        await jobs.create("two", workers=1, datasets=READS)
        await jobs.until(lambda: jobs.condition("Queued", "two").get("reason") == "DatasetAtLimit")
        assert jobs.bound("two") == 0
        await jobs.server.merge(
            DATASETS, name="pictures", namespace="n", patch={"spec": {"access": {"maxConcurrentJobs": 2}}}
        )
        await jobs.until(lambda: jobs.bound("two") == 1)


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 8), st.integers(0, MAX_PASSES + 1), st.booleans()),
        max_size=24,
    ),
    limit=st.integers(0, 2),
)
def test_no_tenant_of_ten_takes_places_of_another_one_or_hears_its_name(
    jobs: list[tuple[int, int, int, bool]], limit: int
) -> None:
    """All read one source, by a Dataset in each namespace."""
    waiting = [
        of_namespace(
            f"tenant{tenant}",
            f"job-of-tenant{tenant}-{number}",
            group(1, gpus),
            age=number,
            passed=passed,
            access=(PlaceRequest(dataset=f"tenant{tenant}/data", limit=limit if limited else 0),),
        )
        for number, (tenant, gpus, passed, limited) in enumerate(jobs)
    ]
    decision = queue(*waiting, gpus=8)
    for queued in decision.waiting:
        message = waiting_admission(decision, queued.uid).message
        assert not [
            tenant
            for tenant in range(10)
            if f"tenant{tenant}" != queued.owner and f"tenant{tenant}" in message
        ]
        if queued.short is not None and queued.short.reason is Reason.AT_LIMIT:
            own_jobs = [job_of_tenant for job_of_tenant in waiting if job_of_tenant.owner == queued.owner]
            assert len(own_jobs) > limit, (
                f"{queued.key} lacks a place, and its namespace has {len(own_jobs)} jobs: {message}"
            )
