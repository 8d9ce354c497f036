"""What pods take and what nodes have left."""

from typing import Any

import pytest
from tests.unit.decide.place.test_node_eligibility import node

from tdcs.control.context import Stores
from tdcs.control.job.queue.queue_snapshot import NodeRoom
from tdcs.control.node_usage import Usage, trimmed
from tdcs.control.node_view import NodeDirectory
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import amount, pod_requests

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("resource", "quantity", "value"),
    [("cpu", "250m", 250), ("cpu", "2", 2000), ("memory", "1Gi", 2**30), (GPU, 4, 4), ("cpu", "much", 0)],
)
def test_quantities_are_integers(resource: str, quantity: object, value: int) -> None:
    assert amount(resource, quantity) == value


def container(*, limits: dict[str, str] | None = None, **more: Any) -> Object:
    return {"name": "main", "resources": {"limits": limits or {}, **more.pop("resources", {})}, **more}


def asks(cpu: str, **more: Any) -> Object:
    return container(resources={"requests": {"cpu": cpu}}, **more)


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param(
            {
                "containers": [
                    container(limits={"cpu": "2", GPU: "1"}, resources={"requests": {"cpu": "1"}}),
                    container(limits={"cpu": "1"}),
                ],
                "initContainers": [container(limits={"cpu": "3"}), asks("500m", restartPolicy="Always")],
                "overhead": {"cpu": "100m"},
            },
            {"cpu": 3100, GPU: 1},
            id="an init container before the sidecar runs without it",
        ),
        pytest.param(
            {"containers": [asks("1")], "initContainers": [asks("2", restartPolicy="Always"), asks("4")]},
            {"cpu": 6000},
            id="an init container after the sidecar runs next to it",
        ),
        pytest.param(
            {
                "containers": [asks("3")],
                "initContainers": [asks("2", restartPolicy="Always"), asks("1", restartPolicy="Always")],
            },
            {"cpu": 6000},
            id="containers run next to all sidecars",
        ),
        pytest.param(
            {"containers": [container(limits={GPU: "2"})], "resources": {"requests": {"cpu": "8"}}},
            {"cpu": 8000, GPU: 2},
            id="what the whole pod asks for stands for its containers",
        ),
        pytest.param(
            {"containers": [asks("1")], "resources": {"limits": {"cpu": "8", "memory": "1Gi"}}},
            {"cpu": 1000, "memory": 2**30},
            id="a limit of the whole pod counts where no container asks",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"requests": {GPU: "8"}}},
            {},
            id="only cpu, memory and huge pages may be asked for by the whole pod",
        ),
    ],
)
def test_a_pod_takes_what_kube_scheduler_counts(spec: Object, requests: dict[str, int]) -> None:
    assert pod_requests(spec) == {"pods": 1, **requests}


def test_a_template_takes_the_overhead_of_its_runtime_class_and_a_pod_its_own() -> None:
    template = {"containers": [asks("1")]}
    assert pod_requests(template, overhead={"cpu": "250m"})["cpu"] == 1250
    assert pod_requests({**template, "overhead": {"cpu": "1"}}, overhead={"cpu": "250m"})["cpu"] == 2000


def pod(name: str, *, node: str, gpus: int, job: str = "", deleted: bool = False) -> Object:
    labels = {"tdcs.io/training-job": job, "tdcs.io/role": "worker"} if job else {}
    metadata: Object = {"name": name, "namespace": "n", "resourceVersion": "1", "labels": labels}
    if job:
        metadata["ownerReferences"] = [{"uid": f"uid-{job}-worker", "controller": True}]
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container(limits={GPU: str(gpus)})]},
    }


def test_the_use_of_a_node_follows_its_pods() -> None:
    usage = Usage()
    usage.seen(("n", "a"), trimmed(pod("a", node="x", gpus=2, job="train")))
    usage.seen(("n", "b"), trimmed(pod("b", node="x", gpus=1)))
    assert usage.taken("x") == {GPU: 3, "pods": 2}
    assert usage.foreign("x") == {GPU: 1, "pods": 1}
    assert [(pod.owner, pod.role) for pod in usage.job_pods()] == [("uid-train-worker", "worker")]
    assert not usage.seen(("n", "b"), trimmed(pod("b", node="x", gpus=1)))  # a heartbeat of no consequence
    usage.seen(("n", "a"), trimmed(pod("a", node="x", gpus=2, job="train", deleted=True)))
    assert usage.taken("x") == {GPU: 3, "pods": 2}  # it holds its GPUs until it is gone
    assert not list(usage.job_pods())
    for name in "ab":
        usage.seen(("n", name), None)
    assert usage.taken("x") == {}


def test_gpus_that_pods_of_others_hold_are_free_neither_for_data_nor_for_jobs() -> None:
    usage = Usage()
    usage.seen(("n", "a"), trimmed(pod("a", node="x", gpus=2, job="train")))
    usage.seen(("else", "b"), trimmed(pod("b", node="x", gpus=5)))
    nodes = {("", "x"): {**node(), "status": {"allocatable": {GPU: "8", "cpu": "9"}}}}
    assert NodeDirectory().of(nodes=nodes, usage=usage)["x"].free_gpus == 1
    stores = Stores(nodes=nodes, usage=usage)
    assert NodeRoom(stores=stores).free()["x"][GPU] == 1
    assert NodeRoom(stores=stores).lasting()["x"][GPU] == 3  # the job's own pods will end, theirs may not
