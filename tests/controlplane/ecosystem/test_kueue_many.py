"""Many jobs of mixed kinds in a queue of the real Kueue, while the operator and Kueue die again and again.

Kueue's manager is built by `make ecosystem`; where it is not built the test is skipped. The test is the kubelet.
`TDCS_KUEUE_JOBS=200` makes it long.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter

import pytest
from tests.controlplane.ecosystem.kueue_world import (
    QUOTA,
    Queues,
    evictions,
    kueue,
    plain,
    queued,
    queues,
    unmade_queues,
)
from tests.controlplane.job_world import GPU, JobWorld, jobs
from tests.support.ecosystem.kueue import KueueManager
from tests.support.kube import KubeRequestError, Object, condition
from tests.support.report import record
from tests.support.waiting import eventually

__all__ = ["jobs", "kueue", "queues", "unmade_queues"]

MANY = int(os.environ.get("TDCS_KUEUE_JOBS", "12"))
"""Jobs of the test."""

ROUNDS = 30
"""A round is the life of an operator; a short test has fewer."""

KUEUE_DIES_EACH = 5
"""Kueue dies at the end of the first round, and of each fifth one after it."""

FIRST_WRITES = 5
"""The first operator dies with this write: a TrainingJob has more until it has ended."""


@pytest.mark.timeout(120 + 15 * MANY, func_only=True)
def test_many_jobs_end_within_the_quota_while_operator_and_kueue_are_killed(
    jobs: JobWorld, queues: Queues, kueue: KueueManager, request: pytest.FixtureRequest
) -> None:
    dice = random.Random(MANY)
    waiting = [f"job-{number}" for number in range(MANY)]
    begun, kills = time.monotonic(), Counter[str]()
    deadline = begun + 60 + 15 * MANY
    for number in itertools.count():
        if not waiting and ended(jobs) == MANY:
            break
        assert time.monotonic() < deadline, f"{ended(jobs)} of {MANY} have ended, {len(waiting)} not begun"
        first = number == 0
        with jobs.operator(
            kueue=True, killed_after=FIRST_WRITES if first else dice.randint(5, 60)
        ) as operator:
            if first:
                queued(jobs, waiting.pop(0), chief=1, workers=2)
            for _ in range(max(2, MANY // ROUNDS)):
                if waiting:
                    submit(jobs, waiting.pop(0), dice, queues=queues)
            # The first operator lives until its write, however slow the machine is.
            # Each later one has time to look at every job once, and then some.
            until = deadline if first else time.monotonic() + MANY / 25 + dice.uniform(1, 5)
            while time.monotonic() < until and not operator.killed and (waiting or ended(jobs) < MANY):
                step(jobs, queues)
            kills["operator"] += operator.killed
            if number % KUEUE_DIES_EACH == 0:
                kueue.kill()
                kueue.restart()
                kills["Kueue"] += 1
    assert kills["operator"] > 0
    assert kills["Kueue"] > 0
    record(
        request.config,
        f"{MANY} jobs of two kinds through a quota of {QUOTA} GPUs in {time.monotonic() - begun:.0f} s; the operator "
        f"died {kills['operator']} times in the midst of a write, Kueue {kills['Kueue']} times",
    )
    owners = Counter(
        owner["uid"] for workload in queues.workloads() for owner in workload["metadata"]["ownerReferences"]
    )
    assert set(owners.values()) == {1}, "each job has one Workload"
    assert len(owners) == MANY
    for job in jobs.kube.list("TrainingJob", namespace=jobs.namespace):
        name = job["metadata"]["name"]
        stops = evictions(queues.workload(name))
        for role in job["spec"]["replicaSpecs"]:
            live = jobs.indexed_job(f"{name}-{role['name'].lower()}")
            # Made suspended, and started; each eviction suspends it, and each admission after it starts it.
            # Workers that still run when the chief has ended are suspended once more, for good.
            at_most = 2 + 2 * stops + bool(live["spec"]["suspend"])
            assert live["metadata"]["generation"] <= at_most, live
    # The last operator may have died before it told Kueue that the last job has ended.
    with jobs.operator(kueue=True):
        eventually(lambda: queues.used() == 0, deadline=60)


def submit(jobs: JobWorld, name: str, dice: random.Random, *, queues: Queues) -> None:
    """One more job of any kind and size; a Job of Kubernetes needs Kueue, which may just be starting."""
    labels = {"kueue.x-k8s.io/priority-class": queues.urgent} if dice.random() < 0.2 else {}
    if dice.random() < 0.6:
        queued(jobs, name, chief=dice.randint(0, 1), workers=dice.randint(1, 3), labels=labels)
        return
    pods = dice.randint(1, 4)

    def made() -> bool:
        try:
            plain(jobs, name, pods=pods, gpus=1, labels=labels)
        except KubeRequestError as error:
            if "webhook" not in str(error):
                raise
            return False
        return True

    eventually(made, deadline=60)


def step(jobs: JobWorld, queues: Queues) -> None:
    """One round of the kubelet, and a look at who uses what."""
    alive = [pod for pod in jobs.play_all() if pod["status"].get("phase") in {"Pending", "Running"}]
    used = sum(int(pod["spec"]["containers"][0]["resources"]["limits"][GPU]) for pod in alive)
    assert used <= QUOTA, [pod["metadata"]["name"] for pod in alive]
    assert queues.used() <= QUOTA


def ended(jobs: JobWorld) -> int:
    """How many jobs have ended well."""
    trained = [job.get("status", {}) for job in jobs.kube.list("TrainingJob", namespace=jobs.namespace)]
    assert not [status for status in trained if status.get("state") == "Failed"]
    plain_jobs = [job for job in jobs.kube.list("Job", namespace=jobs.namespace) if not is_child(job)]
    done = [job for job in plain_jobs if condition(job, "Complete") == "True"]
    return len(done) + len([status for status in trained if status.get("state") == "Succeeded"])


def is_child(job: Object) -> bool:
    """Whether a Job belongs to a TrainingJob."""
    return bool(job["metadata"].get("ownerReferences"))
