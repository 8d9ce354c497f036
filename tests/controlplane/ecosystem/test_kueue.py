"""TrainingJobs in a queue of the real Kueue, on a real control plane: quota, preemption, faults.

Kueue's manager is built by `make ecosystem`; where it is not built the tests are skipped. The test is the kubelet.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator

import pytest
from tests.controlplane.ecosystem.kueue_world import (
    QUOTA,
    Queues,
    holds,
    kueue,
    plain,
    queued,
    queues,
    unmade_queues,
)
from tests.controlplane.job_world import JobWorld, jobs
from tests.support.ecosystem.kueue import KUEUE_API, KueueManager
from tests.support.kube import condition
from tests.support.report import record

__all__ = ["jobs", "kueue", "queues", "unmade_queues"]

RETURN_SECONDS = 5


def test_all_roles_wait_for_quota_together_and_none_is_queued_by_itself(
    jobs: JobWorld, queues: Queues
) -> None:
    with jobs.operator(kueue=True):
        queued(jobs, "first", chief=1, workers=5)
        jobs.run_pods("first", count=6)
        jobs.wait(lambda: condition(queues.workload("first"), "PodsReady") == "True")
        queued(jobs, "second", chief=1, workers=2)
        jobs.wait(lambda: jobs.status_of("second").get("reason") == "WaitsInKueue")
        jobs.wait(lambda: "insufficient unused quota" in jobs.status_of("second")["message"])
        assert not jobs.pods("second")
        for role in ("chief", "worker"):
            job = jobs.indexed_job(f"second-{role}")
            assert job["spec"]["suspend"] is True
            # There is a LocalQueue `default`, which Kueue gives to Jobs that name none.
            assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
        assert len(queues.workloads()) == 2
        jobs.wait(lambda: queues.used() == 6)
        for pod in jobs.pods("first"):
            jobs.end_pod(pod)
        jobs.wait(lambda: jobs.status_of("first").get("state") == "Succeeded")
        jobs.wait(lambda: condition(queues.workload("first"), "Finished") == "True")
        jobs.run_pods("second", count=3)
        jobs.wait(lambda: jobs.status_of("second").get("state") == "Running")
        jobs.wait(lambda: queues.used() == 3)


def test_a_preempted_job_gives_its_quota_back_and_goes_on_when_there_is_room(
    jobs: JobWorld, queues: Queues, request: pytest.FixtureRequest
) -> None:
    with jobs.operator(kueue=True):
        queued(jobs, "patient", workers=4, gpus=2)
        jobs.run_pods("patient", count=4)
        jobs.wait(lambda: jobs.status_of("patient").get("state") == "Running")
        plain(jobs, "urgent", pods=2, gpus=4, labels={"kueue.x-k8s.io/priority-class": queues.urgent})
        jobs.wait(lambda: condition(queues.workload("patient"), "Evicted") == "True")
        evicted = time.monotonic()
        jobs.wait(lambda: not holds(queues.workload("patient")))
        seconds = time.monotonic() - evicted
        record(request.config, f"quota given back {seconds:.1f} s after the eviction")
        assert seconds <= RETURN_SECONDS
        jobs.run_pods("urgent", count=2)
        jobs.wait(lambda: queues.used() == QUOTA)
        assert not jobs.pods("patient")
        jobs.wait(lambda: jobs.status_of("patient").get("state") == "Queued")
        for pod in jobs.pods("urgent"):
            jobs.end_pod(pod)
        jobs.run_pods("patient", count=4)
        jobs.wait(lambda: jobs.status_of("patient").get("state") == "Running")
        # Made suspended, started, suspended, started: each change of a spec counts one.
        assert jobs.indexed_job("patient-worker")["metadata"]["generation"] == 4


def test_without_kueue_what_runs_goes_on_and_what_waits_starts_after_its_return(
    jobs: JobWorld, queues: Queues, kueue: KueueManager
) -> None:
    with jobs.operator(kueue=True):
        queued(jobs, "running", workers=4, gpus=2)
        jobs.run_pods("running", count=4)
        jobs.wait(lambda: jobs.status_of("running").get("state") == "Running")
        queued(jobs, "waiting", workers=1)
        jobs.wait(lambda: jobs.status_of("waiting").get("reason") == "WaitsInKueue")
        kueue.kill()
        for pod in jobs.pods("running"):
            jobs.end_pod(pod)
        jobs.wait(lambda: jobs.status_of("running").get("state") == "Succeeded")
        assert not jobs.pods("waiting")
        kueue.restart()
        jobs.run_pods("waiting", count=1)


def test_a_suspended_job_holds_no_quota_and_queues_again_when_it_is_resumed(
    jobs: JobWorld, queues: Queues
) -> None:
    with jobs.operator(kueue=True):
        queued(jobs, "train", workers=2)
        jobs.run_pods("train", count=2)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        jobs.change_job("train", runPolicy={"suspend": True})
        jobs.wait(lambda: not holds(queues.workload("train")))
        jobs.wait(lambda: queues.used() == 0)
        assert not jobs.pods("train")
        jobs.change_job("train", runPolicy={"suspend": False})
        jobs.run_pods("train", count=2)
        jobs.wait(lambda: queues.used() == 2)


def test_an_elastic_job_is_admitted_with_as_many_workers_as_there_is_quota_for(
    jobs: JobWorld, queues: Queues
) -> None:
    with jobs.operator(kueue=True):
        plain(jobs, "other", pods=5, gpus=1)
        jobs.wait(lambda: queues.used() == 5)
        queued(jobs, "elastic", workers=6, framework="PyTorch", elastic={"minReplicas": 2, "maxReplicas": 6})
        jobs.run_pods("elastic", count=3)
        jobs.wait(lambda: jobs.status_of("elastic").get("state") == "Running")
        assert jobs.status_of("elastic")["admittedWorkers"] == 3
        assert queues.workload("elastic")["spec"]["podSets"][0]["count"] == 6
        jobs.wait(lambda: queues.used() == QUOTA)
        # Fewer than it needs at least are not taken: the next one waits, though there would be room for nothing else.
        queued(jobs, "larger", workers=6, framework="PyTorch", elastic={"minReplicas": 4, "maxReplicas": 6})
        jobs.wait(lambda: jobs.status_of("larger").get("reason") == "WaitsInKueue")
        for pod in jobs.pods("elastic"):
            jobs.end_pod(pod)
        jobs.wait(lambda: jobs.status_of("elastic").get("state") == "Succeeded")
        jobs.wait(lambda: queues.used() == 5)
        assert not jobs.pods("larger")


CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"


@pytest.fixture
def check(jobs: JobWorld, unmade_queues: Queues) -> Iterator[str]:
    """An AdmissionCheck whose controller is the test: it answers as the one of ProvisioningRequests does."""
    name = f"{jobs.cluster}-nodes"
    spec = {"controllerName": "tests.tdcs.io/nodes"}
    jobs.kube.create(
        {"apiVersion": KUEUE_API, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}
    )
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": now(),
    }
    status = {"status": {"conditions": [active]}}
    jobs.kube.patch("AdmissionCheck", name, status, namespace=None, subresource="status")
    unmade_queues.create(checks=[name])
    yield name
    jobs.kube.patch("AdmissionCheck", name, {"metadata": {"finalizers": None}}, namespace=None)
    jobs.kube.delete("AdmissionCheck", name)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def answer(jobs: JobWorld, queues: Queues, name: str, check: str, **updates: object) -> None:
    """The check is ready for the Workload of a TrainingJob, and wants its workers to carry something."""
    state = {
        "name": check,
        "state": "Ready",
        "message": "nodes are there",
        "lastTransitionTime": now(),
        "podSetUpdates": [{"name": "worker", **updates}],
    }
    workload = f"trainingjob-{name}"
    change = {"status": {"admissionChecks": [state]}}
    jobs.kube.patch("Workload", workload, change, namespace=jobs.namespace, subresource="status")


def test_pods_carry_what_a_check_of_their_queue_asks_for_also_after_it_was_suspended(
    jobs: JobWorld, unmade_queues: Queues, check: str
) -> None:
    queues = unmade_queues
    with jobs.operator(kueue=True):
        queued(jobs, "train", workers=4, gpus=2)
        jobs.wait(lambda: holds(queues.workload("train")))
        assert not jobs.pods("train")  # the check has not answered
        answer(jobs, queues, "train", check, annotations={CONSUME: "train-1"}, labels={"nodes": "new"})
        for pod in jobs.run_pods("train", count=4):
            assert pod["metadata"]["annotations"][CONSUME] == "train-1"
            assert pod["metadata"]["labels"]["nodes"] == "new"
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        # A stopped Workload gives its nodes back; those of its next admission are others.
        jobs.change_job("train", runPolicy={"suspend": True})
        jobs.wait(lambda: not jobs.pods("train") and queues.used() == 0)
        jobs.change_job("train", runPolicy={"suspend": False})
        jobs.wait(lambda: holds(queues.workload("train")))
        answer(jobs, queues, "train", check, annotations={CONSUME: "train-2"})
        for pod in jobs.run_pods("train", count=4):
            assert pod["metadata"]["annotations"][CONSUME] == "train-2"
            assert "nodes" not in pod["metadata"]["labels"]


def test_a_job_that_is_changed_while_a_check_is_pending_runs_by_quota_for_what_it_is_then(
    jobs: JobWorld, unmade_queues: Queues, check: str
) -> None:
    queues = unmade_queues
    with jobs.operator(kueue=True):
        queued(jobs, "train", workers=1)
        jobs.wait(lambda: queues.used() == 1)
        jobs.change_job("train", workers=4)
        jobs.wait(lambda: queues.used() == 4)
        (assigned,) = queues.workload("train")["status"]["admission"]["podSetAssignments"]
        assert assigned["count"] == 4
        answer(jobs, queues, "train", check)
        jobs.run_pods("train", count=4)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        assert queues.used() == 4


def test_a_job_that_does_not_run_in_time_pauses_and_is_admitted_again_after_its_pause(
    jobs: JobWorld, queues: Queues
) -> None:
    def state(count: int) -> bool:
        requeue_state = (queues.workload("train").get("status") or {}).get("requeueState") or {}
        return bool(requeue_state.get("count") == count and requeue_state.get("requeueAt"))

    with jobs.operator(kueue=True):
        queued(jobs, "train", workers=2, runPolicy={"startTimeoutSeconds": 1})
        for count in (1, 2):
            jobs.wait(lambda count=count: state(count) and not holds(queues.workload("train")))  # type: ignore[misc]
            assert condition(queues.workload("train"), "Requeued") == "False"
            jobs.wait(lambda: queues.used() == 0)
            # Its pause is over.
            over = {"status": {"requeueState": {"requeueAt": now()}}}
            jobs.kube.patch(
                "Workload", "trainingjob-train", over, namespace=jobs.namespace, subresource="status"
            )
        jobs.wait(lambda: state(3))
        jobs.wait(lambda: "that has happened 3 times in a row" in jobs.status_of("train")["message"])


def test_a_job_that_waits_gets_the_priority_of_another_class(jobs: JobWorld, queues: Queues) -> None:
    with jobs.operator(kueue=True):
        plain(jobs, "other", pods=8, gpus=1)
        jobs.wait(lambda: queues.used() == QUOTA)
        queued(jobs, "train", workers=2)
        jobs.wait(lambda: jobs.status_of("train").get("reason") == "WaitsInKueue")
        label = {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": queues.urgent}}}
        jobs.kube.patch("TrainingJob", "train", label, namespace=jobs.namespace)
        jobs.wait(lambda: queues.workload("train")["spec"]["priority"] == 1000)
        # It comes before what is less urgent, which is preempted for it.
        jobs.run_pods("train", count=2)
