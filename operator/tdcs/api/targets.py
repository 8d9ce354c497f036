"""Targets: the processors that code is for, by the names that artifacts of compiled models have.

A processor that runs a level of a family runs those before it. A GPU runs what was made for its own compute capability:
caches of kernels are looked up by exactly that.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from tdcs.api import names

_V2: Final = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3: Final = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4: Final = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ARM_8_1: Final = frozenset({"asimd", "asimdrdm", "atomics", "crc32", "fp"})

LEVELS: Final[Mapping[str, tuple[tuple[str, frozenset[str]], ...]]] = {
    "amd64": (
        ("x86-64", frozenset()),
        ("x86-64-v2", _V2),
        ("x86-64-v3", _V3),
        ("x86-64-v4", _V4),
    ),
    "arm64": (
        ("arm64-v8.0", frozenset()),
        ("arm64-v8.1", _ARM_8_1),
        ("arm64-v8.2", _ARM_8_1 | {"dcpop"}),
    ),
}
"""By architecture, as Kubernetes names it: the levels, the least first, and the features that each needs, as Linux
spells them in /proc/cpuinfo."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

CAPABILITIES: Final = ("70", "72", "75", "80", "86", "87", "89", "90", "100", "103", "110", "120", "121")
"""Compute capabilities of NVIDIA's GPUs from Volta on, without the dot."""

GPU_MAJOR: Final = "nvidia.com/gpu.compute.major"
GPU_MINOR: Final = "nvidia.com/gpu.compute.minor"
"""Labels of NVIDIA's GPU feature discovery: nothing else says what a node's GPU is."""

ARCHITECTURE: Final = "kubernetes.io/arch"

TARGETS: Final = (
    *(name for levels in LEVELS.values() for name, _ in levels),
    *(f"cuda-{capability}" for capability in CAPABILITIES),
)

NO_TARGET: Final = f"the annotation or label {names.TARGET} of a template must be one of {', '.join(TARGETS)}"

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def processor_target(*, machine: str, features: Collection[str]) -> str:
    """The best target that a processor runs; empty for an architecture without targets.

    Args:
        machine: as `uname -m` says it.
        features: those that all its cores have, as /proc/cpuinfo names them.
    """
    levels = LEVELS.get(_ARCHITECTURES.get(machine, ""), ())
    runnable = [name for name, needed in levels if needed <= frozenset(features)]
    return runnable[-1] if runnable else ""


def processor_features(cpuinfo: str) -> frozenset[str]:
    """The features that all processors of a /proc/cpuinfo have: cores may differ, and code may run on any of them."""
    lines = [
        line.partition(":")[2]
        for line in cpuinfo.splitlines()
        if line.partition(":")[0].strip() in {"flags", "Features"}
    ]
    return frozenset.intersection(*(frozenset(line.split()) for line in lines)) if lines else frozenset()


def target_of(template: Mapping[str, Any]) -> str:
    """The target that a pod template asks for; empty where it asks for none.

    Raises:
        ValueError: there is no such target, or annotation and label name two.
    """
    metadata = template.get("metadata") or {}
    named = {
        str(marks[names.TARGET])
        for field in ("annotations", "labels")
        if names.TARGET in (marks := metadata.get(field) or {})
    }
    if not named:
        return ""
    if len(named) > 1 or not named <= set(TARGETS):
        raise ValueError(f"{NO_TARGET}, and is {' and '.join(sorted(named))}")
    return named.pop()


def at_least(target: str) -> tuple[str, ...]:
    """The targets whose processors run code for this one."""
    for levels in LEVELS.values():
        level_names = [name for name, _ in levels]
        if target in level_names:
            return tuple(level_names[level_names.index(target) :])
    return (target,)


def with_target(template: dict[str, Any]) -> dict[str, Any]:
    """A template whose pods may run only where its target runs; the template itself where it names none."""
    terms = _terms(target_of(template))
    if not terms:
        return template
    pod = template["spec"]
    affinity = dict(pod.get("affinity") or {})
    of_node = dict(affinity.get("nodeAffinity") or {})
    own_terms = (of_node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    if own_terms and not any(map(_says_something, own_terms)):
        return template  # no node is right, and none would be
    # One of the terms must hold, so each of the user's goes with each of these. An empty one matches no node.
    of_node[_REQUIRED] = {
        "nodeSelectorTerms": [
            {**own, "matchExpressions": [*(own.get("matchExpressions") or ()), *term]}
            for own in (list(filter(_says_something, own_terms)) or [{}])
            for term in terms
        ]
    }
    return {**template, "spec": {**pod, "affinity": {**affinity, "nodeAffinity": of_node}}}


def _terms(target: str) -> list[list[dict[str, Any]]]:
    """What labels of a node say that it runs a target: one of these."""
    if not target:
        return []
    if capability := re.fullmatch(r"cuda-(\d+)(\d)", target):
        major, minor = capability.groups()
        return [[_is_one_of(GPU_MAJOR, [major]), _is_one_of(GPU_MINOR, [minor])]]
    for architecture, levels in LEVELS.items():
        if target == levels[0][0]:
            return [[_is_one_of(ARCHITECTURE, [architecture])]]
    return [[_is_one_of(names.TARGET, list(at_least(target)))]]


def _says_something(term: Mapping[str, Any]) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _is_one_of(key: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": values}
