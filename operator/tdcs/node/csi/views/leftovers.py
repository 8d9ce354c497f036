"""What earlier processes left on the node's disk: trees to take up again, and trees that no pod uses any more."""

import contextlib
import logging
import os
import time
from collections.abc import Collection, Iterator
from typing import Final

from tdcs.api import names
from tdcs.engine.confined_path import plain_folder
from tdcs.model.manifest import Manifest
from tdcs.node.csi import mountinfo
from tdcs.node.csi.views.node_manifests import clear_drafts, load
from tdcs.node.csi.views.overlay import parse_shown
from tdcs.node.csi.views.view import clear, clear_gone
from tdcs.node.csi.views.view_folders import SHOWN, TREE, DatasetFolder, VersionFolder, dataset_folders
from tdcs.node.csi.volume import InvalidVolumeError, VolumeFolder, parse_volume

_log: Final = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""A folder of a dataset in which nothing was made or removed for so long is about to get no version."""


def on_disk(*, cache_root: str) -> Iterator[tuple[VolumeFolder, str, Manifest | None]]:
    """Dataset and version of each manifest below the caches' folders, and of those with a view the manifest itself."""
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
                with_view = manifest if _is_made(version) else None
                yield parse_volume(attributes=attributes), manifest.digest, with_view


def clear_abandoned(
    *,
    cache_root: str,
    pods: str,
    view_folders: Collection[str],
    mounts: list[mountinfo.MountLine],
) -> None:
    """Remove views that are not looked after and that no pod is shown (their links keep bytes on the disk); the folders
    of datasets that have no version here any more; and what is left of copies of manifests. Run it in a thread.

    Args:
        pods: The folder below which pods' volumes are mounted.
        view_folders: Folders of versions that are looked after.
    """
    shown_versions = {
        overlay.version
        for mounted in mounts
        if (overlay := parse_shown(mounted)) and mounted.point.startswith(pods)
    }
    for _, _, folder in dataset_folders(cache_root=cache_root):
        for version in folder.versions():
            with contextlib.suppress(OSError):  # such as a folder that goes meanwhile
                clear_drafts(version)
            if (
                version.path in view_folders
                or version.path in shown_versions
                or os.path.exists(version.manifest)
                or not _is_made(version)
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
        _remove_if_empty(folder)


def _is_made(version: VersionFolder) -> bool:
    return not {TREE, SHOWN}.isdisjoint(version.entries())


def _remove_if_empty(folder: DatasetFolder) -> None:
    above, key = os.path.split(folder.path)
    # Not empty: it has a version. Not there, or no plain folder: it is not ours.
    with contextlib.suppress(OSError), plain_folder(folder.path) as dataset:
        if time.time() - os.fstat(dataset).st_mtime >= QUIET_SECONDS:
            with plain_folder(above) as views:
                os.rmdir(key, dir_fd=views)
