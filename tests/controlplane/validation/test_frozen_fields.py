"""Fields that children were made from cannot be changed, and the refusal says what to do instead."""

from typing import Any

import pytest
from tests.controlplane.validation.objects import MAKERS, POD, cache_cluster, edited, training_job
from tests.support.kube import Kube, KubeRequestError

FROZEN = [
    (
        "CacheCluster",
        "spec.storage.tiers.0.path",
        "/mnt/other",
        "the path of a tier cannot be changed",
    ),
    ("CacheCluster", "spec.engine", "Native", "cannot be changed: create another CacheCluster"),
    ("Dataset", "spec.source.uri", "s3://other/prefix", "create another Dataset for another source"),
    ("Dataset", "spec.source.options.region", "mars", "create another Dataset"),
    (
        "Dataset",
        "spec.source",
        {"datasetRef": {"namespace": "a", "name": "b"}},
        "create another Dataset for another source",
    ),
    ("Dataset", "spec.cacheClusterRef.name", "other", "create another Dataset"),
    ("Preload", "spec.paths", ["val"], "delete the Preload and create it again"),
    ("Preload", "spec.nodes", ["a"], "delete the Preload and create it again"),
    (
        "TrainingJob",
        "spec.replicaSpecs",
        [{"name": "Worker", "template": POD}, {"name": "Chief", "template": POD}],
        "cannot be changed once created",
    ),
    ("TrainingJob", "spec.framework", "TensorFlow", "cannot be changed once created"),
    ("TrainingJob", "spec.elastic", {"minReplicas": 1, "maxReplicas": 2}, "cannot be changed once created"),
    ("TrainingJob", "spec.datasets.0.mountPath", "/other", "delete the TrainingJob and create it again"),
]


WHILE_IT_WAITS: list[tuple[str, Any]] = [
    ("spec.workers", 2),
    ("spec.replicaSpecs.0.template.spec.containers.0.image", "other"),
    ("spec.replicaSpecs.0.template.spec.containers.0.command", ["x"]),
    ("spec.replicaSpecs.0.template.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": 2}}),
    ("spec.replicaSpecs.0.template.spec.nodeSelector", {"a": "b"}),
    ("spec.scheduling.mode", "Affinity"),
    ("spec.scheduling.gang", False),
    ("spec.scheduling.priorityClassName", "high"),
    ("spec.runPolicy.failurePolicy", {"restart": "Pod"}),
    ("spec.runPolicy.failurePolicy", {"onExitCodes": [{"action": "Ignore", "values": [3]}]}),
]


@pytest.mark.parametrize(("path", "value"), WHILE_IT_WAITS)
def test_what_a_waiting_job_may_change_an_admitted_one_may_not(
    installed: Kube, namespace: str, path: str, value: Any
) -> None:
    created_job = installed.create(training_job(namespace=namespace))
    name = created_job["metadata"]["name"]
    patch = {"spec": edited(created_job, path, value)["spec"]}

    def admitted(status: str) -> None:
        entered = {
            "type": "Admitted",
            "status": status,
            "reason": "AllPodsFit",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        installed.patch(
            "TrainingJob",
            name,
            {"status": {"conditions": [entered]}},
            namespace=namespace,
            subresource="status",
        )

    admitted("True")
    with pytest.raises(KubeRequestError) as refused:
        installed.patch("TrainingJob", name, patch, namespace=namespace)
    remedy = "suspend it (spec.runPolicy.suspend) and wait"
    assert f"cannot be changed while the job is admitted: {remedy}" in str(refused.value)
    # What is no part of the pods may change.
    installed.patch("TrainingJob", name, {"spec": {"runPolicy": {"suspend": True}}}, namespace=namespace)
    admitted("False")
    installed.patch("TrainingJob", name, patch, namespace=namespace)


def test_a_job_that_has_promised_its_end_cannot_raise_its_deadline(installed: Kube, namespace: str) -> None:
    waiting_job = training_job(namespace=namespace)
    waiting_job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 60}
    created_job = installed.create(waiting_job)
    name, moment = created_job["metadata"]["name"], "2026-01-01T00:00:00Z"
    entered = {
        "type": "Admitted",
        "status": "True",
        "reason": "AllPodsFit",
        "message": "",
        "lastTransitionTime": moment,
    }

    def status(**queue: str) -> None:
        status_patch = {"status": {"conditions": [entered], "queue": queue}}
        installed.patch("TrainingJob", name, status_patch, namespace=namespace, subresource="status")

    def ask(deadline: int | None) -> None:
        patch = {"spec": {"runPolicy": {"activeDeadlineSeconds": deadline}}}
        installed.patch("TrainingJob", name, patch, namespace=namespace)

    status(lack="none")
    ask(90)
    status(endsBy=moment)
    for longer in (91, None):
        with pytest.raises(
            KubeRequestError, match="the job runs on nodes that are set aside for another job"
        ):
            ask(longer)
    ask(30)
    entered["status"] = "False"
    status(endsBy=moment)
    ask(10_000)


@pytest.mark.parametrize(("kind", "path", "value", "sentence"), FROZEN)
@pytest.mark.failure_mode("frozen-field-edited")
def test_what_children_are_made_from_cannot_be_changed(
    installed: Kube, namespace: str, kind: str, path: str, value: Any, sentence: str
) -> None:
    created_job = installed.create(MAKERS[kind](namespace=namespace))
    changed = edited(created_job, path, value)
    with pytest.raises(KubeRequestError) as refused:
        installed.patch(kind, created_job["metadata"]["name"], {"spec": changed["spec"]}, namespace=namespace)
    assert sentence in str(refused.value)


def test_the_path_of_a_tier_cannot_be_changed_and_its_size_can(installed: Kube, namespace: str) -> None:
    cluster_name = installed.create(cache_cluster(namespace=namespace))["metadata"]["name"]

    def change(**tier: str) -> None:
        patch = {"spec": {"storage": {"tiers": [tier]}}}
        installed.patch("CacheCluster", cluster_name, patch, namespace=namespace)

    change(capacity="20Gi")
    with pytest.raises(KubeRequestError, match="the path of a tier cannot be changed"):
        change(path="/mnt/nvme")


def test_the_scale_subresource_of_a_job_is_its_workers(installed: Kube, namespace: str) -> None:
    fixed = training_job(namespace=namespace, name="fixed")
    elastic = training_job(namespace=namespace, name="elastic")
    elastic["spec"] |= {"framework": "PyTorch", "elastic": {"minReplicas": 1, "maxReplicas": 3}}
    for job in (fixed, elastic):
        installed.create(job)
    scale = {"spec": {"replicas": 2}}
    assert installed.get_under("TrainingJob", "fixed", "scale", namespace=namespace)["spec"] == {
        "replicas": 1
    }
    installed.patch("TrainingJob", "fixed", scale, namespace=namespace, subresource="scale")  # it waits
    installed.patch("TrainingJob", "elastic", scale, namespace=namespace, subresource="scale")
    assert installed.get("TrainingJob", "elastic", namespace=namespace)["spec"]["workers"] == 2
    with pytest.raises(
        KubeRequestError, match=r"must be between elastic\.minReplicas and elastic\.maxReplicas"
    ):
        installed.patch(
            "TrainingJob", "elastic", {"spec": {"replicas": 4}}, namespace=namespace, subresource="scale"
        )


@pytest.mark.parametrize("kind", ["CacheCluster", "Dataset", "TrainingJob"])
def test_the_scale_subresource_takes_no_number_that_the_spec_would_not_take(
    installed: Kube, namespace: str, kind: str
) -> None:
    name = installed.create(MAKERS[kind](namespace=namespace))["metadata"]["name"]
    for count in (-1, 0, 1_000_000):
        patch = {"spec": {"replicas": count}}
        with pytest.raises(KubeRequestError):
            installed.patch(kind, name, patch, namespace=namespace, subresource="scale")
