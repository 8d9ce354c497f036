"""A TrainJob, a JobSet, a Job and a bare pod that do nothing but mount a claim run on the nodes with its data.

With the real managers of Kubeflow Trainer and JobSet, installed by their charts.
"""

from collections import Counter
from typing import Any

import pytest
from tests.support.kube.claimed_jobs import KIND, PODS, jobs_with_claim
from tests.support.kube.claimed_pods import CLAIM, volumes

from e2e.conftest import describe
from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest
from e2e.support.pods import NOBODY, UNPRIVILEGED
from tdcs_local import demo
from tdcs_local.kind.kubectl import Kubectl, Object, unmet

SCHEDULER = "tdcs-scheduler"
KINDS = "trainjobs.trainer.kubeflow.org,jobsets.jobset.x-k8s.io"
SECONDS = 180


def pod_spec(*, image: str, **more: Any) -> Object:
    """A pod that mounts the claim and prints a sum of what it reads; it names no scheduler unless `more` does."""
    mounts = [
        {"name": "v0", "mountPath": "/data", "readOnly": True, "mountPropagation": "HostToContainer"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    container = {
        "name": "node",
        "image": image,
        "command": ["sh", "-ec", PRINT_CHECKSUMS],
        "resources": {"requests": {"cpu": "50m"}},
        "securityContext": UNPRIVILEGED,
        "volumeMounts": mounts,
    }
    return {
        "securityContext": NOBODY,
        "containers": [container],
        "volumes": [*volumes(CLAIM), {"name": "tmp", "emptyDir": {}}],
        **more,
    }


def trains(job: Object) -> Object:
    """The TrainJob with the program of the examples, a GPU for each of its nodes."""
    trainer = {
        "image": f"tdcs/{demo.TRAINING_IMAGE}:dev",
        "command": ["python3", "/opt/train/bin/train_images.py"],
        "args": ["--data", "/data", "--epochs", "1"],
        "resourcesPerNode": {"requests": {"cpu": "250m"}, "limits": {"nvidia.com/gpu": "1"}},
    }
    return {**job, "spec": {**job["spec"], "trainer": {**job["spec"]["trainer"], **trainer}}}


def run_all(kubectl: Kubectl, objects: list[Object], *, namespace: str) -> list[Object]:
    """Create one object of each kind, and wait until all have ended well; their pods."""
    kubectl.apply(*objects)

    def look() -> str | None:
        unmet_by_kind = {
            "job": unmet(kubectl.get("jobs.batch", "job", namespace=namespace), "Complete"),
            "jobset": unmet(
                kubectl.get("jobsets.jobset.x-k8s.io", "jobset", namespace=namespace), "Completed"
            ),
            "trainjob": unmet(
                kubectl.get("trainjobs.trainer.kubeflow.org", "trainjob", namespace=namespace), "Complete"
            ),
        }
        phase = (kubectl.get("pod", "pod", namespace=namespace) or {}).get("status", {}).get("phase")
        waits = [f"{name}: {condition}" for name, condition in unmet_by_kind.items() if condition is not None]
        waits += [] if phase == "Succeeded" else [f"pod: {phase}"]
        return "; ".join(waits) or None

    kubectl.wait(
        look,
        what="the jobs did not end",
        seconds=SECONDS,
        explain=lambda: f"{kubectl('describe', KINDS, '-n', namespace)}\n{describe(kubectl, namespace)}",
    )
    return kubectl.list("pods", namespace=namespace, selector=KIND)


def check_pods(pods: list[Object], *, holders: set[str]) -> None:
    """All of them ran on the nodes with the data, by our scheduler, and no annotation said what they read."""
    assert Counter(pod["metadata"]["labels"][KIND] for pod in pods) == PODS
    away = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] not in holders]
    assert not away, [(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in pods]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {SCHEDULER}
    assert not [pod for pod in pods if "tdcs.io/datasets" in pod["metadata"].get("annotations", {})]


def log_of(kubectl: Kubectl, pod: Object, *, namespace: str) -> str:
    return kubectl("logs", pod["metadata"]["name"], "-n", namespace)


def test_a_train_job_trains_and_jobs_of_every_kind_read_where_their_data_is(
    holders: set[str], training_image: None, kubectl: Kubectl, namespace: str, toolbox: str
) -> None:
    objects = jobs_with_claim(pod_spec(image=toolbox), namespace=namespace)
    objects = [trains(obj) if obj["kind"] == "TrainJob" else obj for obj in objects]
    pods = run_all(kubectl, objects, namespace=namespace)
    check_pods(pods, holders=holders)
    for pod in pods:
        log = log_of(kubectl, pod, namespace=namespace)
        if pod["metadata"]["labels"][KIND] == "TrainJob":
            assert '"done": true' in log.splitlines()[-1]
        else:
            assert log.split()[0] == expected_digest()


@pytest.mark.usefixtures("kueue_enabled")
def test_with_the_webhook_off_pods_that_name_the_scheduler_run_there_by_their_claim_alone(
    holders: set[str], kubectl: Kubectl, namespace: str, toolbox: str
) -> None:
    spec = pod_spec(image=toolbox, schedulerName=SCHEDULER)
    pods = run_all(kubectl, jobs_with_claim(spec, namespace=namespace), namespace=namespace)
    check_pods(pods, holders=holders)
