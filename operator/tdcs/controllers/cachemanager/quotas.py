"""Which quotas of a cache cluster count the data of which namespace. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tdcs.api.sharing import CacheQuota
from tdcs.kube.api import Object
from tdcs.kube.objects import Key
from tdcs.planning.wants import Want, namespace_of


def quota_bytes(quotas: Sequence[CacheQuota]) -> dict[str, int]:
    """What each quota allows, by its name."""
    return {quota.name: quota.limit_bytes for quota in quotas}


def payers(
    wants: Sequence[Want], *, quotas: Sequence[CacheQuota], namespaces: Mapping[Key, Object]
) -> dict[str, tuple[str, ...]]:
    """The quotas that count the bytes of each want, by its key."""
    found = {}
    for want in wants:
        namespace = namespaces.get(("", namespace_of(want.key)), {})
        labels = (namespace.get("metadata") or {}).get("labels") or {}
        counted = tuple(quota.name for quota in quotas if selects(quota.namespace_selector.terms, labels))
        if counted:
            found[want.key] = counted
    return found


def selects(terms: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    """Whether labels are as all terms of a selector ask for; without terms, all are."""
    return all(_holds(term, labels) for term in terms)


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(term["key"]), term.get("values") or ()
    match term["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
