"""What nodes can run, as their labels say it, and why none of them runs what a pod is made for."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from tdcs.api import names
from tdcs.api.targets import GPU_MAJOR, GPU_MINOR
from tdcs.model.kube_objects import Object

_MOST_KINDS: Final = 6
"""Of nodes that a sentence names."""


def why_no_target(pod: Mapping[str, Any], nodes: Collection[Object]) -> str:
    """That no node runs the target which every term of a pod's affinity asks for, what they run, and what to do; empty
    where a node does, or the pod asks for none."""
    if target := _only(_asked(pod, names.TARGET)):
        runs = [_label(node, names.TARGET) for node in nodes]
        remedy = f"label those that run it: kubectl label node NODE {names.TARGET}={target[0]}"
        return _sentence(target, runs, what=target[0], kind="target", remedy=remedy)
    if majors := _only(_asked(pod, GPU_MAJOR)):
        minors = _only(_asked(pod, GPU_MINOR)) or ("",)
        wanted = f"cuda-{majors[0]}{minors[0]}"
        runs = [_gpu(node) for node in nodes]
        remedy = "add one that does, or install NVIDIA's GPU feature discovery, which labels nodes"
        return _sentence((wanted,), runs, what=wanted, kind="GPU", remedy=remedy)
    return ""


def _sentence(wanted: Collection[str], runs: Collection[str], *, what: str, kind: str, remedy: str) -> str:
    if set(wanted) & set(runs):
        return ""
    counts = sorted(Counter(runs).items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{count} {name or f'without a {kind} in their labels'}" for name, count in counts[:_MOST_KINDS]]
    if len(counts) > _MOST_KINDS:
        shown.append(f"{len(counts) - _MOST_KINDS} kinds more")
    return (
        f"no node is known to run {what}, for which its pods are made (the nodes: {', '.join(shown)}): {remedy}, or "
        "correct the template"
    )


def _asked(pod: Mapping[str, Any], key: str) -> Iterator[tuple[str, ...] | None]:
    """The values that each term of the required affinity lets a label have; None where a term does not ask for it."""
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        of_key = [
            tuple(expression.get("values") or ())
            for expression in term.get("matchExpressions") or ()
            if expression["key"] == key and expression["operator"] == "In"
        ]
        yield of_key[-1] if of_key else None


def _only(asked: Iterator[tuple[str, ...] | None]) -> tuple[str, ...]:
    """The values that all terms ask for alike; empty where they differ, or one asks for none."""
    different = set(asked)
    only = different.pop() if len(different) == 1 else None
    return only or ()


def _label(node: Object, key: str) -> str:
    return str((node["metadata"].get("labels") or {}).get(key) or "")


def _gpu(node: Object) -> str:
    major, minor = _label(node, GPU_MAJOR), _label(node, GPU_MINOR)
    return f"cuda-{major}{minor}" if major and minor else ""
