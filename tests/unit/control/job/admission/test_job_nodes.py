"""What pods take, what nodes have left, where pods may run, and where their data draws them."""

from typing import Any

import pytest

from tdcs.control.context import Stores
from tdcs.control.job.queue.queue_snapshot import NodeRoom
from tdcs.control.node_usage import Usage, trimmed
from tdcs.control.node_view import NodeDirectory
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_eligibility import may_run, why_nowhere
from tdcs.decide.place.preferred_affinity import preferred_terms
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


def node(*, name: str = "x", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def required(*expressions: Object) -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}

MAY: dict[str, tuple[Object, Object, bool]] = {
    "anything on a plain node": ({}, node(), True),
    "the label it asks for": ({"nodeSelector": {"a": "b"}}, node(labels={"a": "b"}), True),
    "another label": ({"nodeSelector": {"a": "b"}}, node(labels={"a": "c"}), False),
    "required In": (required({"key": "a", "operator": "In", "values": ["b"]}), node(labels={"a": "b"}), True),
    "required NotIn": (
        required({"key": "a", "operator": "NotIn", "values": ["b"]}),
        node(labels={"a": "b"}),
        False,
    ),
    "required Gt": (required({"key": "a", "operator": "Gt", "values": ["3"]}), node(labels={"a": "4"}), True),
    "required Gt without the label": (
        required({"key": "a", "operator": "Gt", "values": ["3"]}),
        node(),
        False,
    ),
    "an empty term": (required(), node(), False),
    "a taint": ({}, node(taints=[TAINT]), False),
    "a mild taint": ({}, node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), True),
    "a tolerated taint": (
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        node(taints=[TAINT]),
        True,
    ),
    "a taint of another value": (
        {"tolerations": [{"key": "gpu", "value": "no"}]},
        node(taints=[TAINT]),
        False,
    ),
    "a toleration of everything": ({"tolerations": [{"operator": "Exists"}]}, node(taints=[TAINT]), True),
    "a cordoned node": ({}, node(unschedulable=True), False),
    "another node's name": ({"nodeName": "y"}, node(), False),
}


@pytest.mark.parametrize("name", MAY)
def test_where_a_pod_may_run(name: str) -> None:
    spec, where, expected = MAY[name]
    assert may_run(spec, where) is expected


POOLS = [
    node(labels={"pool": "a", "gpu": "t4"}),
    node(labels={"pool": "b"}, taints=[TAINT]),
    node(labels={"pool": "c"}, taints=[TAINT, {"key": "spot", "effect": "NoSchedule"}]),
    node(name="unlabelled", unschedulable=True),
]

NOWHERE: dict[str, tuple[Object, str]] = {
    "a label that no node has": (
        {"nodeSelector": {"pool": "a", "disk": "nvme"}},
        (
            "no node has the label disk=nvme that its pods ask for (nodeSelector, affinity): correct the template, "
            "or label a node"
        ),
    ),
    "labels that no node has together": (
        {"nodeSelector": {"pool": "b", "gpu": "t4"}},
        "no node has all the labels that its pods ask for, pool=b, gpu=t4 (nodeSelector, affinity)",
    ),
    "an expression of an affinity": (
        required({"key": "gpu", "operator": "In", "values": ["h100", "a100"]}),
        "no node has the label gpu in (h100, a100) that",
    ),
    "other operators": (
        required({"key": "zone", "operator": "Exists"}, {"key": "size", "operator": "Gt", "values": ["3"]}),
        "no node has the labels zone, size > 3 that",
    ),
    "one of several terms": (
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]},
                            {
                                "matchExpressions": [
                                    {"key": "gpu", "operator": "DoesNotExist"},
                                    {"key": "a", "operator": "Exists"},
                                ]
                            },
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["z"]}]},
                        ]
                    }
                }
            }
        },
        "no node has all the labels that its pods ask for, zone in (x) or !gpu, a or metadata.name in (z) (",
    ),
    "a taint": (
        {"nodeSelector": {"pool": "b"}},
        "the node with the labels that its pods ask for is tainted or cordoned (gpu=yes:NoSchedule): see tolerations",
    ),
    "one of two taints": (
        {"nodeSelector": {"pool": "c"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
        "the node with the labels that its pods ask for is tainted or cordoned (spot:NoSchedule): see tolerations",
    ),
    "a node's name": ({"nodeName": "y"}, "there is no node y, which its pods name (nodeName)"),
    "a node's name, and a label that only another node has": (
        {"nodeName": "unlabelled", "nodeSelector": {"pool": "a"}},
        (
            "node unlabelled, which its pods name (nodeName), does not have the label pool=a that they ask for "
            "(nodeSelector, affinity): correct the template, or label a node"
        ),
    ),
    "the name of a node that is cordoned": (
        {"nodeName": "unlabelled"},
        (
            "node unlabelled, which its pods name (nodeName), is tainted or cordoned "
            "(node.kubernetes.io/unschedulable:NoSchedule): see tolerations"
        ),
    ),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_why_no_node_may_run_a_pod_is_named(name: str) -> None:
    spec, words = NOWHERE[name]
    assert not any(may_run(spec, pool) for pool in POOLS)
    assert why_nowhere(spec, POOLS).startswith(words)


def test_without_nodes_that_is_what_is_said() -> None:
    assert why_nowhere({"nodeSelector": {"a": "b"}}, []) == "there are no nodes"


def test_affinity_ranks_nodes_as_the_extender_does() -> None:
    copy = CopyOnNodes(total_bytes=100, node_bytes={"a": 60, "b": 30, "c": 60, "gone": 10})
    terms = preferred_terms(copies=[copy], hostnames={"a": "a.local", "b": "b", "c": "c", "d": "d"})
    weighted_nodes = [(term["weight"], term["preference"]["matchExpressions"][0]["values"]) for term in terms]
    assert weighted_nodes == [(100, ["a.local", "c"]), (50, ["b"])]
