"""Whether an operator is at work: the one that is renews a Lease every few seconds."""

import contextlib
from typing import Final

from tdcs.api import names
from tdcs.api.durations import seconds_between
from tdcs.cli.explain.dataset_use import spoken
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import LEASES

LEASE: Final = "tdcs-operator"
"""Its name, where the chart's release has the usual one."""

SILENT_SECONDS: Final = 60.0
"""Longer than any clock of two machines should differ, and than another process takes to step in."""


async def read_lease(api: KubeApi) -> Object | None:
    """The Lease; None where there is none of this name, or it may not be read."""
    with contextlib.suppress(ForbiddenError):
        return await api.get(LEASES, name=LEASE, namespace=names.SYSTEM_NAMESPACE)
    return None


def silence(lease: Object | None, *, now: str) -> str:
    """What to say of an operator that is not at work; empty when one is, or nothing is known.

    Args:
        lease: as it is; None: not known.
    """
    renewed = str(((lease or {}).get("spec") or {}).get("renewTime") or "")
    if not renewed or (age := seconds_between(renewed, now)) < SILENT_SECONDS:
        return ""
    return (
        f"none has renewed Lease {names.SYSTEM_NAMESPACE}/{LEASE} for {spoken(age)}, so nothing below changes: see "
        f"kubectl -n {names.SYSTEM_NAMESPACE} describe pods -l app.kubernetes.io/component=operator"
    )
