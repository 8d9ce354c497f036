"""Datasets with a limit of jobs, on a real control plane: jobs wait for a place, and say behind whom."""

from __future__ import annotations

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import message_of, reason_of
from tests.support.kube import KubeRequestError

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
        reader(jobs, "three")
        jobs.wait(lambda: reason_of(jobs.job("three"), "Queued") == "DatasetAtLimit")
        message = message_of(jobs.job("three"), "Queued")
        assert f"{jobs.namespace}/one reads it" in message
        assert f"1 before it, the last of them {jobs.namespace}/two" in message
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


@pytest.mark.parametrize("limit", [0, -1, "many"])
def test_a_limit_that_lets_no_job_read_is_refused(jobs: JobWorld, limit: object) -> None:
    with pytest.raises(KubeRequestError) as refused:
        jobs.create_dataset(access={"maxConcurrentJobs": limit})
    assert "spec.access.maxConcurrentJobs" in str(refused.value)
