"""The certificates of a cache cluster's processes: which there are, and how their pods get them. Pure."""

from collections.abc import Iterable

from tdcs.api import names
from tdcs.controllers.cachecluster.blueprint import Blueprint
from tdcs.kube.api import Object
from tdcs.trust.certificates import Subject
from tdcs.trust.roles import Role
from tdcs.trust.settings import MOUNT_PATH

_READABLE = 0o444
"""The container has one user, and files of a Secret belong to root."""


def subjects(plan: Blueprint, *, nodes: Iterable[str]) -> dict[str, Subject]:
    """The certificates that a cache cluster with workers on these nodes needs, by the names of their Secrets."""
    trust = plan.trust
    if trust is None:
        return {}
    return {
        trust.secret(role=Role.AGENT, child=names.worker_set_name(cluster=plan.cluster, node=node)): Subject(
            role=Role.AGENT,
            hosts=(names.worker_host(cluster=plan.cluster, node=node, namespace=plan.namespace),),
        )
        for node in nodes
    }


def volumes(plan: Blueprint, *, role: Role, child: str) -> list[Object]:
    """The volume with the certificate of a role, of the pod of a child; none where there are no certificates."""
    if plan.trust is None:
        return []
    secret = {"secretName": plan.trust.secret(role=role, child=child), "defaultMode": _READABLE}
    return [{"name": f"{role}-trust", "secret": secret}]


def mounts(plan: Blueprint, *, role: Role) -> list[Object]:
    """The certificate of a role, in its container."""
    if plan.trust is None:
        return []
    return [{"name": f"{role}-trust", "mountPath": MOUNT_PATH, "readOnly": True}]
