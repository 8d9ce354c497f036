"""How long the training loops of a pod waited for their batches, as `tdcs_train.loader.watch` writes it.

Each process that watches a loader keeps a file in its container's `/dev/shm`. It is read by way of a process of the
container (/proc/PID/root), whose files belong to strangers: no link is followed, nothing but small plain files is read,
and nothing but two numbers is taken of them.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tdcs.engine.read_reports import MOST_SECONDS, Seconds
from tdcs.node.csi.pod_pressure import PodPressures

PREFIX: Final = "tdcs-loader-waits."
_WRITTEN: Final = ".new"
"""Ends the name of a file that is not whole yet."""
_MOST_ENTRIES: Final = 4096
_MOST_FILES: Final = 256
_MOST_BYTES: Final = 512

_INSIDE: Final = os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class LoopWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process, or of all of a pod together: seconds of its loops, and those of them that were waits."""

    seconds: Seconds
    waited: Seconds


class LoaderWaits:
    """Of the pods of this node.

    Args:
        proc: the host's /proc.
        pods: which processes a pod has.
    """

    def __init__(self, proc: Path, pods: PodPressures) -> None:
        self._proc: Final = proc
        self._pods: Final = pods

    def of(self, pod: str) -> LoopWaits | None:
        """Summed over the pod's processes; None when none of them watches a loader."""
        # Pods with hostIPC share the host's: whose files are there is not known.
        places: set[tuple[int, int]] = set()
        host = self._device_of_host()
        waits = []
        for process in self._pods.processes(pod):
            with contextlib.suppress(OSError), self._shared_memory(str(process)) as folder:
                if os.fstat(folder).st_dev != host:
                    waits += _waits(folder, places)
        if not waits:
            return None
        return LoopWaits(
            seconds=min(sum(wait.seconds for wait in waits), MOST_SECONDS),
            waited=min(sum(wait.waited for wait in waits), MOST_SECONDS),
        )

    def _device_of_host(self) -> int | None:
        try:
            with self._shared_memory("1") as folder:
                return os.fstat(folder).st_dev
        except OSError:
            return None

    @contextlib.contextmanager
    def _shared_memory(self, process: str) -> Iterator[int]:
        """A container's /dev/shm, opened step by step: a link in it would lead to the files of the node."""
        with contextlib.ExitStack() as opened:
            folder = os.open(self._proc / process / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, folder)
            for name in ("dev", "shm"):
                folder = os.open(name, _INSIDE, dir_fd=folder)
                opened.callback(os.close, folder)
            yield folder


def _waits(folder: int, places: set[tuple[int, int]]) -> list[LoopWaits]:
    """What the files of a folder say; containers of a pod that share the folder count once, by `seen`."""
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in itertools.islice(entries, _MOST_ENTRIES)
            if entry.name.startswith(PREFIX) and not entry.name.endswith(_WRITTEN)
        ]
    waits = []
    for name in names[:_MOST_FILES]:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            # Without O_NONBLOCK a pipe of that name would be waited for.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                status = os.fstat(file)
                place = (status.st_dev, status.st_ino)
                if stat.S_ISREG(status.st_mode) and place not in places:
                    places.add(place)
                    waits.append(msgspec.json.decode(os.read(file, _MOST_BYTES), type=LoopWaits))
            finally:
                os.close(file)
    return waits
