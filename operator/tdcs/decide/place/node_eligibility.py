"""On which nodes a pod may run, as far as labels and taints say.

The same rules as kube-scheduler's NodeName, NodeUnschedulable, NodeAffinity (required) and TaintToleration filters;
what else keeps a pod from a node (ports, volumes, other pods) is left to the scheduler.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tdcs.api.namespace_selector import meets
from tdcs.decide.place.node_targets import why_no_target
from tdcs.model.kube_objects import Object

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
    return not _taints_against(pod, node)


def why_nowhere(pod: Mapping[str, Any], nodes: Collection[Object]) -> str:
    """Why none of the nodes may run a pod, and what to do, as a sentence."""
    if not nodes:
        return "there are no nodes"
    if name := pod.get("nodeName"):
        return _why_not_on(name, pod, [node for node in nodes if node["metadata"]["name"] == name])
    untainted = [{**node, "spec": {}} for node in nodes]
    labelled = [node for node, bare in zip(nodes, untainted, strict=True) if may_run(pod, bare)]
    if labelled:
        have = "node" if len(labelled) == 1 else f"{len(labelled)} nodes"
        are = "is" if len(labelled) == 1 else "are"
        return f"the {have} with the labels that its pods ask for {are} {_tainted(pod, labelled)}"
    if text := why_no_target(pod, untainted):
        return text
    selector, terms = _requirements(pod)
    if absent := _absent_alone(selector, terms, untainted):
        return f"no node has the label{_s(absent)} {', '.join(absent)} that its pods ask for {_LABEL_REMEDY}"
    parts = [text for text, _ in selector]
    parts += [" or ".join(", ".join(text for text, _ in term) for term in terms)] if terms else []
    return f"no node has all the labels that its pods ask for, {', '.join(parts)} {_LABEL_REMEDY}"


_LABEL_REMEDY = "(nodeSelector, affinity): correct the template, or label a node"


def _why_not_on(name: str, pod: Mapping[str, Any], nodes: Sequence[Object]) -> str:
    """Why the pod may not run on the only node that it may be on: `nodes` is that node, or empty."""
    if not nodes:
        return (
            f"there is no node {name}, which its pods name (nodeName): correct the template, or add that node"
        )
    named = f"node {name}, which its pods name (nodeName),"
    bare = {**nodes[0], "spec": {}}
    if may_run(pod, bare):
        return f"{named} is {_tainted(pod, nodes)}"
    selector, terms = _requirements(pod)
    either = " or ".join(", ".join(text for text, _ in term) for term in terms)
    absent = _absent_alone(selector, terms, [bare]) or [either]
    return (
        f"{named} does not have the label{_s(absent)} {', '.join(absent)} that they ask for {_LABEL_REMEDY}"
    )


def _tainted(pod: Mapping[str, Any], nodes: Sequence[Object]) -> str:
    taints = sorted({_spelled_taint(taint) for node in nodes for taint in _taints_against(pod, node)})
    return f"tainted or cordoned ({', '.join(taints)}): see tolerations"


_Requirement = tuple[str, Mapping[str, Any]]
"""A requirement as people write it, and a pod's spec that asks for nothing else."""


def _requirements(pod: Mapping[str, Any]) -> tuple[list[_Requirement], list[list[_Requirement]]]:
    """What a pod asks of a node's labels: by its selector, and by the terms of its affinity, one of which must hold."""
    selector: list[_Requirement] = [
        (f"{key}={value}", {"nodeSelector": {key: value}})
        for key, value in (pod.get("nodeSelector") or {}).items()
    ]
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        [
            (_spelled(expression), _affinity({field: [expression]}))
            for field in ("matchExpressions", "matchFields")
            for expression in term.get(field) or ()
        ]
        for term in required.get("nodeSelectorTerms") or ()
    ]
    return selector, terms


def _absent_alone(
    selector: Sequence[_Requirement], terms: Sequence[Sequence[_Requirement]], nodes: Sequence[Object]
) -> list[str]:
    """The requirements that none of the nodes, which are without taints, meets even alone."""
    requirements = [*selector, *(terms[0] if len(terms) == 1 else ())]
    return [text for text, alone in requirements if not any(may_run(alone, node) for node in nodes)]


def _affinity(term: Mapping[str, Any]) -> Mapping[str, Any]:
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _spelled(expression: Mapping[str, Any]) -> str:
    """A requirement as `kubectl get -l` takes it."""
    key, values = expression["key"], list(expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return f"{key} in ({', '.join(values)})"
        case "NotIn":
            return f"{key} not in ({', '.join(values)})"
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            sign = {"Gt": ">", "Lt": "<"}.get(operator, operator)
            return f"{key} {sign} {', '.join(values)}"


def _spelled_taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint.get('effect', '')}"


def _s(items: Collection[object]) -> str:
    return "" if len(items) == 1 else "s"


def _taints_against(pod: Mapping[str, Any], node: Object) -> list[Mapping[str, Any]]:
    """The taints of a node that keep the pod off: it does not tolerate them."""
    spec = node.get("spec") or {}
    all_ = [*(spec.get("taints") or ()), *([UNSCHEDULABLE_TAINT] if spec.get("unschedulable") else [])]
    tolerations = pod.get("tolerations") or ()
    return [
        taint
        for taint in all_
        if taint.get("effect") != "PreferNoSchedule"
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def _term(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, selected = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not selected:
        return False  # an empty term matches nothing
    return all(_matches(expression, labels) for expression in expressions) and all(
        _matches(expression, fields) for expression in selected
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator = expression["operator"]
    if operator not in ("Gt", "Lt"):
        return meets(labels, expression)
    values: Sequence[str] = expression.get("values") or ()
    try:
        value, bound = int(labels.get(expression["key"]) or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return value > bound if operator == "Gt" else value < bound


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
