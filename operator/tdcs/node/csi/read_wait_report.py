"""Says to the operator how long the reads of this node's pods waited, and for what."""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tdcs.api import names
from tdcs.engine.operator_client import OperatorClient
from tdcs.engine.pod_wait_table import POD_WAITS, PodWait, read_pod_waits
from tdcs.engine.read_reports import READ_WAITS_PATH, PodReadWaits, ReadWaits
from tdcs.node.csi.loader_waits import LoaderWaits
from tdcs.node.csi.pod_pressure import PodPressures

_log: Final = logging.getLogger(__name__)

REPORT_SECONDS: Final = 10.0
"""Between two reports. One is sent only when something has changed."""

_PATIENCE_SECONDS: Final = 5.0
_NOTABLE_SECONDS: Final = 0.5
_VOLUMES: Final = "volumes/kubernetes.io~csi"


class ReadWaitReport:
    """What is known of the pods that mount Datasets.

    Args:
        pods: kubelet's folder of pods.
        operator: `host:port` of the operator's service.
        pressures: what the kernel says; None: nothing.
        loaders: what watched training loops say; None: nothing.
        tls: gives the context with this node's certificate; None: the operator is asked by plain HTTP.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        *,
        node: str,
        pods: Path,
        operator: str,
        reader_root: Path,
        pressures: PodPressures | None,
        loaders: LoaderWaits | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node: Final = node
        self._pods: Final = pods
        self._operator: Final = OperatorClient(operator, tls=tls)
        self._table: Final = reader_root / POD_WAITS
        self._pressures: Final = pressures
        self._loaders: Final = loaders
        self._clock: Final = clock
        self._reported: dict[str, PodReadWaits] = {}

    async def run(self, *, seconds: float = REPORT_SECONDS) -> None:
        """Report forever; what the operator does not take is in the next report."""
        while True:
            try:
                await asyncio.to_thread(self.report)
            except Exception:  # a figure less, and volumes are mounted on
                _log.exception("how long pods waited cannot be reported by a defect; it is tried again")
            await asyncio.sleep(seconds)

    def report(self) -> None:
        """Send what has changed since the operator took the last report."""
        waits_by_pod = self.look()
        changed = [waits for pod, waits in waits_by_pod.items() if _notable(self._reported.get(pod), waits)]
        if not changed:
            return
        body = msgspec.json.encode(ReadWaits(node=self._node, pods=tuple(changed)))
        try:
            self._operator.post(READ_WAITS_PATH, body, seconds=_PATIENCE_SECONDS)
        except OSError as error:
            _log.info("the operator does not take how long pods waited: %s; it is tried again", error)
            return
        self._reported = {pod: self._reported.get(pod, waits) for pod, waits in waits_by_pod.items()} | {
            waits.pod: waits for waits in changed
        }

    def look(self) -> dict[str, PodReadWaits]:
        """What is known of each pod that mounts a Dataset, or has read by the remote-read client."""
        table = {wait.pod: wait for wait in read_pod_waits(self._table)}
        mounting = set(self._mounting())
        if self._pressures is not None:
            self._pressures.keep(mounting)
        waits_by_pod = {}
        for pod in mounting | table.keys():
            waits = self._of(pod, table.get(pod), mounts=pod in mounting)
            if pod in mounting:
                waits = self._with_loop(pod, waits)
            if waits is not None:
                waits_by_pod[pod] = waits
        return waits_by_pod

    def _of(self, pod: str, wait: PodWait | None, *, mounts: bool) -> PodReadWaits | None:
        pressure = self._pressures.of(pod) if self._pressures is not None and mounts else None
        before = self._reported.get(pod)
        peer, source = (wait.peer, wait.source) if wait is not None else (0.0, 0.0)
        pod_waits = before if before is not None else PodReadWaits(pod=pod, seconds=0.0)
        if pressure is not None:
            seconds = max(self._clock() - pressure.began, 0.0)
            disk = max(pressure.waited - peer - source, 0.0)
            return replace(pod_waits, seconds=seconds, peer=peer, source=source, disk=disk)
        if wait is None:
            return before  # it has ended: what was known of it stays
        disk_before = before.disk if before is not None else None
        seconds = max(wait.last - wait.began, 0.0)
        if before is not None and disk_before is not None:
            seconds = max(seconds, before.seconds)
        return replace(pod_waits, seconds=seconds, peer=peer, source=source)

    def _with_loop(self, pod: str, waits: PodReadWaits | None) -> PodReadWaits | None:
        """With what its training loops say; what was known of them stays when they have ended."""
        loop = self._loaders.of(pod) if self._loaders is not None else None
        if loop is None:
            return waits
        waits = waits if waits is not None else PodReadWaits(pod=pod, seconds=0.0)
        return replace(waits, loop_seconds=loop.seconds, loop_waited=loop.waited)

    def _mounting(self) -> list[str]:
        """Uids of the pods on this node that mount a Dataset's volume."""
        try:
            pods = os.listdir(self._pods)
        except OSError:
            return []
        return [pod for pod in pods if any(map(names.volume_owner, _volumes(self._pods / pod)))]


def _volumes(pod: Path) -> list[str]:
    try:
        return os.listdir(pod / _VOLUMES)
    except OSError:
        return []


def _notable(before: PodReadWaits | None, now: PodReadWaits) -> bool:
    """Whether waits differ so much that a report is due; that time passes alone is no news."""
    if before is None:
        return True
    pairs = (
        (before.peer, now.peer),
        (before.source, now.source),
        (before.disk or 0.0, now.disk or 0.0),
        (before.loop_waited, now.loop_waited),
    )
    spans = ((before.seconds, now.seconds), (before.loop_seconds or 0.0, now.loop_seconds or 0.0))
    longer = any(new > 1.2 * old + REPORT_SECONDS for old, new in spans)
    return longer or any(abs(new - old) >= _NOTABLE_SECONDS for old, new in pairs)
