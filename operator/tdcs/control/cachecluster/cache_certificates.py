"""The certificates of a cache cluster's processes: which there are, and how their pods get them."""

from collections.abc import Iterable

from tdcs.api import names
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.model.kube_objects import Object
from tdcs.trust.certificates import Subject
from tdcs.trust.roles import Role
from tdcs.trust.settings import MOUNT_PATH

_READABLE = 0o440
"""Files of a Secret belong to root, and to the group of the pod where that has one."""


_LOCAL = ("localhost", "127.0.0.1")
"""How processes of one pod reach each other."""


def subjects(plan: Blueprint, *, nodes: Iterable[str], fuse: bool) -> dict[str, Subject]:
    """The certificates that a cache cluster needs, by the names of their Secrets."""
    trust = plan.trust
    if trust is None:
        return {}
    by_secret: dict[str, Subject] = {}
    if not plan.native:
        by_secret[trust.secret(role=Role.MASTER, child=plan.cluster)] = Subject(
            role=Role.MASTER, hosts=(plan.master_host, *_LOCAL)
        )
    if fuse:
        by_secret[trust.secret(role=Role.FUSE, child=plan.cluster)] = Subject(role=Role.FUSE)
    # Given certificates are one for all nodes: such a one has the names of each.
    hosts: dict[tuple[str, Role], list[str]] = {}
    for node in nodes:
        child = names.worker_set_name(cluster=plan.cluster, node=node)
        host = names.worker_host(cluster=plan.cluster, node=node, namespace=plan.namespace)
        for role in (Role.AGENT,) if plan.native else (Role.WORKER, Role.AGENT):
            hosts.setdefault((trust.secret(role=role, child=child), role), []).append(host)
    for (name, role), reached in hosts.items():
        by_secret[name] = Subject(role=role, hosts=(*reached, *_LOCAL))
    return by_secret


def volumes(plan: Blueprint, *, role: Role, child: str) -> list[Object]:
    """The volume with the certificate of a role, of the pod of a child; none where there are no certificates."""
    if plan.trust is None:
        return []
    secret = {"secretName": plan.trust.secret(role=role, child=child), "defaultMode": _READABLE}
    return [{"name": f"{role}-trust", "secret": secret}]


def mounts(plan: Blueprint, *, role: Role) -> list[Object]:
    if plan.trust is None:
        return []
    return [{"name": f"{role}-trust", "mountPath": MOUNT_PATH, "readOnly": True}]
