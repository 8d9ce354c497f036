"""Gives volumes to pods and takes them away: what kubelet's two calls mean, without gRPC.

Both calls may come again at any time for what was done already (kubelet repeats them after its own and this
plugin's restart), so each looks at what is mounted and does what is missing. Mounting and unmounting touch
only kubelet's folder and take about a millisecond: they run in the event loop, one at a time, so that no
cancelled call leaves half of them behind.
"""

import asyncio
import contextlib
import errno
import logging
import os
from dataclasses import dataclass
from typing import Final

import click

from tdcs.node.csi import bind_mount, mountinfo
from tdcs.node.csi.views.node_views import NodeViews
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import OpenSource, SourceNotReadyError, VolumeFolder, parse_target
from tdcs.options import PORT, metrics_port, option

_log: Final = logging.getLogger(__name__)


class TargetError(Exception):
    """The folder that kubelet named cannot be used or removed; the text says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class PluginSettings(ViewSettings):
    """Where the node plugin works, and its patience."""

    # kubelet repeats a failed call after 0.5 s to 2 min, so waiting here saves time; it gives up a call after 2 min.
    wait_seconds: float = option(
        "Seconds that a pod's volume waits for its data's folder before kubelet is asked to try again.",
        default=20.0,
        type=click.FloatRange(min=0, max=100),
        flag="--wait",
        chart="csi.waitSeconds",
    )
    health_port: int = option("Port of GET /healthz; 0: none.", default=0, type=PORT)
    metrics_port: int = metrics_port(default=0)
    poll_seconds: float = 0.25
    """Pause between two looks while waiting."""


class NodeVolumes:
    def __init__(self, *, settings: PluginSettings, views: NodeViews) -> None:
        self._settings: Final = settings
        self._views: Final = views
        self._stopping: Final = asyncio.Event()

    def stop(self) -> None:
        """End the waiting of every publish: it is answered with what it waits for, and kubelet asks the next plugin."""
        self._stopping.set()

    async def publish(self, *, volume: VolumeFolder, target: str) -> None:
        """Show the volume read-only at `target`; a volume that is shown there already stays as it is, and keeps its
        version.

        Raises SourceNotReadyError when the folder cannot be mounted for now (nothing was changed),
        InvalidVolumeError for a bad target, TargetError when `target` cannot be used.
        """
        resolved = parse_target(path=target, kubelet=self._settings.kubelet)
        present = mountinfo.top(mounts=mountinfo.read(), point=resolved)
        if present and "ro" in present.options and self._views.shows(volume=volume, mounted=present):
            return
        source = await self._wait_for_source(volume=volume)
        try:
            _show(source=source, target=resolved)
        finally:
            source.close()

    async def unpublish(self, *, target: str) -> None:
        """Take away what is shown at `target` and remove the empty folder; nothing there is fine.

        Raises InvalidVolumeError for a bad target, TargetError when something is still mounted or files are
        in the folder: files are never deleted.
        """
        resolved = parse_target(path=target, kubelet=self._settings.kubelet)
        try:
            bind_mount.detach(target=resolved)
        except OSError as error:
            raise TargetError(
                f"the volume at {resolved} on node {self._settings.node} cannot be unmounted: "
                f"{error.strerror}; "
                "kubelet tries again"
            ) from error
        try:
            os.rmdir(resolved)
        except FileNotFoundError:
            return
        except OSError as error:
            advice = (
                "it holds files that no volume put there; look at them on the node and move them away"
                if error.errno == errno.ENOTEMPTY
                else "kubelet tries again"
            )
            raise TargetError(
                f"folder {resolved} on node {self._settings.node} cannot be removed: {error.strerror}; "
                f"{advice}"
            ) from error

    async def _wait_for_source(self, *, volume: VolumeFolder) -> OpenSource:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.wait_seconds
        logged = False
        while True:
            try:
                return await self._views.open(volume=volume)
            except SourceNotReadyError as error:
                if self._stopping.is_set() or loop.time() + self._settings.poll_seconds > deadline:
                    raise
                if not logged:
                    _log.info("waiting up to %g s: %s", self._settings.wait_seconds, error)
                    logged = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), timeout=self._settings.poll_seconds)


def _show(*, source: OpenSource, target: str) -> None:
    mounted = mountinfo.top(mounts=mountinfo.read(), point=target)
    if mounted is not None:
        if mounted.shows == source.shows and "ro" in mounted.options:
            return
        # Another file system or folder: most likely over a client's mount that has since been replaced.
        _log.info("replacing what is mounted at %s (%s, %s)", target, mounted.filesystem, mounted.root)
    try:
        if mounted is not None:
            bind_mount.detach(target=target)
        # Safe only now: on a mount point this would ask a file system that may be dead.
        os.makedirs(target, mode=0o750, exist_ok=True)
        bind_mount.attach(source=source.folder, target=target)
    except OSError as error:
        # Only an empty folder goes; if it cannot, kubelet's next unpublish says why.
        with contextlib.suppress(OSError):
            os.rmdir(target)
        raise TargetError(
            f"the volume cannot be mounted at {target}: {error.strerror}; the plugin needs a privileged "
            "container and "
            "kubelet's folder with mount propagation Bidirectional"
        ) from error
