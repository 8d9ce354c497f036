"""Nodes where a pod may run, and why none is."""

from typing import Any

import pytest

from tdcs.decide.place.node_eligibility import may_run, why_nowhere
from tdcs.model.kube_objects import Object


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
