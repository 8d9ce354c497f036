"""What earlier processes left on the node's disk: trees to take up again, and trees that no pod uses any more."""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Collection, Iterator
from typing import Final

from tdcs.api import names
from tdcs.engine.confined_path import open_beneath, plain_folder
from tdcs.model.manifest import Manifest
from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views.node_manifests import clear_drafts, load
from tdcs.node.csi.views.overlay import parse_shown
from tdcs.node.csi.views.view import clear, clear_gone
from tdcs.node.csi.views.view_folders import NOTICED, TREE, DatasetFolder, dataset_folders
from tdcs.node.csi.volume import InvalidVolumeError, Volume, parse_volume

_log: Final = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""A folder of a dataset in which nothing was made or removed for so long is about to get no version."""


def on_disk(*, cache_root: str) -> Iterator[tuple[Volume, str, Manifest | None]]:
    """Dataset and version of each manifest below the caches' folders, and of those with a tree the manifest itself."""
    for cluster, tiers, folder in dataset_folders(cache_root=cache_root):
        for version in folder.versions():
            manifest = load(version)
            if manifest is None:
                continue
            attributes = {
                names.VOLUME_CLUSTER: cluster,
                names.VOLUME_PATH: manifest.path,
                names.VOLUME_TIERS: ",".join(tiers),
            }
            with contextlib.suppress(InvalidVolumeError):
                shown = manifest if os.path.isdir(version.tree) else None
                yield parse_volume(attributes=attributes), manifest.digest, shown


def clear_abandoned(
    *,
    cache_root: str,
    pods: str,
    known: Collection[str],
    mounts: list[mountinfo.Mount],
    read: Collection[str] = (),
) -> None:
    """Remove trees that are not looked after and that no pod is shown: their links keep bytes on the disk; the folders
    of datasets that have no version here any more; and what is left of copies of manifests. Run it in a thread.

    Args:
        cache_root: Folder with the caches' folders.
        pods: The folder below which pods' volumes are mounted.
        known: Folders of versions that are looked after.
        mounts: What is mounted.
        read: Folders of datasets that pods read without a version on this node.
    """
    shown = {found.root for found in mounts if found.point.startswith(pods)}
    overlays = {
        found.version for each in mounts if (found := parse_shown(each)) and each.point.startswith(pods)
    }
    for _, _, folder in dataset_folders(cache_root=cache_root):
        for version in folder.versions():
            with contextlib.suppress(OSError):  # such as a folder that goes meanwhile
                clear_drafts(version)
            tail = os.path.join(names.VIEWS_FOLDER, os.path.basename(folder.path), version.version, TREE)
            if (
                version.path in known
                or version.path in overlays
                or os.path.exists(version.manifest)
                or not os.path.isdir(version.tree)
                or any(root.endswith("/" + tail) for root in shown)
            ):
                continue
            try:
                clear(version)
            except OSError as error:
                _log.warning("%s, which no pod uses, cannot be removed: %s", version.path, error)
            else:
                _log.info("%s is removed: no pod uses it", version.path)
        try:
            clear_gone(folder)
        except OSError as error:
            _log.warning("what was deleted in %s before cannot be removed: %s", folder.path, error)
        if folder.path not in read:
            _forget(folder)


def _forget(folder: DatasetFolder) -> None:
    """Remove the folder of a dataset that has no version, and what was noted of the last one."""
    above, key = os.path.split(folder.path)
    # Not empty: a version came meanwhile. Not there, or no plain folder: it is not ours.
    with contextlib.suppress(OSError), plain_folder(folder.path) as dataset:
        there = open_beneath(dataset, b".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            is_spent = set(os.listdir(there)) <= {NOTICED}
        finally:
            os.close(there)
        if not is_spent or time.time() - os.fstat(dataset).st_mtime < QUIET_SECONDS:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NOTICED, dir_fd=dataset)
        with plain_folder(above) as views:
            os.rmdir(key, dir_fd=views)


def detach_reader(*, state: str) -> None:
    """Take away the file system of a remote-read client that the node has no more, because the chart was upgraded to
    values without it: its process ended before that of the holder, so neither could. One with a holder stays: it is of
    a client that an upgrade brings, or the holder takes it away itself. Run it in a thread.

    Args:
        state: Folder in which the client's folder lies.
    """
    root = os.path.join(os.path.realpath(state), os.path.basename(names.READER_ROOT))
    point = os.path.join(root, names.READER_MOUNT)
    found = mountinfo.top(mounts=mountinfo.read(), point=point)
    if found is None or found.filesystem != names.READER_FILE_SYSTEM:
        return
    if _listens(os.path.join(root, names.READER_SOCKET)):
        return
    try:
        bind_mount.detach(target=point)
    except OSError as error:
        _log.warning("%s, of a remote-read client that is gone, cannot be unmounted: %s", point, error)
    else:
        _log.info("%s is unmounted: the node has no remote-read client any more", point)


def _listens(path: str) -> bool:
    """Whether a process listens at a socket; it need not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as caller:
        try:
            caller.connect(path)
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
        return True
