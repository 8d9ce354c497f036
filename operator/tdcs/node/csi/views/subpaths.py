"""Folders and files of a view that containers have by `subPath`, and that outlive the remote-read client, too.

For a `subPath` kubelet makes a mount of its own, of that folder or file alone. What is mounted over the whole version
when the client was replaced does not reach it, so the same is mounted over each of them, and reaches the containers
that take what is mounted later (`mountPropagation: HostToContainer`).

kubelet's mount has the volume's own for a peer, and other `subPath`s of the pod: what is mounted over one of them lands
in all that show its place. Of two where one is in the other only the outer one is renewed, as what the inner one gets
would be in the outer one, where kubelet could not take it away.
"""

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tdcs.engine.confined_path import open_beneath, plain_folder
from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views.overlay import parse_shown

_log: Final = logging.getLogger(__name__)


_SUBPATHS: Final = "/volume-subpaths/"
"""Kubelet's folder in that of a pod, with the mounts for `subPath`s."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """Mounts of parts that lead to another file system than the client's of now: `renewable` ones, and others that
    are in them."""

    renewable: list[mountinfo.MountLine] = field(default_factory=list)
    nested: list[mountinfo.MountLine] = field(default_factory=list)


def outdated(*, mounts: Iterable[mountinfo.MountLine], pods: str, version: str, device: str) -> Outdated:
    """The parts of a version that lead to another device than the client's.

    Args:
        mounts: as the kernel has them.
        pods: a folder in which kubelet's folders of pods are, with a slash at its end.
        version: the version's folder.
        device: the client's of now.
    """
    tops = {
        mounted.point: mounted
        for mounted in mounts
        if mounted.point.startswith(pods) and parse_shown(mounted) is not None
    }
    parts = Outdated()
    for point, mounted in tops.items():
        overlay = parse_shown(mounted)
        if mounted.root == "/" or overlay is None or overlay.version != version or overlay.device == device:
            continue
        if any(above in tops for above in _folders_above(point, pods)):
            continue  # what was mounted over another part lands here, too, and goes with that
        pod, of_kubelet, _ = point.partition(_SUBPATHS)
        if not of_kubelet:
            continue
        outer = {
            mounted.root
            for mounted in tops.values()
            if mounted.point.startswith(f"{pod}{_SUBPATHS}")
            # Folders of another version, or of another Dataset, have the same names, and are no peers.
            and (alongside := parse_shown(mounted)) is not None
            and alongside.version == version
        }
        nested = any(above in outer for above in _folders_above(mounted.root, "/"))
        (parts.nested if nested else parts.renewable).append(mounted)
    return parts


class Subpaths:
    """Keeps the parts of one version readable.

    Args:
        version: the version's folder.
        point: where the whole version is shown.
    """

    def __init__(self, *, version: str, point: str) -> None:
        self._version: Final = version
        self._point: Final = point
        self._failures: dict[str, str] = {}
        """Those that were left as they are at the last trial, and why."""

    def are_outdated(self, *, mounts: Iterable[mountinfo.MountLine], pods: str, device: str) -> bool:
        """Whether one can be renewed."""
        return bool(outdated(mounts=mounts, pods=pods, version=self._version, device=device).renewable)

    def renew(self, *, pods: str, device: str) -> int:
        """Show what is shown of the whole version now in its parts; in how many. One that cannot be renewed is left as
        it is, for the next call. Raises OSError where the version is not shown."""
        failures, renewed = dict[str, str](), 0
        while parts := self._outdated(pods=pods, device=device, without=failures):
            # One after the other: what is mounted over one may have renewed others.
            with plain_folder(self._point) as whole:
                try:
                    _show(whole=whole, part=parts[0])
                    renewed += 1
                except OSError as error:
                    failures[parts[0].point] = error.strerror or str(error)
        nested = outdated(mounts=mountinfo.read(), pods=pods, version=self._version, device=device).nested
        failures |= {part.point: "it is in another subPath of its pod" for part in nested}
        if failures and failures != self._failures:
            _log.warning(
                "%d subPath mounts of %s keep the files of a client that has ended: %s. Restart their pods, or mount "
                "the whole volume",
                *(
                    len(failures),
                    self._version,
                    "; ".join(f"{point}: {why}" for point, why in failures.items()),
                ),
            )
        self._failures = failures
        return renewed

    def _outdated(self, *, pods: str, device: str, without: Iterable[str]) -> list[mountinfo.MountLine]:
        parts = outdated(mounts=mountinfo.read(), pods=pods, version=self._version, device=device)
        return [part for part in parts.renewable if part.point not in without]


def _show(*, whole: int, part: mountinfo.MountLine) -> None:
    """Show a folder or file of the open folder `whole` where a container has it from an earlier mount."""
    opened = open_beneath(whole, os.fsencode(part.root.strip("/")), os.O_PATH | os.O_NOFOLLOW)
    try:
        bind_mount.attach(source=opened, target=part.point)
    finally:
        os.close(opened)


def _folders_above(path: str, root: str) -> list[str]:
    """The folders in which a path is, below `root`."""
    pieces = path[len(root) :].split("/")
    return [root + "/".join(pieces[:count]) for count in range(1, len(pieces))]
