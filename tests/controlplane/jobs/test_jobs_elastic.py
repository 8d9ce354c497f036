"""An elastic job grows and shrinks through the queue, by `kubectl scale`."""

from __future__ import annotations

from functools import partial

import pytest
from tests.controlplane.data.test_operator_data import nodes_of
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.jobs.test_jobs_gang import quota, stranger
from tests.controlplane.operator_world import TOTAL
from tests.support.kube import KubeRequestError, condition
from tests.support.kube.objects import gpu_pod

__all__ = ["jobs"]

BOUNDS = {"minReplicas": 2, "maxReplicas": 8}


def elastic_job(jobs: JobWorld, *, workers: int) -> None:
    jobs.gpu_job("train", pods=workers, framework="PyTorch", elastic=BOUNDS)


def scale(jobs: JobWorld, workers: int) -> None:
    """What `kubectl scale trainingjob train --replicas` sends."""
    change = {"spec": {"replicas": workers}}
    jobs.kube.patch("TrainingJob", "train", change, namespace=jobs.namespace, subresource="scale")


def indices(jobs: JobWorld) -> list[int]:
    """The indices of the job's workers that are not going."""
    key = "batch.kubernetes.io/job-completion-index"
    return sorted(int(pod["metadata"]["annotations"][key]) for pod in jobs.pods())


def says(jobs: JobWorld, text: str) -> bool:
    return text in jobs.status_of("train").get("message", "")


def test_it_grows_as_far_as_room_and_quota_go_and_says_what_it_waits_for(jobs: JobWorld) -> None:
    quota(jobs, gpus=6)
    with jobs.operator():
        elastic_job(jobs, workers=2)
        jobs.run_pods(count=2)
        stranger_pod = stranger(jobs, node=jobs.nodes[1], gpus=2)  # of the six GPUs of the quota two are gone
        scale(jobs, 8)
        jobs.run_pods(count=4)
        jobs.wait(partial(says, jobs, "4 more workers wait for room: "))
        jobs.wait(partial(says, jobs, "ResourceQuota team leaves 0 of 6 requests.nvidia.com/gpu"))
        assert jobs.status_of("train")["replicas"] == 4
        assert jobs.status_of("train")["state"] == "Running"
        jobs.kube.delete("Pod", stranger_pod["metadata"]["name"], namespace=jobs.namespace, grace_seconds=0)
        jobs.run_pods(count=6)
        change = {"spec": {"hard": {"requests.nvidia.com/gpu": "100"}}}
        jobs.kube.patch("ResourceQuota", "team", change, namespace=jobs.namespace)
        jobs.run_pods(count=8)
        jobs.wait(lambda: jobs.status_of("train")["replicas"] == 8)
        jobs.wait(lambda: "more worker" not in jobs.status_of("train")["message"])


def test_it_gives_back_the_workers_with_the_highest_indices_to_those_that_wait(jobs: JobWorld) -> None:
    with jobs.operator():
        elastic_job(jobs, workers=8)
        jobs.run_pods(count=8)
        uids = {pod["metadata"]["uid"] for pod in jobs.pods()[:3]}
        jobs.gpu_job("next", pods=5)
        jobs.wait(lambda: jobs.status_of("next").get("state") == "Queued")
        scale(jobs, 3)
        jobs.run_pods("next", count=5)
        assert indices(jobs) == [0, 1, 2]
        assert {pod["metadata"]["uid"] for pod in jobs.pods()} == uids
        assert jobs.status_of("train")["replicas"] == 3
        # It asks for them again, and waits: whoever waits to start comes before who grows.
        scale(jobs, 8)
        jobs.wait(partial(says, jobs, "5 more workers wait for room: "))
        jobs.gpu_job("last", pods=1)
        jobs.wait(lambda: jobs.status_of("last").get("state") == "Queued")
        for number, pod in enumerate(jobs.pods("next")):
            jobs.end_pod(pod)
            if number == 0:
                jobs.run_pods("last", count=1)
                assert indices(jobs) == [0, 1, 2]
        jobs.run_pods(count=7)


def test_a_number_beyond_its_bounds_is_refused_and_changes_nothing(jobs: JobWorld) -> None:
    with jobs.operator():
        elastic_job(jobs, workers=2)
        jobs.run_pods(count=2)
        for workers in (1, 9):
            with pytest.raises(
                KubeRequestError, match=r"between elastic\.minReplicas and elastic\.maxReplicas"
            ):
                scale(jobs, workers)
        assert jobs.job()["spec"]["workers"] == 2


def test_workers_that_no_node_takes_in_time_are_given_back_and_the_job_runs_on(jobs: JobWorld) -> None:
    with jobs.operator(gang_patience=3):
        elastic_job(jobs, workers=3)
        runs = {pod["metadata"]["uid"] for pod in jobs.run_pods(count=3)}
        # The queue admits three more, and somebody else is faster than their scheduler.
        with jobs.plane.process("kube-scheduler").away():
            scale(jobs, 6)
            jobs.wait(lambda: len(jobs.pods()) == 6)
            for number, node in enumerate(jobs.nodes):
                free = 4 - sum(pod["spec"].get("nodeName") == node for pod in jobs.pods())
                if free:
                    bound_spec = {"nodeName": node}
                    pod = gpu_pod(
                        name=f"s-{number}", namespace=jobs.namespace, gpus=free, cpus=1, spec=bound_spec
                    )
                    jobs.kube.create(pod)
        jobs.wait(lambda: len(jobs.pods()) == 3)
        assert {pod["metadata"]["uid"] for pod in jobs.pods()} == runs
        jobs.wait(lambda: jobs.status_of("train")["replicas"] == 3)
        jobs.wait(partial(says, jobs, "3 of its 6 pods found no place within 3 s"))
        assert jobs.status_of("train")["state"] == "Running"
        for number in range(2):
            if jobs.kube.find("Pod", f"s-{number}", namespace=jobs.namespace):
                jobs.kube.delete("Pod", f"s-{number}", namespace=jobs.namespace, grace_seconds=0)
        jobs.run_pods(count=6)


def test_the_data_is_on_the_nodes_of_new_workers_before_these_come_and_is_not_read_again(
    jobs: JobWorld,
) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Auto"})
    with jobs.operator():
        jobs.wait(lambda: condition(jobs.dataset(), "Loaded") == "True")
        assert len(nodes_of(jobs.dataset())) == 1
        jobs.gpu_job(
            "train",
            pods=1,
            gpus=4,  # a worker takes a whole node
            framework="PyTorch",
            elastic={"minReplicas": 1, "maxReplicas": 2},
            datasets=[{"name": "pictures", "mountPath": "/data"}],
        )
        jobs.run_pods(count=1)
        with jobs.plane.process("kube-scheduler").away():  # no pod gets a node
            scale(jobs, 2)
            jobs.wait(lambda: nodes_of(jobs.dataset()) == dict.fromkeys(jobs.nodes, TOTAL))
            assert jobs.bound() == 1
        jobs.run_pods(count=2)
    assert jobs.engine.source_bytes_read == TOTAL
