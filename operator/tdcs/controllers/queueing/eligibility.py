"""On which nodes a pod may run, as far as labels and taints say. Pure.

The same rules as kube-scheduler's NodeName, NodeUnschedulable, NodeAffinity (required) and TaintToleration filters;
what else keeps a pod from a node (ports, volumes, other pods) is left to the scheduler.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tdcs.api.sharing import meets
from tdcs.kube.api import Object

UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def signature(pod: Mapping[str, Any]) -> str:
    """The parts of a pod's spec that eligibility depends on; equal for pods that may run on the same nodes."""
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    parts = [pod.get("nodeSelector"), required, pod.get("tolerations"), pod.get("nodeName")]
    return json.dumps(parts, sort_keys=True)


def may_run(pod: Mapping[str, Any], node: Object) -> bool:
    """Whether labels and taints of the node let the pod run there."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    spec = node.get("spec") or {}
    if pod.get("nodeName") and pod["nodeName"] != node["metadata"]["name"]:
        return False
    if any(labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        fields = {"metadata.name": node["metadata"]["name"]}
        if not any(_term(term, labels, fields) for term in required.get("nodeSelectorTerms") or ()):
            return False
    taints = [*(spec.get("taints") or ()), *([UNSCHEDULABLE_TAINT] if spec.get("unschedulable") else [])]
    tolerations = pod.get("tolerations") or ()
    return all(
        taint.get("effect") == "PreferNoSchedule" or any(_tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def _term(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, selected = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not selected:
        return False  # an empty term matches nothing
    return all(_matches(each, labels) for each in expressions) and all(
        _matches(each, fields) for each in selected
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator = expression["operator"]
    if operator not in ("Gt", "Lt"):
        return meets(labels, expression)
    values: Sequence[str] = expression.get("values") or ()
    try:
        there, bound = int(labels.get(expression["key"]) or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return there > bound if operator == "Gt" else there < bound


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
