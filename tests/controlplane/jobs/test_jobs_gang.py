"""Jobs start with all their pods or with none, in the order of priority and age, and never wait forever."""

from __future__ import annotations

import re

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import message_of, reason_of
from tests.support.kube import Object, condition
from tests.support.kube.objects import gpu_pod

__all__ = ["jobs"]


@pytest.mark.failure_mode("two-jobs-of-more-than-half")
def test_two_jobs_that_each_need_more_than_half_never_hold_half_each(jobs: JobWorld) -> None:
    for name in ("first", "second"):
        jobs.gpu_job(name, pods=6)
    with jobs.operator():
        jobs.wait(lambda: jobs.bound("first") + jobs.bound("second") == 6)
        holder, waits = ("first", "second") if jobs.bound("first") else ("second", "first")
        jobs.wait(lambda: condition(jobs.job(waits), "Queued") == "True")
        assert not jobs.pods(waits)
        assert jobs.indexed_job(f"{waits}-worker")["spec"]["suspend"] is True
        assert "needs 6 nvidia.com/gpu at once, 2 nvidia.com/gpu free" in message_of(
            jobs.job(waits), "Queued"
        )
        assert jobs.status_of(waits)["state"] == "Queued"
        for pod in jobs.run_pods(holder, count=6):
            jobs.end_pod(pod)
        jobs.wait(lambda: jobs.bound(waits) == 6)
        jobs.wait(lambda: condition(jobs.job(waits), "Queued") == "False")
        jobs.wait(lambda: condition(jobs.job(holder), "Succeeded") == "True")


def test_without_gang_a_job_takes_what_it_gets(jobs: JobWorld) -> None:
    jobs.gpu_job("greedy", pods=12, scheduling={"gang": False})
    with jobs.operator():
        jobs.wait(lambda: jobs.bound("greedy") == 8)
        jobs.wait(lambda: reason_of(jobs.job("greedy"), "Running") == "Unschedulable")
        assert "Insufficient nvidia.com/gpu" in jobs.status_of("greedy")["message"]


@pytest.mark.failure_mode("priority-class-missing")
def test_the_more_important_job_enters_first(jobs: JobWorld) -> None:
    name = f"urgent-{jobs.namespace[-6:]}"
    importance: Object = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
        "preemptionPolicy": "Never",
    }
    jobs.gpu_job("running", pods=8)
    with jobs.operator():
        jobs.run_pods("running", count=8)
        jobs.gpu_job("patient", pods=8)
        jobs.wait(lambda: condition(jobs.job("patient"), "Queued") == "True")
        jobs.gpu_job("urgent", pods=8, scheduling={"priorityClassName": name})
        jobs.wait(lambda: reason_of(jobs.job("urgent"), "Admitted") == "PriorityClassNotFound")
        assert name in message_of(jobs.job("urgent"), "Admitted")
        jobs.kube.create(importance)
        try:
            jobs.wait(lambda: reason_of(jobs.job("urgent"), "Admitted") == "NotEnoughRoom")
            for pod in jobs.pods("running"):
                jobs.end_pod(pod)
            jobs.wait(lambda: jobs.bound("urgent") == 8)
            assert jobs.pods("urgent")[0]["spec"]["priority"] == 1000
            jobs.wait(lambda: "position 1 in the queue" in message_of(jobs.job("patient"), "Queued"))
            assert not jobs.pods("patient")
        finally:
            jobs.kube.delete("PriorityClass", name)


@pytest.mark.failure_mode("job-larger-than-any-node")
def test_a_job_that_no_node_can_hold_says_so_and_small_ones_pass_it(jobs: JobWorld) -> None:
    jobs.gpu_job("giant", pods=1, gpus=16)
    with jobs.operator():
        jobs.wait(lambda: reason_of(jobs.job("giant"), "Queued") == "NoNodeIsLargeEnough")
        assert (
            "16 nvidia.com/gpu, and the largest node that it may use has 4"
            in jobs.status_of("giant")["message"]
        )
        jobs.gpu_job("small", pods=2)
        jobs.wait(lambda: jobs.bound("small") == 2)
        jobs.kube.patch(
            "Node",
            jobs.nodes[0],
            {"status": {"allocatable": {"nvidia.com/gpu": "32"}, "capacity": {"nvidia.com/gpu": "32"}}},
            subresource="status",
        )
        jobs.wait(lambda: jobs.bound("giant") == 1)


@pytest.mark.failure_mode("operator-restarted-with-queue")
def test_a_restarted_operator_neither_stops_nor_doubles_what_it_let_in(jobs: JobWorld) -> None:
    for name in ("first", "second"):
        jobs.gpu_job(name, pods=6)
    with jobs.operator():
        jobs.wait(lambda: jobs.bound("first") + jobs.bound("second") == 6)
    holder, waits = ("first", "second") if jobs.bound("first") else ("second", "first")
    before = [pod["metadata"]["uid"] for pod in jobs.pods(holder)]
    with jobs.operator() as again:
        jobs.run_pods(holder, count=6)
        jobs.wait(lambda: jobs.status_of(holder)["state"] == "Running")
        jobs.wait(lambda: again.idle_seconds() > 2)
        assert [pod["metadata"]["uid"] for pod in jobs.pods(holder)] == before
        assert not jobs.pods(waits)


def stranger(jobs: JobWorld, *, node: str, gpus: int) -> Object:
    """A pod of somebody else that is on a node already, whatever scheduler put it there."""
    pod = gpu_pod(name="stranger", namespace=jobs.namespace, gpus=gpus, cpus=1, spec={"nodeName": node})
    return jobs.kube.create(pod)


@pytest.mark.failure_mode("gang-room-taken")
def test_a_gang_whose_room_others_took_holds_nothing_and_queues_again(jobs: JobWorld) -> None:
    scheduler = jobs.plane.process("kube-scheduler")
    scheduler.kill()  # so that the job is let in, and the others are faster than its scheduler
    try:
        jobs.gpu_job("train", pods=6)
        with jobs.operator(gang_patience=15):  # long enough for a scheduler to start
            jobs.wait(lambda: len(jobs.pods()) == 6)
            stranger(jobs, node=jobs.nodes[1], gpus=4)
            scheduler.start()

            def told() -> list[str]:
                events = jobs.kube.list("Event", namespace=jobs.namespace)
                return [event["message"] for event in events if event["reason"] == "NotAllPodsPlaced"]

            jobs.wait(told)
            # The second may not have been looked at yet when the time was over.
            assert re.search("[12] of its 6 pods found no place within 15 s", told()[0])
            assert "Insufficient nvidia.com/gpu" in told()[0]
            jobs.wait(lambda: not jobs.pods())
            assert jobs.indexed_job("train-worker")["spec"]["suspend"] is True
            # What it gave back serves others at once.
            jobs.gpu_job("small", pods=4)
            jobs.run_pods("small", count=4)
            jobs.wait(lambda: reason_of(jobs.job(), "Queued") == "NotEnoughRoom")
            for pod in jobs.pods("small"):
                jobs.end_pod(pod)
            jobs.kube.delete("Pod", "stranger", namespace=jobs.namespace, grace_seconds=0)
            jobs.run_pods(count=6)
            jobs.wait(lambda: jobs.status_of("train")["state"] == "Running")
    finally:
        if not scheduler.alive:
            scheduler.start()


@pytest.mark.failure_mode("gang-room-taken")
def test_a_running_gang_that_loses_a_node_holds_nothing_until_there_is_room_again(jobs: JobWorld) -> None:
    with jobs.operator(gang_patience=3):
        jobs.gpu_job("train", pods=6, runPolicy={"recoveryTimeoutSeconds": 3})
        jobs.run_pods(count=6)
        jobs.wait(lambda: jobs.status_of("train")["state"] == "Running")
        lost = jobs.kube.get("Node", jobs.nodes[1])
        # Else it might place the new pods on the node before it hears that this is gone.
        with jobs.plane.process("kube-scheduler").away():
            jobs.kube.delete("Node", jobs.nodes[1])
            for pod in jobs.pods():
                if pod["spec"].get("nodeName") == jobs.nodes[1]:
                    jobs.kube.delete(
                        "Pod", pod["metadata"]["name"], namespace=jobs.namespace, grace_seconds=0
                    )
        jobs.wait(lambda: condition(jobs.job(), "Queued") == "True")
        # Pods of a node that is gone go when the cluster's pod collector has said that they failed, a minute later.
        jobs.wait(lambda: not jobs.kube.list("Pod", namespace=jobs.namespace))
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            lost["metadata"].pop(field, None)
        jobs.kube.create(lost)
        jobs.run_pods(count=6)
        jobs.wait(lambda: jobs.status_of("train")["state"] == "Running")


def quota(jobs: JobWorld, *, gpus: int) -> None:
    """The namespace may have so many GPUs."""
    jobs.kube.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": jobs.namespace},
            "spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}},
        }
    )

    def known() -> bool:
        quota = jobs.kube.get("ResourceQuota", "team", namespace=jobs.namespace)
        return bool((quota.get("status") or {}).get("hard"))

    jobs.wait(known)


@pytest.mark.failure_mode("quota-too-small-for-gang")
def test_a_gang_waits_for_its_namespaces_quota_and_names_it(jobs: JobWorld) -> None:
    quota(jobs, gpus=4)
    with jobs.operator():
        jobs.gpu_job("first", pods=3)
        pods = jobs.run_pods("first", count=3)
        jobs.gpu_job("second", pods=3)
        jobs.wait(lambda: jobs.status_of("second").get("reason") == "QuotaTooSmall")
        jobs.wait(lambda: "ResourceQuota team leaves 1 of 4" in jobs.status_of("second")["message"])
        assert not jobs.pods("second")
        for pod in pods:
            jobs.end_pod(pod)
        jobs.run_pods("second", count=3)
        jobs.wait(lambda: jobs.status_of("second").get("state") == "Running")


@pytest.mark.failure_mode("quota-refuses-some-pods")
def test_pods_that_a_quota_refuses_are_told_next_to_those_that_run(jobs: JobWorld) -> None:
    quota(jobs, gpus=2)
    with jobs.operator():
        jobs.gpu_job("train", pods=3, scheduling={"gang": False})
        jobs.run_pods(count=2)
        text = "2 of 3 pods run; 1 pod of the role Worker could not be made: FailedCreate"
        # That it could not be made may be known before the others run.
        jobs.wait(lambda: jobs.status_of("train").get("message", "").startswith(text))
        assert "exceeded quota: team" in jobs.status_of("train")["message"]
