"""An operator that is killed after any single write is followed by one that brings the job to the same end.

Any, with ``TDCS_DEEP=1``; else every third one.
"""

from __future__ import annotations

import os
from functools import partial

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_process import RunningOperator
from tests.support.kube import Object, condition

__all__ = ["jobs"]

STEPS = 20
"""More writes than a job takes from its creation to its end; the round that is not killed any more is the last."""
EVERY = 1 if os.environ.get("TDCS_DEEP") else 3
"""An operator is killed after each of its writes, or after every third one."""


def ended(jobs: JobWorld) -> bool:
    """Whether the job has succeeded; its pods go one step on with each look."""
    jobs.play()
    return condition(jobs.job(), "Succeeded") == "True"


def ending(jobs: JobWorld) -> Object:
    """What is left in the end, without times and names that differ from run to run."""
    status = jobs.status_of("train")
    conditions = {
        condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]
    }
    job = jobs.indexed_job("train-worker")
    return {
        "state": status["state"],
        "conditions": {**conditions, "Queued": None},  # whether it had to queue is a matter of moments
        "statuses": status["replicaStatuses"],
        "pods": sorted(place["node"] != "" for place in status["placement"]),
        "made": len(jobs.kube.list("Pod", namespace=jobs.namespace)),
        "jobs": len(jobs.kube.list("Job", namespace=jobs.namespace)),
        "services": len(jobs.kube.list("Service", namespace=jobs.namespace)),
        "failed": (job.get("status") or {}).get("failed", 0),
    }


@pytest.mark.timeout(900, func_only=True)  # some twenty times a job's life
@pytest.mark.failure_mode("operator-killed-at-any-write", "operator-killed-at-job-write")
def test_the_end_is_the_same_after_a_kill_at_any_write(jobs: JobWorld) -> None:
    expected: Object | None = None
    for step in (None, *range(1, STEPS + 1, EVERY)):
        jobs.gpu_job("train", pods=2)
        killed = False
        if step is not None:
            with jobs.operator(killed_after=step) as first:
                jobs.wait(partial(_killed_or_ended, jobs, first))
                killed = first.killed
        with jobs.operator():
            jobs.wait(lambda: ended(jobs))
            jobs.wait(lambda: jobs.indexed_job("train-worker")["status"].get("succeeded") == 2)
            outcome = ending(jobs)
            if expected is None:
                expected = outcome
            assert outcome == expected, f"killed after write {step}"
            jobs.kube.delete("TrainingJob", "train", namespace=jobs.namespace)
            jobs.wait(lambda: not jobs.kube.list("Job", namespace=jobs.namespace))
            jobs.wait(lambda: not jobs.kube.list("Pod", namespace=jobs.namespace))
        if step is not None and not killed:
            assert step > 6, "a job takes more writes than that: was any operator killed?"
            return
    raise AssertionError(f"a job took more than {STEPS} writes")


def _killed_or_ended(jobs: JobWorld, operator: RunningOperator) -> bool:
    return operator.killed or ended(jobs)
