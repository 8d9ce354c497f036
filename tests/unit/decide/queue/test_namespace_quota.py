"""What a namespace's ResourceQuotas leave to its jobs."""

from typing import Any

import pytest

from tdcs.decide.queue.namespace_quota import Allowances, charges_of, counts, quota_amounts
from tdcs.model.kube_objects import Object

GPU = "nvidia.com/gpu"


GPUS = f"requests.{GPU}"


POD: Object = {
    "containers": [
        {"resources": {"limits": {GPU: "2", "memory": "4Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}}
    ]
}


def quota(hard: dict[str, str], *, used: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "team", "namespace": "n"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def test_a_pod_takes_of_a_quota_by_every_name_that_it_may_have() -> None:
    assert quota_amounts(POD) == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 500,
        "requests.cpu": 500,
        "memory": 2**30,
        "requests.memory": 2**30,
        "limits.memory": 4 * 2**30,
        GPUS: 2,
        f"limits.{GPU}": 2,
    }


CLASS = {"scopeName": "PriorityClass", "values": ["high"]}


SCOPES: dict[str, tuple[Object, str, bool]] = {
    "none": ({}, "", True),
    "jobs without a deadline": ({"scopes": ["NotTerminating"]}, "", True),
    "pods with a deadline": ({"scopes": ["Terminating"]}, "", False),
    "pods that ask for nothing": ({"scopes": ["BestEffort"]}, "", False),
    "pods that ask for something": ({"scopes": ["NotBestEffort"]}, "", True),
    "of the class": ({"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "In"}]}}, "high", True),
    "of another class": (
        {"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "In"}]}},
        "low",
        False,
    ),
    "not of the class": (
        {"scopeSelector": {"matchExpressions": [{**CLASS, "operator": "NotIn"}]}},
        "low",
        True,
    ),
    "of no class": (
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}},
        "",
        True,
    ),
    "affinity across namespaces": ({"scopes": ["CrossNamespacePodAffinity"]}, "", False),
}


@pytest.mark.parametrize("name", SCOPES)
def test_a_quota_counts_the_pods_that_its_scopes_select(name: str) -> None:
    scope, priority_class, counted = SCOPES[name]
    assert counts(quota({"pods": "1"}, **scope), POD, priority_class=priority_class) is counted


def test_a_quota_without_room_is_named_with_what_it_leaves() -> None:
    allowances = Allowances({("n", "team"): quota({GPUS: "8", "limits.memory": "20Gi"}, used={GPUS: "5"})})
    charges = charges_of(
        quotas=[("team", quota({GPUS: "8", "limits.memory": "20Gi"}))],
        pods=[(2, POD, quota_amounts(POD))],
        priority_class="",
    )
    message = allowances.short("n", charges)
    assert message == f"ResourceQuota team leaves 3 of 8 {GPUS}, its pods ask for 4"
    assert allowances.ever("n", charges)
    more = charges_of(quotas=[("team", {})], pods=[(5, POD, quota_amounts(POD))], priority_class="")
    assert not allowances.ever("n", more)
    assert allowances.short("other", charges) == ""
