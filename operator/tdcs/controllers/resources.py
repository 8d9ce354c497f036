"""What pods ask for and what nodes have left, as integers. Pure.

CPU counts in thousandths of a core, everything else in its own unit (bytes, GPUs, pods).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from lightkube.utils.quantity import parse_quantity

from tdcs.kube.api import Object

Amounts = Mapping[str, int]
"""Amount by resource name, such as cpu, memory, nvidia.com/gpu, pods."""

CPU = "cpu"
PODS = "pods"


def amount(resource: str, quantity: object) -> int:
    """A quantity as an integer, rounded up; what cannot be read is nothing."""
    try:
        value = parse_quantity(str(quantity))
    except ValueError:
        value = None
    if value is None:
        return 0
    return math.ceil(value * 1000) if resource == CPU else math.ceil(value)


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Such as ``resources.requests`` of a container or ``status.allocatable`` of a node."""
    return {name: amount(name, quantity) for name, quantity in (quantities or {}).items()}


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod takes of a node, as kube-scheduler counts it: one pod, and the larger of what its containers need
    together and what any init container needs alone. A limit without a request counts as a request.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        total = _sum(total, _container(container))
    for container in spec.get("initContainers") or ():
        asked = _container(container)
        if container.get("restartPolicy") == "Always":  # a sidecar: it goes on beside the others
            total = _sum(total, asked)
        else:
            total = {
                name: max(total.get(name, 0), asked.get(name, 0)) for name in total.keys() | asked.keys()
            }
    return {
        PODS: 1,
        **{name: value for name, value in _sum(total, amounts(spec.get("overhead"))).items() if value},
    }


def pod_size(pod: Object) -> tuple[str, dict[str, int]]:
    """The node of a bound pod and what it takes there."""
    return pod["spec"].get("nodeName", ""), pod_requests(pod["spec"])


def added(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum of several."""
    total: dict[str, int] = {}
    for part in parts:
        total = _sum(total, part)
    return total


def _container(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}
