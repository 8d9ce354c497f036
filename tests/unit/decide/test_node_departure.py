"""What is written to a node before it goes."""

from typing import Any

import pytest

from tdcs.decide.node_departure import departure, may_cache

SHUTS_DOWN = {
    "type": "Ready",
    "status": "False",
    "reason": "KubeletNotReady",
    "message": "node is shutting down",
}
"""As the kubelet writes it during a graceful shutdown."""


def node(
    *taints: dict[str, Any], conditions: tuple[dict[str, Any], ...] = (), **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", **metadata},
        "spec": {"taints": list(taints)},
        "status": {"conditions": list(conditions)},
    }


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1793000000", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disruption", "value": "disrupting", "effect": "NoSchedule"},
        {"key": "aws-node-termination-handler/spot-itn", "value": "1793000000", "effect": "NoSchedule"},
        {"key": "aws-node-termination-handler/asg-lifecycle-termination", "effect": "NoExecute"},
        {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
    ],
    ids=lambda taint: taint["key"],
)
def test_a_node_with_a_notice_of_its_end_goes_and_gets_no_worker(taint: dict[str, Any]) -> None:
    leaves = departure(node(taint))
    assert leaves is not None
    assert taint["key"] in leaves.why
    assert not leaves.may_return
    assert not may_cache(node(taint), answers=True)
    assert not may_cache(node(taint), answers=False)


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "PreferNoSchedule"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    ],
    ids=lambda taint: taint["key"],
)
def test_a_node_that_is_cordoned_not_ready_or_a_mere_candidate_does_not_go(taint: dict[str, Any]) -> None:
    assert departure(node(taint)) is None
    assert may_cache(node(taint), answers=True)


def test_a_node_that_is_being_deleted_goes() -> None:
    leaves = departure(node(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert leaves is not None
    assert leaves.why == "the node is being deleted"


def test_a_node_that_shuts_down_hands_over_and_is_then_awaited_as_a_restart() -> None:
    shuts_down = node(conditions=(SHUTS_DOWN,))
    leaves = departure(shuts_down)
    assert leaves is not None
    assert leaves.may_return
    assert not may_cache(shuts_down, answers=True)
    assert may_cache(shuts_down, answers=False)
    assert departure(node(conditions=({**SHUTS_DOWN, "message": "container runtime is down"},))) is None
    assert departure(node(conditions=({**SHUTS_DOWN, "status": "True"},))) is None


def test_a_notice_counts_more_than_a_shutdown() -> None:
    leaving = node({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}, conditions=(SHUTS_DOWN,))
    leaves = departure(leaving)
    assert leaves is not None
    assert not leaves.may_return
