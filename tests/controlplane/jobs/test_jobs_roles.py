"""Jobs with roles on a real Job controller: who ends the job, what becomes of the others, and what is left behind."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import message_of, reason_of
from tests.support.kube import Object, condition
from tests.support.kube.objects import counts_of

__all__ = ["jobs"]


def ps_job(jobs: JobWorld, name: str = "train", **spec: Any) -> Object:
    """A parameter-server job: a chief, two workers, a server."""
    roles = {"Chief": jobs.role(1), "Worker": jobs.role(2, gpus=1), "PS": jobs.role(1)}
    return jobs.create_job(name, **{"framework": "TensorFlow", "datasets": [], "roles": roles, **spec})


def role_pods(jobs: JobWorld, role: str, name: str = "train") -> list[Object]:
    return [pod for pod in jobs.pods(name) if pod["metadata"]["labels"]["tdcs.io/role"] == role]


@pytest.mark.failure_mode("chief-succeeded")
def test_parameter_servers_and_workers_are_ended_when_the_chief_has_succeeded(jobs: JobWorld) -> None:
    ps_job(jobs)
    with jobs.operator():
        jobs.run_pods(count=4)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        cluster = json.loads(
            next(
                variable["value"]
                for variable in role_pods(jobs, "ps")[0]["spec"]["containers"][0]["env"]
                if variable["name"] == "TF_CONFIG"
            ).replace("$(JOB_COMPLETION_INDEX)", "0")
        )
        hosts = {pod["spec"]["hostname"] for pod in jobs.pods()}
        named_hosts = {host.partition(".")[0] for listed in cluster["cluster"].values() for host in listed}
        assert named_hosts == hosts
        assert cluster["task"] == {"type": "ps", "index": 0}
        jobs.end_pod(role_pods(jobs, "chief")[0])
        jobs.wait(lambda: condition(jobs.job(), "Succeeded") == "True")
        jobs.wait(lambda: [pod["metadata"]["labels"]["tdcs.io/role"] for pod in jobs.pods()] == ["chief"])
        status = jobs.status_of("train")
        assert message_of(jobs.job(), "Succeeded") == "the chief succeeded"
        assert len(status["placement"]) == 4
        assert counts_of(status, "PS")["active"] == 0
        assert counts_of(status, "Chief")["succeeded"] == 1


def test_all_pods_go_when_that_is_the_policy(jobs: JobWorld) -> None:
    ps_job(jobs, runPolicy={"cleanPodPolicy": "All"})
    with jobs.operator():
        jobs.run_pods(count=4)
        jobs.end_pod(role_pods(jobs, "chief")[0])
        jobs.wait(lambda: condition(jobs.job(), "Succeeded") == "True")
        jobs.wait(lambda: not jobs.kube.list("Job", namespace=jobs.namespace))
        jobs.wait(lambda: not jobs.pods())
        assert jobs.status_of("train")["state"] == "Succeeded"


@pytest.mark.failure_mode("role-fails")
def test_worker_0_decides_and_a_lost_role_fails_the_whole(jobs: JobWorld) -> None:
    jobs.gpu_job("good", pods=2, framework="PyTorch")
    ps_job(jobs, "bad", runPolicy={"backoffLimit": 0})
    with jobs.operator():
        first, second = jobs.run_pods("good", count=2)
        env = {variable["name"]: variable.get("value") for variable in first["spec"]["containers"][0]["env"]}
        assert env["MASTER_ADDR"] == f"good-worker-0.good.{jobs.namespace}.svc"
        assert (env["WORLD_SIZE"], env["PET_NNODES"]) == ("2", "2")
        jobs.end_pod(first)
        jobs.end_pod(second)
        jobs.wait(lambda: condition(jobs.job("good"), "Succeeded") == "True")

        jobs.run_pods("bad", count=4)
        lost = role_pods(jobs, "ps", "bad")[0]
        jobs.end_pod(lost, code=137)
        jobs.wait(lambda: condition(jobs.job("bad"), "Failed") == "True")
        name, node = lost["metadata"]["name"], lost["spec"]["nodeName"]
        message = message_of(jobs.job("bad"), "Failed")
        assert message.startswith(
            f"ps 0 (pod {name} on node {node}) failed with exit code 137 (no restart is left: "
        )
        assert f"see kubectl logs -n {jobs.namespace} {name}" in message
        jobs.wait(lambda: not role_pods(jobs, "worker", "bad"))


@pytest.mark.failure_mode("independent-pod-fails")
def test_a_failed_pod_is_told_and_replaced(jobs: JobWorld) -> None:
    jobs.gpu_job("train", pods=2)
    with jobs.operator():
        first, _ = jobs.run_pods(count=2)
        jobs.end_pod(first, code=3)
        jobs.wait(lambda: condition(jobs.job(), "Restarting") == "True")
        assert f"{first['metadata']['name']} on node" in message_of(jobs.job(), "Restarting")
        assert "exit code 3" in message_of(jobs.job(), "Restarting")
        assert jobs.status_of("train")["state"] == "Restarting"
        jobs.wait(lambda: len([pod for pod in jobs.pods() if pod["status"]["phase"] != "Failed"]) == 2)
        jobs.run_pods(count=3)
        jobs.wait(lambda: condition(jobs.job(), "Running") == "True")
        assert condition(jobs.job(), "Restarting") == "False"


@pytest.mark.failure_mode("pod-lacks-node-image-or-volume")
def test_why_pods_do_not_start_is_quoted(jobs: JobWorld) -> None:
    jobs.gpu_job("train", pods=1)
    with jobs.operator():
        jobs.wait(lambda: jobs.bound() == 1)
        jobs.hold_up(jobs.pods()[0], reason="ImagePullBackOff", message='Back-off pulling image "train:test"')
        jobs.wait(lambda: jobs.status_of("train").get("reason") == "ImagePullBackOff")
        assert 'Back-off pulling image "train:test"' in jobs.status_of("train")["message"]
        pod = jobs.pods()[0]
        jobs.hold_up(pod, reason="ContainerCreating", message="")
        jobs.kube.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "mount", "namespace": jobs.namespace},
                "involvedObject": {
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "namespace": jobs.namespace,
                    "uid": pod["metadata"]["uid"],
                },
                "reason": "FailedMount",
                "type": "Warning",
                "message": "MountVolume.SetUp failed: driver name csi.tdcs.io not found",
                "lastTimestamp": pod["metadata"]["creationTimestamp"],
            }
        )
        jobs.wait(lambda: jobs.status_of("train").get("reason") == "FailedMount")
        assert "csi.tdcs.io not found" in jobs.status_of("train")["message"]


def test_suspended_and_resumed(jobs: JobWorld) -> None:
    ps_job(jobs)
    with jobs.operator():
        jobs.run_pods(count=4)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        jobs.change_job("train", runPolicy={"suspend": True})
        jobs.wait(lambda: condition(jobs.job(), "Suspended") == "True")
        jobs.wait(lambda: not jobs.pods())
        jobs.change_job("train", runPolicy={"suspend": False})
        jobs.run_pods(count=4)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        assert condition(jobs.job(), "Suspended") == "False"


def test_the_number_of_workers_of_an_elastic_job_follows_scale(jobs: JobWorld) -> None:
    jobs.gpu_job("train", pods=2, framework="PyTorch", elastic={"minReplicas": 1, "maxReplicas": 4})
    with jobs.operator():
        jobs.run_pods(count=2)
        for workers in (4, 1):
            scale = {"spec": {"replicas": workers}}
            jobs.kube.patch("TrainingJob", "train", scale, namespace=jobs.namespace, subresource="scale")
            jobs.run_pods(count=workers)
            jobs.wait(partial(_counts, jobs, workers))
            jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        assert jobs.pods()[0]["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
        assert jobs.status_of("train")["selector"] == "tdcs.io/training-job=train,tdcs.io/role=worker"


STATES = ("Queued", "Suspended", "Starting", "Running", "Restarting", "Succeeded", "Failed")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.failure_mode("job-deleted")
def test_a_job_that_is_deleted_in_any_state_leaves_nothing(jobs: JobWorld, state: str) -> None:
    policy = {"suspend": state == "Suspended", "backoffLimit": 0 if state == "Failed" else 6}
    jobs.gpu_job("train", pods=100 if state == "Queued" else 2, runPolicy=policy)
    with jobs.operator():
        if state not in {"Queued", "Suspended", "Starting"}:
            pods = jobs.run_pods(count=2)
            for pod in pods if state == "Succeeded" else pods[:1] if state != "Running" else ():
                jobs.end_pod(pod, code=0 if state == "Succeeded" else 1)
        jobs.wait(lambda: jobs.status_of("train").get("state") == state)
        jobs.kube.delete("TrainingJob", "train", namespace=jobs.namespace)
        for kind in ("Job", "Pod", "Service"):
            jobs.wait(partial(_none_left, jobs, kind))
        assert jobs.kube.find("TrainingJob", "train", namespace=jobs.namespace) is None


@pytest.mark.failure_mode("child-name-taken")
def test_a_strangers_job_of_the_childs_name_is_left_alone(jobs: JobWorld) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    stranger = jobs.kube.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train-worker", "namespace": jobs.namespace},
            "spec": {"suspend": True, "template": template},
        }
    )
    jobs.gpu_job("train", pods=1)
    with jobs.operator():
        jobs.wait(lambda: reason_of(jobs.job(), "Admitted") == "NameTaken")
        assert f"Job {jobs.namespace}/train-worker exists" in jobs.status_of("train")["message"]
        job_after = jobs.indexed_job("train-worker")
        assert job_after["metadata"]["uid"] == stranger["metadata"]["uid"]
        assert job_after["spec"]["suspend"] is True


def test_affinity_mode_writes_where_the_data_was(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Partition", "nodeCount": 1})
    with jobs.operator():
        jobs.wait(lambda: (jobs.dataset().get("status") or {}).get("cachedRatio") == 1)
        held = [node["name"] for copy in jobs.dataset()["status"]["copies"] for node in copy["nodes"]]
        uses = [{"name": "pictures", "mountPath": "/data", "readiness": {"percent": 100}}]
        jobs.gpu_job("train", pods=2, datasets=uses, scheduling={"mode": "Affinity"})
        jobs.wait(lambda: jobs.pods())
        spec = jobs.pods()[0]["spec"]
        assert spec["schedulerName"] == "default-scheduler"
        terms = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        terms_of_data = [{"key": "kubernetes.io/hostname", "operator": "In", "values": held}]
        assert [(term["weight"], term["preference"]["matchExpressions"]) for term in terms] == [
            (100, terms_of_data)
        ]


@pytest.mark.failure_mode("affinity-job-suspended")
def test_in_affinity_mode_a_resumed_job_runs_although_its_data_has_moved(jobs: JobWorld) -> None:
    jobs.create_cluster()
    jobs.create_dataset(placement={"mode": "Partition", "nodeCount": 1})

    def nodes_with_data() -> int:
        copies = (jobs.dataset().get("status") or {}).get("copies") or ()
        return sum(node["bytes"] > 0 for copy in copies for node in copy["nodes"])

    with jobs.operator():
        jobs.wait(lambda: nodes_with_data() == 1)
        uses = [{"name": "pictures", "mountPath": "/data"}]
        jobs.gpu_job("train", pods=2, datasets=uses, scheduling={"mode": "Affinity"})
        jobs.run_pods(count=2)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        jobs.change_job("train", runPolicy={"suspend": True})
        jobs.wait(lambda: not jobs.pods())
        jobs.change_dataset(placement={"nodeCount": 2})
        jobs.wait(lambda: nodes_with_data() == 2)
        # The API server lets nobody change the template of a Job that has started: its pods prefer what they did.
        jobs.change_job("train", runPolicy={"suspend": False})
        jobs.run_pods(count=2)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        assert reason_of(jobs.job(), "Admitted") == "AllPodsFit"


@pytest.mark.failure_mode("job-recreated")
def test_a_job_that_is_deleted_and_applied_again_at_once_runs_without_a_warning(jobs: JobWorld) -> None:
    jobs.gpu_job("train", pods=2)
    with jobs.operator():
        jobs.run_pods(count=2)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        jobs.kube.delete("TrainingJob", "train", namespace=jobs.namespace)
        first = {pod["metadata"]["uid"] for pod in jobs.pods()}
        jobs.gpu_job("train", pods=2)
        jobs.wait(lambda: not first & {pod["metadata"]["uid"] for pod in jobs.pods()})
        jobs.run_pods(count=2)
        jobs.wait(lambda: jobs.status_of("train").get("state") == "Running")
        events = jobs.kube.list("Event", namespace=jobs.namespace)
        assert not [
            event["reason"]
            for event in events
            if event["involvedObject"]["kind"] == "TrainingJob" and event["type"] == "Warning"
        ]


def _counts(jobs: JobWorld, wanted: int) -> bool:
    return bool(jobs.status_of("train").get("replicas") == wanted)


def _none_left(jobs: JobWorld, kind: str) -> bool:
    return not jobs.kube.list(kind, namespace=jobs.namespace)
