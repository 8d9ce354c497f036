"""Datasets with a limit of jobs, on a real control plane: jobs wait for a place, and say behind whom."""

from __future__ import annotations

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import TOTAL, message_of, reason_of
from tests.support.kube import KubeRequestError, Object

from tdcs.kube.events import utc_now

__all__ = ["jobs"]

NAMES = ("one", "two", "three")


def reader(jobs: JobWorld, name: str) -> None:
    """A job of one worker that reads the dataset, all of it."""
    reads = [{"name": "pictures", "mountPath": "/data"}]
    jobs.gpu_job(name, pods=1, datasets=reads)


def running(jobs: JobWorld) -> list[str]:
    return [name for name in NAMES if any(pod["status"].get("phase") == "Running" for pod in jobs.pods(name))]


def test_jobs_take_turns_at_a_dataset_that_lets_one_read_also_over_a_restart(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(access={"maxConcurrentJobs": 1})
    with jobs.operator():
        jobs.wait_ready()
        reader(jobs, "one")
        jobs.run_pods("one", count=1)
        reader(jobs, "two")
        jobs.wait(lambda: reason_of(jobs.job("two"), "Queued") == "DatasetAtLimit")
        # Jobs of one second have the order of their ids: the next one is to be younger.
        jobs.wait(lambda: utc_now() > jobs.job("two")["metadata"]["creationTimestamp"])
        reader(jobs, "three")
        jobs.wait(lambda: reason_of(jobs.job("three"), "Queued") == "DatasetAtLimit")
        message = message_of(jobs.job("three"), "Queued")
        assert f"{jobs.namespace}/one reads it" in message
        assert f"{jobs.namespace}/two is before it" in message
        jobs.wait(lambda: jobs.dataset()["status"].get("waitingJobs") == 2)
        assert jobs.dataset()["status"]["activeJobs"] == 1
    with jobs.operator():
        jobs.end_pod(jobs.pods("one")[0])
        jobs.run_pods("two", count=1)
        assert running(jobs) == ["two"]
        jobs.end_pod(jobs.pods("two")[0])
        jobs.run_pods("three", count=1)
        assert running(jobs) == ["three"]
        jobs.wait(lambda: jobs.dataset()["status"].get("waitingJobs") == 0)


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [
        (0, "leave it out for no limit"),
        (-1, "leave it out for no limit"),
        ("many", "must be of type integer"),
    ],
)
def test_a_limit_that_lets_no_job_read_is_refused(jobs: JobWorld, limit: object, remedy: str) -> None:
    with pytest.raises(KubeRequestError) as refused:
        jobs.create_dataset(access={"maxConcurrentJobs": limit})
    assert "spec.access.maxConcurrentJobs" in str(refused.value)
    assert remedy in str(refused.value)


def copies(jobs: JobWorld) -> dict[str, dict[str, int]]:
    """Bytes by node of each copy."""
    copy_list = jobs.dataset()["status"].get("copies", ())
    return {copy["id"]: {node["name"]: node["bytes"] for node in copy["nodes"]} for copy in copy_list}


def test_a_second_job_gets_a_clone_from_peers_and_runs_next_to_the_first(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(
        placement={"mode": "Replicate", "nodeCount": 1},
        access={"maxConcurrentJobs": 1, "onLimit": "Clone", "maxCopies": 2},
    )
    with jobs.operator():
        jobs.wait_ready()
        reader(jobs, "one")
        jobs.run_pods("one", count=1)
        reader(jobs, "two")
        jobs.run_pods("two", count=1)
        assert sorted(running(jobs)) == ["one", "two"]
        nodes_by_copy = copies(jobs)
        assert sorted(nodes_by_copy) == ["0", "clone-1"]
        assert set(nodes_by_copy["0"]).isdisjoint(nodes_by_copy["clone-1"])
        (use,) = jobs.job("two")["status"]["copies"]
        assert (use["dataset"], use["copy"], use["meeting"]["way"]) == ("pictures", "clone-1", "Near")
        assert jobs.engine.source_bytes_read == TOTAL
        # The third is beyond maxCopies: it waits as with Suspend.
        reader(jobs, "three")
        jobs.wait(lambda: reason_of(jobs.job("three"), "Queued") == "DatasetAtLimit")
    with jobs.operator():
        jobs.wait(lambda: jobs.dataset()["status"].get("activeJobs") == 2)
        assert copies(jobs) == nodes_by_copy
        assert jobs.engine.source_bytes_read == TOTAL
        # Fewer copies than there are take none from a job.
        jobs.change_dataset(access={"maxCopies": 1})
        jobs.wait(lambda: reason_of(jobs.dataset(), "Granted") == "CopiesAboveMaximum")
        assert "set spec.access.maxCopies to 2" in message_of(jobs.dataset(), "Granted")
        assert copies(jobs) == nodes_by_copy


def test_a_timed_dataset_leaves_the_disks_and_comes_back_for_a_job(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(eviction={"policy": "Timed", "ttl": "2s"})
    with jobs.operator():
        jobs.wait(lambda: jobs.dataset().get("status", {}).get("state") == "Evicted")
        jobs.wait(lambda: not any(jobs.engine.holdings(worker=node) for node in jobs.nodes))
        assert reason_of(jobs.dataset(), "Granted") == "Expired"
        reader(jobs, "one")
        jobs.run_pods("one", count=1)
        jobs.wait(lambda: jobs.dataset()["status"]["loadedRatio"] == 1)
    with jobs.operator():
        jobs.end_pod(jobs.pods("one")[0])
        jobs.wait(lambda: jobs.dataset()["status"].get("state") == "Evicted")


SENSELESS: list[tuple[Object, str]] = [
    ({"access": {"onLimit": "Clone"}}, "onLimit Clone needs maxConcurrentJobs"),
    ({"access": {"maxConcurrentJobs": 1, "maxCopies": 2}}, "set onLimit to Clone"),
    (
        {
            "placement": {"copies": 3},
            "access": {"maxConcurrentJobs": 1, "onLimit": "Clone", "maxCopies": 2},
        },
        "spec.placement.copies asks for more",
    ),
    (
        {"preload": {"enabled": False}, "access": {"maxConcurrentJobs": 1, "onLimit": "Clone"}},
        "set preload.enabled to true",
    ),
    ({"eviction": {"policy": "Timed"}}, "policy Timed needs ttl"),
    ({"eviction": {"ttl": "1h"}}, "policy Timed needs ttl"),
    ({"eviction": {"policy": "Timed", "ttl": "1h", "schedule": "0 3 * * *"}}, "one of the two"),
    ({"eviction": {"policy": "Timed", "schedule": "at night"}}, "must be a cron line of five fields"),
    ({"eviction": {"policy": "Timed", "schedule": "0 3 30 2 *"}}, "never fires"),
    ({"eviction": {"policy": "Timed", "schedule": "0 3 31 JUN *"}}, "never fires"),
    ({"source": {"bandwidth": "0"}}, "must be above zero"),
]


def test_fields_that_make_no_sense_together_are_refused(jobs: JobWorld) -> None:
    for spec, words in SENSELESS:
        with pytest.raises(KubeRequestError) as refused:
            jobs.create_dataset(**spec)
        assert words in str(refused.value)
