"""What pods ask for and what nodes have left, as integers.

CPU counts in thousandths of a core, everything else in its own unit (bytes, GPUs, pods).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tdcs.api.quantities import parse_quantity

Amounts = Mapping[str, int]
"""Amount by resource name, such as cpu, memory, nvidia.com/gpu, pods."""

MOST = (1 << 63) - 1
"""No amount is larger: 64-bit numbers in the API server."""

CPU = "cpu"
PODS = "pods"

_POD_LEVEL = (CPU, "memory", "hugepages-")
"""Resources that may be asked for by a pod as a whole."""


def amount(resource: str, quantity: object) -> int:
    """A quantity as an integer, rounded up; what cannot be read is nothing."""
    return _amount(resource, str(quantity))


@lru_cache(maxsize=1 << 12)  # ten thousands of pods ask for the same
def _amount(resource: str, quantity: str) -> int:
    try:
        value = parse_quantity(quantity)
    except (ValueError, ArithmeticError):
        return 0
    # An exponent may be so large that the number itself fits no memory.
    value = max(min(value, Decimal(MOST)), Decimal(-MOST))
    return min(math.ceil(value * 1000), MOST) if resource == CPU else math.ceil(value)


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Such as ``resources.requests`` of a container or ``status.allocatable`` of a node."""
    return {name: amount(name, quantity) for name, quantity in (quantities or {}).items()}


def pod_requests(spec: Mapping[str, Any], *, overhead: Mapping[str, Any] | None = None) -> dict[str, int]:
    """What a pod takes of a node, as kube-scheduler counts it (KEP-753, KEP-2837, KEP-688).

    One pod; the larger of what its containers and sidecars need together and of what any init container needs
    next to the sidecars that were started before it; where requests of the whole pod are given, those instead; and
    the overhead of its RuntimeClass. A limit without a request counts as a request.

    Args:
        spec: the pod's.
        overhead: of the RuntimeClass that it names, for a template; a pod on the server carries its own.
    """
    containers = _of_containers(spec, ("limits", "requests"))
    whole = amounts((spec.get("resources") or {}).get("limits"))
    # As the API server fills them in: with a limit alone, what the containers ask for, and the limit where none does.
    whole = {name: value for name, value in whole.items() if not containers.get(name)}
    whole |= amounts((spec.get("resources") or {}).get("requests"))
    total = _sum(_with_whole(containers, whole), amounts(spec.get("overhead") or overhead))
    return {PODS: 1, **{name: value for name, value in total.items() if value}}


def pod_limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """The limits of a pod, added up in the same way."""
    whole = amounts((spec.get("resources") or {}).get("limits"))
    return _with_whole(_of_containers(spec, ("limits",)), whole)


def added(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        total = _sum(total, part)
    return total


def _of_containers(spec: Mapping[str, Any], fields: Sequence[str]) -> dict[str, int]:
    """What the containers take at most at once; of a resource in several fields the last one counts."""
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = _container(container, fields)
        if container.get("restartPolicy") == "Always":  # a sidecar: it goes on next to all that follow
            sidecars = requests = _sum(sidecars, requests)
        else:
            requests = _sum(sidecars, requests)
        starting = _larger(starting, requests)
    running = [_container(container, fields) for container in spec.get("containers") or ()]
    return _larger(added((*running, sidecars)), starting)


def _container(container: Mapping[str, Any], fields: Sequence[str]) -> dict[str, int]:
    resources, total = container.get("resources") or {}, dict[str, int]()
    for field in fields:
        total |= amounts(resources.get(field))
    return total


def _with_whole(containers: dict[str, int], whole: Amounts) -> dict[str, int]:
    """With what is given for the pod as a whole, which holds for CPU, memory and huge pages only."""
    return {**containers, **{name: value for name, value in whole.items() if name.startswith(_POD_LEVEL)}}


def _larger(first: Amounts, second: Amounts) -> dict[str, int]:
    return {name: max(first.get(name, 0), second.get(name, 0)) for name in first.keys() | second.keys()}


def _sum(first: Amounts, second: Amounts) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in first.keys() | second.keys()}
