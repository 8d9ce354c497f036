"""What a volume names, checked: nothing that a PersistentVolume's author writes becomes part of a path
unseen.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.node.csi import mountinfo

_CLUSTER: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_TIER: Final = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9._-]*)+")


MOUNTED: Final = "see whether the condition Mounted of its Dataset is True: kubectl get datasets -A"
"""What to look at when the data is not in the cache."""


class InvalidVolumeError(ValueError):
    """A request that can never succeed as it is; its text says what is wrong and what to write instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VolumeFolder:
    """A folder of a cache cluster: the cluster's name, and the names on the way from its root to the
    folder. `tiers` are the node's folders of its blocks, that for the views first; none: the default one.
    """

    cluster: str
    parts: tuple[str, ...]
    tiers: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The folder's path inside the cache cluster, such as `/datasets/0123456789abcdef`."""
        return "/" + "/".join(self.parts)


def parse_volume(*, attributes: Mapping[str, str]) -> VolumeFolder:
    """The volume that a PersistentVolume's `volumeAttributes` name; raises InvalidVolumeError."""
    cluster = attributes.get(names.VOLUME_CLUSTER, "")
    if ".." in cluster or not _CLUSTER.fullmatch(cluster):
        raise InvalidVolumeError(
            f"volume attribute {names.VOLUME_CLUSTER!r} is {cluster!r}, which is not the name of a "
            "CacheCluster; "
            "set spec.csi.volumeAttributes of the PersistentVolume as the Dataset's own volume has it"
        )
    path = attributes.get(names.VOLUME_PATH, "")
    parts = tuple(path.removeprefix("/").removesuffix("/").split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidVolumeError(
            f"volume attribute {names.VOLUME_PATH!r} is {path!r}, which is not a plain path below the root "
            "of cache cluster "
            f"{cluster}; empty names, '.' and '..' are refused"
        )
    return VolumeFolder(cluster=cluster, parts=parts, tiers=_tiers(attributes.get(names.VOLUME_TIERS, "")))


def _tiers(text: str) -> tuple[str, ...]:
    tiers = tuple(text.split(",")) if text else ()
    for tier in tiers:
        if not _TIER.fullmatch(tier):
            raise InvalidVolumeError(
                f"volume attribute {names.VOLUME_TIERS!r} has {tier!r}, which is not the path of a folder for cached "
                "blocks such as /mnt/nvme/cache; set spec.csi.volumeAttributes of the PersistentVolume as the "
                "Dataset's own volume has it"
            )
    return tiers


def parse_target(*, path: str, kubelet: Path) -> str:
    """The target of a mount as this process sees it, links on the way resolved.

    Only a path below kubelet's folder is accepted; raises InvalidVolumeError. The last name is not looked
    at: it may be the mount point of a file system with a dead server.
    """
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise InvalidVolumeError(f"target path {path!r} is not an absolute path without '.' and '..'")
    resolved = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    root = os.path.realpath(kubelet)
    if not resolved.startswith(root + "/"):
        raise InvalidVolumeError(f"target path {path!r} does not be in kubelet's folder {root}")
    return resolved


class SourceNotReadyError(Exception):
    """The folder cannot be mounted now, but may be in a while; the text says why and what to look at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenSource:
    """An open folder: `folder` is its descriptor (owned by the holder, see `close`), `shows` is what a
    mount of it shows.
    """

    folder: int
    shows: tuple[str, str]

    def close(self) -> None:
        """Give the descriptor back; mounts of the folder stay."""
        os.close(self.folder)


def shown(*, folder: int) -> tuple[str, str]:
    """Device and root that a mount of the open folder `folder` has in mountinfo."""
    information = Path(f"/proc/self/fdinfo/{folder}").read_text(encoding="ascii")
    identifier = next(int(line.split()[1]) for line in information.splitlines() if line.startswith("mnt_id:"))
    mounts = {mount.id: mount for mount in mountinfo.read()}
    if identifier not in mounts:
        raise SourceNotReadyError("the mount was taken away while its folder was being opened")
    mount = mounts[identifier]
    below = os.path.relpath(os.readlink(f"/proc/self/fd/{folder}"), mount.point)
    return mount.device, os.path.normpath(os.path.join(mount.root, below))
