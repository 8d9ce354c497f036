"""One tree of plain files over what is on the node and what is not: an overlay of links and placeholders.

    VERSION/tree     hard links to blocks, and a placeholder for each file that is not on the node
    VERSION/shown    the overlay, which pods are given

A placeholder is an empty file of the right length. Its extended attributes have the kernel take its bytes from another
folder, the overlay's *data-only layer*, when it is opened: there the remote-read client has each file under its number
in the manifest. So names, attributes and the bytes of links come from the node's disk without any process, and only the
bytes of other files need the client.

Where kernel or disk cannot show placeholders there is no tree, and the overlay is one of the client's own folder of the
version alone. (Not that folder itself, mounted there: over a name of a file system that has ended nothing can be
mounted, and what takes its place would not reach the pods.)

Source: "Metadata only copy up" and "Data-only lower layers" in the kernel's documentation of overlayfs; Linux 6.5 or
newer. Both attributes need a file system that has `trusted` ones, as ext4, xfs, btrfs and tmpfs do.
"""

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tdcs.engine.confined_path import open_plain_file, plain_folder, replace_plain_file
from tdcs.model.file_times import UNKNOWN_TIME
from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views.view_folders import SHOWN, TREE, DatasetFolder

_log: Final = logging.getLogger(__name__)

_METACOPY: Final = "trusted.overlay.metacopy"
_REDIRECT: Final = "trusted.overlay.redirect"
_MARK: Final = "tdcs-view"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_TRIAL: Final = ".overlay-trial"
# What passes, or what another process does at the same moment; any other error says that it cannot be.
_PASSING: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EBUSY,
        errno.EEXIST,
        errno.EAGAIN,
        errno.EINTR,
    }
)


class Shown(NamedTuple):
    """What an overlay shows, by its mount's source: of which version's folder, over which device of the client."""

    device: str
    version: str

    def __str__(self) -> str:
        return f"{_MARK}@{self.device}@{self.version}"


def parse_shown(mounted: mountinfo.MountLine) -> Shown | None:
    """What a mount shows; None when it is no overlay of a view."""
    mark, _, device_and_version = mounted.source.partition("@")
    if mounted.filesystem != "overlay" or mark != _MARK:
        return None
    device, _, version = device_and_version.partition("@")
    return Shown(device, version)


def make_placeholder(
    path: bytes, *, number: int, length: int, mode: int, time: int = UNKNOWN_TIME, folder: int | None = None
) -> None:
    """Make a placeholder for the file of this number in the manifest. `path` is relative to `folder`, if there is one.

    Its length comes last: what a killed process leaves is no file of the right length. Raises OSError.

    Args:
        time: of the file's last change, in seconds since 1970.
    """
    file = os.open(path, _NEW, mode, dir_fd=folder)
    try:
        os.setxattr(file, _METACOPY, b"")
        os.setxattr(file, _REDIRECT, b"/%d" % number)
        os.fchmod(file, mode)
        os.ftruncate(file, length)
        os.utime(file, (time, time))
    finally:
        os.close(file)


def placeholder_number(path: bytes) -> int | None:
    """The number of the file that a placeholder stands for, -1 when it is broken; None when it is none."""
    try:
        os.getxattr(path, _METACOPY, follow_symlinks=False)
    except OSError:
        return None
    try:
        number = os.getxattr(path, _REDIRECT, follow_symlinks=False).removeprefix(b"/")
    except OSError:
        return -1
    return int(number) if number.isdigit() else -1


class ShownFolder:
    """What pods are given of one version.

    Args:
        version: The version's folder.
        tree: Its links and placeholders, or an empty folder where there are none.
    """

    def __init__(self, *, version: str, tree: str, merged: bool, point: str) -> None:
        self._version: Final = version
        self._tree: Final = tree
        self._merged: Final = merged
        self._point: Final = point

    def device(self, *, mounts: Iterable[mountinfo.MountLine]) -> str | None:
        """The client's device that what is shown now takes bytes from; None when nothing is mounted."""
        top = mountinfo.top(mounts=mounts, point=self._point)
        overlay = parse_shown(top) if top is not None else None
        return overlay.device if overlay is not None else None

    def used(self, *, mounts: Iterable[mountinfo.MountLine], pods: str) -> bool:
        """Whether something below the folder `pods` shows this version, over this device or an older one."""
        return any(
            overlay.version == self._version
            for mounted in mounts
            if mounted.point.startswith(pods) and (overlay := parse_shown(mounted)) is not None
        )

    def show(self, *, data: int, device: str) -> None:
        """Show it over the client's open folder `data`, on top of what was shown over a client that was replaced: there
        it reaches the pods that take what is mounted later. Blocks while the client does; raises OSError."""
        if self.device(mounts=mountinfo.read()) == device:
            return
        source = str(Shown(device, self._version))
        # By descriptors: a folder on the way that becomes a link meanwhile leads nowhere else.
        with plain_folder(self._point, make=True) as point, plain_folder(self._tree, make=True) as layer:
            target = f"/proc/self/fd/{point}"
            if self._merged:
                bind_mount.overlay_with_data(layer=layer, data=data, target=target, source=source)
            else:
                bind_mount.overlay(layers=(data, layer), target=target, source=source)

    def refresh(self) -> None:
        """Have the kernel look again at files that are not open: a link may be there in the place of a placeholder."""
        if self.device(mounts=mountinfo.read()) is not None:
            bind_mount.refresh_overlay(point=self._point)

    def hide(self) -> None:
        """Take it away; the pods that have it keep it."""
        bind_mount.detach(target=self._point)

    def remove(self) -> None:
        self.hide()
        if os.path.isdir(self._point):
            os.rmdir(self._point)

    def all_current(self, *, device: str, proc: Path | None, mounts: Sequence[mountinfo.MountLine]) -> bool:
        """Whether every pod that is shown the version takes bytes from this device of the client.

        Args:
            device: The client's of now.
            proc: The host's /proc, by which pods' own mounts are known; None when there is none.
        """
        everywhere: Iterator[Sequence[mountinfo.MountLine]]
        everywhere = mountinfo.namespaces(proc) if proc else iter([mounts])
        return all(self._current(namespace_mounts, device) for namespace_mounts in everywhere)

    def _current(self, mounts: Sequence[mountinfo.MountLine], device: str) -> bool:
        tops = {mounted.point: parse_shown(mounted) for mounted in mounts}
        return all(
            overlay.device == device
            for overlay in tops.values()
            if overlay is not None and overlay.version == self._version
        )


class OverlaySupport:
    """Where views can be overlays.

    Args:
        enabled: Whether they shall be.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled: Final = enabled
        self._reasons: Final[dict[str, str]] = {}
        self._trials: Final[dict[str, asyncio.Task[None]]] = {}

    async def look(self, dataset: DatasetFolder) -> None:
        """Find out, once, whether the kernel and the disk of a dataset's views can show placeholders.

        Raises OSError when the trial fails for now: the next call tries again.
        """
        views = os.path.dirname(dataset.path)
        if not self._enabled or views in self._reasons:
            return
        trial = self._trials.get(views)
        if trial is None:
            trial = self._trials[views] = asyncio.create_task(self._try(views))
        await asyncio.shield(trial)  # whoever gives up waiting leaves it to the next one

    async def _try(self, views: str) -> None:
        try:
            why = self._reasons[views] = await asyncio.to_thread(unsupported, views)
        finally:
            del self._trials[views]
        if why:
            _log.warning(
                "pods read all files of the views in %s through the remote-read client: they cannot be overlays (%s)",
                *(views, why),
            )

    def merged(self, dataset: DatasetFolder, *, version: str) -> bool:
        """Whether a version is, or shall be, an overlay. It stays as it was made, for the pods that it is shown to."""
        why = self._reasons.get(os.path.dirname(dataset.path))
        present = dataset.of(version).entries()
        if why or (TREE not in present and SHOWN in present):
            return False
        return TREE in present or (self._enabled and why == "")


def unsupported(folder: str) -> str:
    """Why the kernel, or the file system of a folder, cannot show placeholders; empty when both can. Tries it: one call
    at a time for a folder, which is made if it is not there. Raises OSError for what can pass, such as a full disk."""
    trial = os.path.join(folder, _TRIAL)
    tree, data, point = (os.path.join(trial, name) for name in (TREE, "data", SHOWN))
    content = b"data"
    try:
        with plain_folder(folder, make=True):
            _clear_trial(folder)  # of a process that was killed
        replace_plain_file(os.path.join(data, "7"), content)
        with plain_folder(tree, make=True, mode=0o700) as layer:
            make_placeholder(b"file", number=7, length=len(content), mode=0o444, folder=layer)
        overlay = ShownFolder(version=trial, tree=tree, merged=True, point=point)
        with plain_folder(data) as below:
            overlay.show(data=below, device="trial")
            with open(open_plain_file(os.path.join(point, "file")), "rb") as file:
                if file.read() != content:
                    return "the kernel does not take a placeholder's bytes from a data-only layer"
            overlay.refresh()
    except OSError as error:
        if error.errno in _PASSING:
            raise
        return str(error)
    finally:
        try:
            _clear_trial(folder)
        except OSError as error:
            _log.warning("%s cannot be removed; the next trial does it: %s", trial, error)
    return ""


def _clear_trial(folder: str) -> None:
    with plain_folder(folder) as opened:
        if os.path.lexists(f"/proc/self/fd/{opened}/{_TRIAL}"):
            bind_mount.detach(target=os.path.join(folder, _TRIAL, SHOWN))
            shutil.rmtree(_TRIAL, dir_fd=opened)
