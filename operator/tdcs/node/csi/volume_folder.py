"""Finds the folder of a volume below the FUSE mount of its cache cluster on this node.

Everything here may ask the FUSE client something and may therefore hang for as long as that client does:
callers go through `tdcs.node.csi.hang_guard`.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tdcs.api import names
from tdcs.node.csi import mountinfo
from tdcs.node.csi.volume import Volume

# What the kernel answers for a FUSE mount with a dead client (or, ESTALE, with a client that has lost the
# folder).
_DEAD: Final = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE, errno.ENODEV, errno.EIO})
MOUNTED: Final = "see whether the condition Mounted of its Dataset is True: kubectl get datasets -A"
"""What to look at when the data is not in the cache."""

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SourceNotReadyError(Exception):
    """The folder cannot be mounted now, but may be in a while; the text says why and what to look at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An open folder: `folder` is its descriptor (owned by the holder, see `close`), `shows` is what a
    mount of it shows.
    """

    folder: int
    shows: tuple[str, str]

    def close(self) -> None:
        """Give the descriptor back; mounts of the folder stay."""
        os.close(self.folder)


def see_clients(*, cluster: str) -> str:
    """What to look at when a cluster's FUSE client does not do its work."""
    client = names.fuse_name(cluster=cluster)
    return f"see its FUSE client's pods: kubectl get pods -A -o wide | grep {client}"


def open_source(*, volume: Volume, fuse_root: Path, node: str) -> Source:
    """Open the volume's folder. Blocks while the FUSE client does; raises SourceNotReadyError.

    No symbolic link is followed on the way, so the opened folder lies inside the cache cluster, whatever
    its content does meanwhile.
    """
    point = os.path.join(os.path.realpath(fuse_root), volume.cluster)
    pods = see_clients(cluster=volume.cluster)
    if mountinfo.top(mounts=mountinfo.read(), point=point) is None:
        raise SourceNotReadyError(
            f"cache cluster {volume.cluster} is not mounted on node {node} (nothing is mounted at {point}); "
            f"{pods}; if node {node} has none, it must match nodeSelector and tolerations of the CacheCluster "
            "(kubectl describe cacheclusters -A), or the pod must run elsewhere"
        )
    try:
        folder = _open_folder(point=point, parts=volume.parts)
    except FileNotFoundError as error:
        raise SourceNotReadyError(
            f"folder {volume.path} is not in cache cluster {volume.cluster} as node {node} sees it; {MOUNTED}"
        ) from error
    except NotADirectoryError as error:
        raise SourceNotReadyError(
            f"{volume.path} in cache cluster {volume.cluster} is no folder, or is reached through a "
            "symbolic link; "
            "a volume must name a folder of the cache"
        ) from error
    except OSError as error:
        what = "its FUSE client has died" if error.errno in _DEAD else "the folder cannot be opened"
        raise SourceNotReadyError(
            f"cache cluster {volume.cluster} cannot be read on node {node}: {what} ({error.strerror} at "
            f"{volume.path}); {pods}"
        ) from error
    try:
        _require_files(folder=folder, volume=volume, node=node)
        return Source(folder=folder, shows=shown(folder=folder))
    except BaseException:
        os.close(folder)
        raise


def _require_files(*, folder: int, volume: Volume, node: str) -> None:
    """A mount that the cache tries and fails shows its folder for a moment: empty, or not to be listed.

    A pod that got that one would find no data; every real dataset has at least one entry.
    """
    listing = None
    try:
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        with os.scandir(listing) as entries:
            if next(entries, None) is not None:
                return
        what = "is empty"
    except OSError as error:
        what = f"cannot be listed ({error.strerror})"
    finally:
        if listing is not None:
            os.close(listing)
    raise SourceNotReadyError(
        f"folder {volume.path} of cache cluster {volume.cluster} {what} on node {node}; {MOUNTED}"
    )


def _open_folder(*, point: str, parts: tuple[str, ...]) -> int:
    folder = os.open(point, _FOLDER)
    try:
        for part in parts:
            deeper = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = deeper
        _ask(folder)
    except OSError:
        os.close(folder)
        raise
    return folder


def _ask(folder: int) -> None:
    """Names may come from the kernel's cache long after the client died; statfs always reaches the client."""
    try:
        os.fstatvfs(folder)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise


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
