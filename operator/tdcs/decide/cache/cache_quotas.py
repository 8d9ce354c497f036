"""Which quotas of a cache cluster count the data of which namespace."""

from collections.abc import Mapping, Sequence

from tdcs.api import names
from tdcs.api.conditions import PINNED_BEYOND_QUOTA, Finding, finding
from tdcs.api.sharing import CacheQuota
from tdcs.decide.cache.wants import Want, namespace_of
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model.humanize import counted, human
from tdcs.model.kube_objects import Key, Object


def quota_bytes(quotas: Sequence[CacheQuota]) -> dict[str, int]:
    return {quota.name: quota.limit_bytes for quota in quotas}


def payers(
    wants: Sequence[Want], *, quotas: Sequence[CacheQuota], namespaces: Mapping[Key, Object]
) -> dict[str, tuple[str, ...]]:
    """The quotas that count the bytes of each want, by its key."""
    quotas_by_want = {}
    for want in wants:
        quota_names = counting(namespace_of(want.key), quotas=quotas, namespaces=namespaces)
        if quota_names:
            quotas_by_want[want.key] = quota_names
    return quotas_by_want


def counting(
    namespace: str, *, quotas: Sequence[CacheQuota], namespaces: Mapping[Key, Object]
) -> tuple[str, ...]:
    """The names of the quotas that count the data of a namespace."""
    labels = (namespaces.get(("", namespace), {}).get("metadata") or {}).get("labels") or {}
    return tuple(quota.name for quota in quotas if quota.namespace_selector.selects(labels))


def allowed(placement: WantPlacement) -> str:
    """The message about data that a quota refuses in part: how much it allows, and what to do."""
    return (
        f"quota {placement.short_of} of the CacheCluster (spec.quotas) allows {human(placement.wanted_bytes)} of "
        f"{human(placement.wanted_bytes + placement.unplaced_bytes)}; the rest is read from the source. Raise that "
        "quota, delete or unpin other Datasets that it counts, or ask for less"
    )


def within_quotas(quotas: Sequence[CacheQuota], *, beyond: Mapping[str, int]) -> Finding:
    """The condition WithinQuotas of a cache cluster.

    Args:
        quotas: the quotas of its spec.
        beyond: bytes by which cached pinned data exceeds a quota, by the quota's name.
    """
    over = [
        f"{quota.name} allows {human(quota.limit_bytes)}, and pinned data takes "
        f"{human(quota.limit_bytes + beyond[quota.name])}"
        for quota in quotas
        if quota.name in beyond
    ]
    if not over:
        return finding(names.WITHIN_QUOTAS, True, "Within", f"{counted(len(quotas), 'quota')} of spec.quotas")
    text = (
        f"{'; '.join(over[:5])}{' and others' if len(over) > 5 else ''}. Pinned data that is there stays; no other "
        "data of these quotas is cached. Unpin (spec.eviction of the Datasets) or delete Datasets, or raise the quota"
    )
    return finding(names.WITHIN_QUOTAS, False, PINNED_BEYOND_QUOTA, text)
