"""Jobs start with all their pods or with none, in the order of priority and age, and never wait for ever."""

from __future__ import annotations

from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import message_of, reason_of
from tests.support.kube import Object, condition

__all__ = ["jobs"]


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
            jobs.wait(lambda: "position 1 of 1" in message_of(jobs.job("patient"), "Queued"))
            assert not jobs.pods("patient")
        finally:
            jobs.kube.delete("PriorityClass", name)


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
