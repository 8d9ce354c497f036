"""What a namespace's ResourceQuotas leave to its jobs.

A gang that fits on the nodes but not into its namespace's quota would be admitted, get a part of its pods, and hold
their GPUs for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tdcs.model.kube_objects import Key, Object
from tdcs.model.pod_resources import CPU, PODS, Amounts, added, amount, pod_limits, pod_requests

_PLAIN = frozenset({CPU, "memory", "ephemeral-storage"})
"""Resources whose requests a quota may name without the prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaCharge:
    """What all pods of a job take of one ResourceQuota of its namespace, by the quota's own names of resources."""

    quota: str
    takes: Amounts


def quota_amounts(pod: Mapping[str, Any], *, overhead: Mapping[str, Any] | None = None) -> dict[str, int]:
    """What a pod takes of a quota, by all the names that a quota may have for it."""
    amounts = {PODS: 1, "count/pods": 1}
    for resource, value in pod_requests(pod, overhead=overhead).items():
        if resource != PODS:
            amounts[f"requests.{resource}"] = value
            if resource in _PLAIN:
                amounts[resource] = value
    for resource, value in pod_limits(pod).items():
        amounts[f"limits.{resource}"] = value
    return amounts


def counts(quota: Object, pod: Mapping[str, Any], *, priority_class: str = "") -> bool:
    """Whether a quota counts the pods of this spec: its scopes must all select them."""
    spec = quota.get("spec") or {}
    selectors = [
        *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()),
        *((spec.get("scopeSelector") or {}).get("matchExpressions") or ()),
    ]
    return all(_selects(selector, pod, priority_class) for selector in selectors)


def _selects(selector: Mapping[str, Any], pod: Mapping[str, Any], priority_class: str) -> bool:
    scope = str(selector.get("scopeName"))
    if scope == "PriorityClass":
        values: Sequence[str] = selector.get("values") or ()
        match selector.get("operator"):
            case "In":
                return priority_class in values
            case "NotIn":
                return bool(priority_class) and priority_class not in values
            case "Exists":
                return bool(priority_class)
            case _:
                return not priority_class
    if scope in {"Terminating", "NotTerminating"}:
        return (pod.get("activeDeadlineSeconds") is not None) == (scope == "Terminating")
    if scope in {"BestEffort", "NotBestEffort"}:
        counted = {CPU, "memory"} & (pod_requests(pod).keys() | pod_limits(pod).keys())
        return bool(counted) == (scope == "NotBestEffort")
    return (
        False  # affinity across namespaces, and what later versions bring: pods like these are not selected
    )


class Allowances:
    """What is left of the quotas, job by job.

    Args:
        quotas: the ResourceQuotas by (namespace, name).
    """

    def __init__(self, quotas: Mapping[Key, Object]) -> None:
        self._hard: dict[Key, dict[str, int]] = {}
        self._remaining: dict[Key, dict[str, int]] = {}
        for key, quota in quotas.items():
            status = quota.get("status") or {}
            self._hard[key] = _amounts(status.get("hard") or (quota.get("spec") or {}).get("hard"))
            used = _amounts(status.get("used"))
            self._remaining[key] = {
                name: value - used.get(name, 0) for name, value in self._hard[key].items()
            }

    def short(self, namespace: str, charges: Sequence[QuotaCharge]) -> str:
        """Which quota is too small for a job, and by how much; empty when all are large enough."""
        for charge in charges:
            key = (namespace, charge.quota)
            for resource, requested in charge.takes.items():
                hard = self._hard.get(key, {}).get(resource)
                remaining = self._remaining.get(key, {}).get(resource, requested)
                if hard is not None and requested > remaining:
                    quota_text = (
                        f"leaves {_shown(resource, max(remaining, 0))} of {_shown(resource, hard)} {resource}"
                    )
                    return f"ResourceQuota {charge.quota} {quota_text}, its pods ask for {_shown(resource, requested)}"
        return ""

    def ever(self, namespace: str, charges: Sequence[QuotaCharge]) -> bool:
        """Whether the quotas would be large enough for a job if nobody else used them."""
        return all(
            requested <= self._hard.get((namespace, charge.quota), {}).get(resource, requested)
            for charge in charges
            for resource, requested in charge.takes.items()
        )

    def most(self, namespace: str, charges: Sequence[QuotaCharge], *, count: int) -> int:
        """How many pods that take these charges each the quotas have left for; at most `count`."""
        for charge in charges:
            remaining = self._remaining.get((namespace, charge.quota), {})
            for resource, requested in charge.takes.items():
                if requested > 0 and resource in remaining:
                    count = min(count, max(remaining[resource], 0) // requested)
        return count

    def take(self, namespace: str, charges: Iterable[QuotaCharge]) -> None:
        for charge in charges:
            remaining = self._remaining.get((namespace, charge.quota), {})
            for resource, requested in charge.takes.items():
                if resource in remaining:
                    remaining[resource] -= requested


def charges_of(
    *,
    quotas: Iterable[tuple[str, Object]],
    pods: Sequence[tuple[int, Mapping[str, Any], Amounts]],
    priority_class: str,
) -> tuple[QuotaCharge, ...]:
    """What a job takes of the quotas of its namespace.

    Args:
        quotas: them, with their names.
        pods: of each role how many, their spec, and what one takes of a quota (:func:`charges`).
    """
    charges = []
    for name, quota in quotas:
        parts = [
            {resource: count * value for resource, value in amounts.items()}
            for count, spec, amounts in pods
            if count and counts(quota, spec, priority_class=priority_class)
        ]
        if parts:
            charges.append(QuotaCharge(quota=name, takes=added(parts)))
    return tuple(charges)


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: amount(_resource(name), value) for name, value in (quantities or {}).items()}


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")


def _shown(name: str, value: int) -> str:
    resource = _resource(name)
    if resource == CPU:
        return f"{value / 1000:g}"
    return f"{value / 2**30:.1f} Gi" if resource in {"memory", "ephemeral-storage"} else str(value)
