"""A failed pod restarts all of its job, with Kubernetes' own Job controller and garbage collector."""

from __future__ import annotations

from functools import partial

from tests.controlplane.job_world import JobWorld, jobs
from tests.support.kube import Object, condition

__all__ = ["jobs"]


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _replaced(jobs: JobWorld, before: set[str]) -> bool:
    return jobs.bound() == 4 and not uids(jobs.pods()) & before


def test_a_failed_worker_restarts_all_and_the_job_fails_when_no_restart_is_left(jobs: JobWorld) -> None:
    rules = [{"action": "Ignore", "values": [42]}, {"action": "Count", "operator": "NotIn", "values": [42]}]
    policy = {"failurePolicy": {"maxRestarts": 1, "onExitCodes": rules}}
    jobs.gpu_job("train", pods=4, framework="PyTorch", runPolicy=policy)
    with jobs.operator():
        before: set[str] = set()
        for restarts, code in enumerate((42, 3)):
            pods = jobs.run_pods(count=4)
            assert not uids(pods) & before
            before |= uids(pods)
            jobs.wait(lambda: condition(jobs.job(), "Running") == "True")
            jobs.end_pod(pods[2], code=code)
            jobs.wait(partial(_replaced, jobs, before))
            assert jobs.status_of("train")["restarts"] == restarts + 1
        assert jobs.status_of("train")["restartsCountTowardsMax"] == 1
        assert jobs.indexed_job("train-worker")["metadata"]["annotations"]["tdcs.io/restart-attempt"] == "2"
        pods = jobs.run_pods(count=4)
        jobs.end_pod(pods[1], code=4)
        jobs.wait(lambda: condition(jobs.job(), "Failed") == "True")
        assert "worker 1" in jobs.status_of("train")["message"]
        assert "after 2 restarts of all pods" in jobs.status_of("train")["message"]
