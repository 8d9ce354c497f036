"""Where processor time goes: seconds that named processes, and this one, have used."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil
from bench.cache.cache_lab import Lab


class CpuTime:
    """Processor seconds since it was made, or since `again`, by kind of process.

    Args:
        pids: first processes of each kind; what they have started counts as well.
    """

    def __init__(self, *, pids: Mapping[str, Iterable[int]]) -> None:
        self._pids = {kind: tuple(group) for kind, group in pids.items()}
        self.again()

    def again(self) -> None:
        """Count from now on."""
        self._began = time.monotonic()
        self._before = self._used()

    def report(self) -> dict[str, float]:
        """Seconds by kind, `this_process`, and `of_processors`: the part of all processors that they used."""
        seconds = time.monotonic() - self._began
        used = {kind: value - self._before[kind] for kind, value in self._used().items()}
        share = sum(used.values()) / (seconds * (os.cpu_count() or 1))
        return {kind: round(value, 1) for kind, value in used.items()} | {"of_processors": round(share, 2)}

    def _used(self) -> dict[str, float]:
        used = {kind: sum(map(_seconds, pids)) for kind, pids in self._pids.items()}
        return used | {"this_process": time.process_time()}


def kinds(lab: Lab) -> dict[str, list[int]]:
    """The processes of a lab, for `CpuTime`."""
    return {
        "workers": [process.pid for process in lab.cache.workers.values()],
        "master": [lab.cache.master.pid],
        "store": [lab.store.pid],
    }


def _seconds(pid: int) -> float:
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
    return total
