"""What a volume names, checked: nothing that a PersistentVolume's author writes becomes part of a path
unseen.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CLUSTER_ATTRIBUTE: Final = "cluster"
PATH_ATTRIBUTE: Final = "path"

_CLUSTER: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class InvalidVolumeError(ValueError):
    """A request that can never succeed as it is; its text says what is wrong and what to write instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """A folder of a cache cluster: the cluster's name, and the names on the way from its root to the
    folder.
    """

    cluster: str
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """The folder's path inside the cache cluster, such as `/datasets/0123456789abcdef`."""
        return "/" + "/".join(self.parts)


def parse_volume(*, attributes: Mapping[str, str]) -> Volume:
    """The volume that a PersistentVolume's `volumeAttributes` name; raises InvalidVolumeError."""
    cluster = attributes.get(CLUSTER_ATTRIBUTE, "")
    if ".." in cluster or not _CLUSTER.fullmatch(cluster):
        raise InvalidVolumeError(
            f"volume attribute {CLUSTER_ATTRIBUTE!r} is {cluster!r}, which is not the name of a "
            "CacheCluster; "
            "set spec.csi.volumeAttributes of the PersistentVolume as the Dataset's own volume has it"
        )
    path = attributes.get(PATH_ATTRIBUTE, "")
    parts = tuple(path.removeprefix("/").removesuffix("/").split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidVolumeError(
            f"volume attribute {PATH_ATTRIBUTE!r} is {path!r}, which is not a plain path below the root "
            "of cache cluster "
            f"{cluster}; empty names, '.' and '..' are refused"
        )
    return Volume(cluster=cluster, parts=parts)


def parse_target(*, path: str, kubelet: Path) -> str:
    """The target of a mount as this process sees it, links on the way resolved.

    Only a path below kubelet's folder is accepted; raises InvalidVolumeError. The last name is not looked
    at: it may be the mount point of a file system whose server is dead.
    """
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise InvalidVolumeError(f"target path {path!r} is not an absolute path without '.' and '..'")
    resolved = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    root = os.path.realpath(kubelet)
    if not resolved.startswith(root + "/"):
        raise InvalidVolumeError(f"target path {path!r} does not lie in kubelet's folder {root}")
    return resolved
