"""As whom the containers of a cache run, and what they may do on their node."""

from collections.abc import Sequence

from tdcs.api import names
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.model.kube_objects import Object

_ROOT = 0

READ_OTHERS = "DAC_OVERRIDE"
"""Reads files of a shared folder that belong to others and are for them alone. Not DAC_READ_SEARCH: with that a process
opens any file of the file system by its number (open_by_handle_at), wherever it is."""


def user_of(plan: Blueprint) -> int:
    """The user of a cluster's processes: root only to read files of shared folders whoever these are for."""
    as_root = plan.spec.all_folders and plan.spec.folder_access.as_root
    return _ROOT if as_root else names.CACHE_USER


def of_pod(plan: Blueprint) -> Object:
    """Of the pods of master and workers: their user's group may read what is mounted for root, such as certificates,
    and further groups the files of shared folders."""
    user = user_of(plan)
    groups = plan.spec.folder_access.groups if plan.spec.all_folders else []
    return {
        **({"fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"} if user else {}),
        **({"supplementalGroups": sorted(groups)} if groups else {}),
    }


def restricted(plan: Blueprint) -> Object:
    """Of master, worker and agent: the Pod Security Standard *restricted*, unless they read shared folders as root."""
    user = user_of(plan)
    return _context(user, add=[READ_OTHERS] if user == _ROOT else [])


def unprivileged() -> Object:
    """Of what needs nothing of its node: the Pod Security Standard *restricted*."""
    return _context(names.CACHE_USER, add=[])


def preparing() -> Object:
    """Of what makes a disk ready: kubelet makes folders of nodes for root alone, and a cache that becomes another
    user's has files of the one before."""
    return _context(_ROOT, add=["CHOWN", READ_OTHERS, "FOWNER"])


def cleaning() -> Object:
    """Of what frees a node's disk: views are root's, and blocks are not; Alluxio's folders are sticky, so that their
    files go by the hand of their owner only."""
    return _context(_ROOT, add=[READ_OTHERS, "FOWNER"])


def mounting() -> Object:
    """Of FUSE clients: only a privileged container's mounts are seen by the node."""
    return {"privileged": True, "runAsUser": _ROOT, "runAsGroup": _ROOT, "readOnlyRootFilesystem": True}


def scratch_volume() -> Object:
    """Where a process with a read-only root puts temporary files, of a pod."""
    return {"name": "tmp", "emptyDir": {}}


def scratch_mount() -> Object:
    return {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - the container's own


def _context(user: int, *, add: Sequence[str]) -> Object:
    return {
        "runAsUser": user,
        "runAsGroup": user,
        **({"runAsNonRoot": True} if user else {}),
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": list(add)} if add else {})},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
