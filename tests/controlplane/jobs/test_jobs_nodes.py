"""A gang that the nodes cannot hold asks for more; a stand-in for the autoscaler adds them, too few, or none."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest
from tests.controlplane.job_world import GPUS, JobWorld, held_node, jobs
from tests.controlplane.operator_world import message_of, reason_of
from tests.support.kube import KubeRequestError, Object, UnknownKindError, condition
from tests.support.waiting import eventually

__all__ = ["jobs"]

DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "provisioningrequests.autoscaling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of tests"},
    },
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
            "plural": "provisioningrequests",
            "singular": "provisioningrequest",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                                "x-kubernetes-validations": [
                                    {"rule": "self == oldSelf", "message": "immutable"}
                                ],
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def definition(jobs: JobWorld) -> Iterator[None]:
    jobs.kube.apply(DEFINITION)
    # An operator that asks before the API server serves the kind asks again only a minute later.
    eventually(
        lambda: jobs.kube.list("ProvisioningRequest", namespace=jobs.namespace) is not None,
        deadline=120,
        describe=lambda: str(jobs.kube.get("CustomResourceDefinition", DEFINITION["metadata"]["name"])),
        retry_on=(KubeRequestError, UnknownKindError),
    )
    yield
    jobs.kube.delete("CustomResourceDefinition", DEFINITION["metadata"]["name"])


@pytest.fixture
def more_nodes(jobs: JobWorld) -> Iterator[list[str]]:
    """Names of nodes that a test adds, which go with it."""
    names: list[str] = []
    yield names
    for name in names:
        jobs.kube.delete("Node", name)


def add_node(jobs: JobWorld, names: list[str]) -> None:
    name = f"{jobs.namespace}-late-{len(names)}"
    names.append(name)
    jobs.kube.create(held_node(name=name, gpus=GPUS, namespace=jobs.namespace))


def test_a_released_gang_starts_on_the_nodes_that_come_late(jobs: JobWorld, more_nodes: list[str]) -> None:
    jobs.gpu_job("train", pods=12)
    with jobs.operator(node_provisioning="Release"):
        jobs.wait(lambda: jobs.bound() == 8)
        jobs.wait(lambda: reason_of(jobs.job("train"), "NodesRequested") == "PodsReleased")
        assert len(jobs.pods()) == 12
        add_node(jobs, more_nodes)
        jobs.run_pods(count=12)
        jobs.wait(lambda: condition(jobs.job("train"), "Running") == "True")
        jobs.wait(lambda: reason_of(jobs.job("train"), "NodesRequested") == "NodesCame")


def test_a_gang_for_which_no_nodes_come_holds_none_for_long(jobs: JobWorld) -> None:
    jobs.gpu_job("train", pods=12)
    with jobs.operator(node_provisioning="Release", node_wait_seconds=2):
        jobs.wait(lambda: reason_of(jobs.job("train"), "NodesRequested") == "NodesDidNotCome")
        jobs.wait(lambda: not jobs.pods())
        jobs.gpu_job("small", pods=8)
        jobs.wait(lambda: jobs.bound("small") == 8)


def test_nodes_that_were_requested_are_used_and_the_request_goes(
    jobs: JobWorld, more_nodes: list[str], definition: None
) -> None:
    jobs.gpu_job("train", pods=12)
    name = "trainingjob-train"
    with jobs.operator(node_provisioning="ProvisioningRequest"):
        jobs.wait(lambda: jobs.kube.list("ProvisioningRequest", namespace=jobs.namespace))
        template = jobs.kube.get("PodTemplate", "train-worker", namespace=jobs.namespace)
        assert template["template"]["spec"]["containers"][0]["name"] == "main"
        assert not jobs.pods()
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        came = {
            "type": "Provisioned",
            "status": "True",
            "reason": "Came",
            "message": "3 nodes",
            "lastTransitionTime": now,
        }
        jobs.kube.patch(
            "ProvisioningRequest",
            name,
            {"status": {"conditions": [came]}},
            namespace=jobs.namespace,
            subresource="status",
        )
        jobs.wait(lambda: "3 nodes" in message_of(jobs.job("train"), "NodesRequested"))
        add_node(jobs, more_nodes)
        (pod, *_) = jobs.run_pods(count=12)
        assert pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == name
        jobs.wait(lambda: condition(jobs.job("train"), "Running") == "True")
        jobs.wait(lambda: not jobs.kube.list("ProvisioningRequest", namespace=jobs.namespace))
        jobs.wait(lambda: not jobs.kube.list("PodTemplate", namespace=jobs.namespace))
