"""Workers of a cache and whether it is ready."""

import pytest
from tests.unit.control.builders import GIB, NOW, worker

from tdcs.api.cachecluster import CacheClusterStatus, CacheWorker
from tdcs.decide.worker_nodes import (
    AlluxioWorkers,
    FuseView,
    progress,
    readiness,
    starting_nodes,
    status_of,
    unready_pods,
    worker_states,
)


def test_a_worker_that_is_asked_for_again_starts_though_the_master_lists_the_old_one_as_lost() -> None:
    now, before = "2026-01-01T00:00:10Z", "2025-12-31T00:00:00Z"
    status = CacheClusterStatus(
        workers=[CacheWorker(node="a", state="Ready"), CacheWorker(node="b", state="Lost")]
    )
    created = {"a": NOW, "b": NOW, "c": NOW, "old": before}
    starting = starting_nodes(wanted=["a", "b", "c", "d", "old"], made=created, known=status, now=now)
    assert starting == {"c", "d"}
    # By a clock that is a year behind the API server's, no worker starts for a year.
    behind = "2025-01-01T00:00:10Z"
    assert starting_nodes(wanted=["c", "d"], made=created, known=status, now=behind) == {"d"}
    states = worker_states(
        wanted=["a", "c"], workers=[worker("a"), worker("c", live=False)], starting=starting
    )
    assert [(state.node, state.state) for state in states] == [("a", "Ready"), ("c", "Pending")]
    condition = readiness(workers=states, fuse=FuseView(), namespace="n")
    assert (condition.reason, condition.message) == ("WorkersStarting", "1 of 2 cache workers are registered")


def test_a_worker_is_pending_ready_or_lost() -> None:
    workers = [worker("a", capacity=100, used=25), worker("b", live=False), worker("stranger")]
    states = worker_states(wanted=["a", "b", "c"], workers=workers)
    assert [(state.node, state.state) for state in states] == [
        ("a", "Ready"),
        ("b", "Lost"),
        ("c", "Pending"),
    ]
    status = status_of(cluster="default", pods=2, workers=states)
    assert (status.replicas, status.desired_replicas, status.ready_replicas) == (2, 3, 1)
    assert (status.capacity_bytes, status.used_bytes, status.used_ratio) == (100, 25, 0.25)
    assert status.selector == "tdcs.io/cache-cluster=default,tdcs.io/component=worker"


def test_a_cache_that_has_never_answered_starts() -> None:
    states = worker_states(wanted=["a"], workers=[])
    condition = readiness(workers=states, fuse=FuseView(), namespace="n", failure="no route", starting=True)
    assert (condition.status, condition.reason) == ("False", "CacheStarting")
    assert condition.message.endswith("does not answer yet: no route")


READINESS = {
    "AllReady": ([worker("a")], FuseView(wanted=1, ready=1), ""),
    "ClientsStarting": ([worker("a")], FuseView(wanted=1, ready=0), ""),
    "WorkersStarting": ([], FuseView(), ""),
    "WorkerLost": ([worker("a", live=False)], FuseView(), ""),
    "CacheUnavailable": ([], FuseView(), "the master is away"),
}


@pytest.mark.parametrize("reason", READINESS)
def test_the_cache_is_ready_when_master_workers_and_clients_are(reason: str) -> None:
    workers, fuse, failure = READINESS[reason]
    states = worker_states(wanted=["a"], workers=workers)
    condition = readiness(workers=states, fuse=fuse, namespace="cache-home", failure=failure)
    assert (condition.reason, condition.status) == (reason, "True" if reason == "AllReady" else "False")


def test_workers_that_start_keep_a_cache_unready_that_is_read_through_them() -> None:
    sets = [{"status": {"replicas": 1}}, {"status": {"replicas": 1, "readyReplicas": 1}}, {}]
    assert unready_pods(sets) == 1
    states = worker_states(wanted=["a", "b"], workers=[worker("a"), worker("b")])
    for needed, was_ready, status in (
        (False, False, "True"),
        (True, False, "False"),
        (True, True, "True"),  # one that restarts
    ):
        condition = readiness(
            workers=states,
            fuse=FuseView(),
            namespace="n",
            was_ready=was_ready,
            alluxio=AlluxioWorkers(starting=1, needed=needed),
        )
        assert condition.status == status, (needed, was_ready)
        assert "Alluxio's worker next to 1 of them is not ready yet" in condition.message
    well = readiness(
        workers=states, fuse=FuseView(), namespace="n", alluxio=AlluxioWorkers(starting=0, needed=True)
    )
    assert (well.status, well.message) == ("True", "2 of 2 cache workers are registered")


def test_a_cache_that_serves_stays_ready_while_a_worker_starts_leaves_or_is_lost() -> None:
    one_of_two = worker_states(wanted=["a", "b"], workers=[worker("a")])
    condition = readiness(workers=one_of_two, fuse=FuseView(), namespace="n", was_ready=True)
    assert (condition.status, condition.reason) == ("True", "WorkersStarting")
    going_on = progress(workers=one_of_two, fuse=FuseView(), namespace="n")
    assert (going_on.type, going_on.status, going_on.reason) == ("Progressing", "True", "WorkersStarting")

    lost = worker_states(wanted=["a", "b"], workers=[worker("a"), worker("b", live=False)])
    condition = readiness(workers=lost, fuse=FuseView(), namespace="n", was_ready=True)
    assert (condition.status, condition.reason) == ("True", "WorkerLost")
    going_on = progress(workers=lost, fuse=FuseView(), namespace="n")
    assert (going_on.status, going_on.reason) == ("False", "WorkerLost")
    assert "lost: b" in going_on.message

    ready = worker_states(wanted=["a"], workers=[worker("a")])
    leaving = [CacheWorker(node="b", state="Draining")]
    condition = readiness(workers=ready, fuse=FuseView(), namespace="n", draining=leaving)
    assert (condition.status, condition.reason) == ("True", "AllReady")
    going_on = progress(workers=ready, fuse=FuseView(), namespace="n", draining=leaving)
    assert (going_on.status, going_on.reason) == ("True", "WorkersLeaving")
    assert "draining: b" in going_on.message


def test_a_cache_without_any_worker_serves_nobody_whatever_it_was_before() -> None:
    none_left = worker_states(wanted=["a"], workers=[worker("a", live=False)])
    condition = readiness(workers=none_left, fuse=FuseView(), namespace="n", was_ready=True)
    assert (condition.status, condition.reason) == ("False", "WorkerLost")


def test_who_lost_a_worker_is_sent_to_the_namespace_of_its_pods() -> None:
    states = worker_states(wanted=["a"], workers=[worker("a", live=False)])
    assert (
        "pods of namespace cache-home"
        in readiness(workers=states, fuse=FuseView(), namespace="cache-home").message
    )


def test_a_cache_without_a_node_says_what_to_change() -> None:
    condition = readiness(workers=[], fuse=FuseView(), namespace="cache-home")
    assert condition.reason == "NoCacheNode"
    assert "spec.nodeSelector" in condition.message


def test_people_see_what_is_used_in_the_units_of_capacities() -> None:
    states = worker_states(wanted=["a"], workers=[worker("a", capacity=24 * GIB, used=int(6.4 * GIB))])
    assert status_of(cluster="default", pods=2, workers=states).used == "6.4 GiB of 24 GiB"
