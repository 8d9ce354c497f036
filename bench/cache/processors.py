"""Processors of their own for processes that play the nodes of a cluster on one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 20_000


@contextmanager
def limited(groups: Mapping[str, Iterable[int]], *, processors: float) -> Iterator[None]:
    """Give the processes of each group, and those that they have started, at most so many processors.

    Control groups of the kernel do it, of version 1 or 2; needs root.

    Args:
        groups: process numbers by the name of a group.
        processors: what each group may use, in processors; 0.5 is half of one.

    Raises:
        OSError: there are no control groups for processors here, or no right to make one.
    """
    first = _ROOT / "cpu"
    unified = not first.is_dir()
    parent = _ROOT if unified else first
    if unified and "cpu" not in (_ROOT / "cgroup.subtree_control").read_text().split():
        (_ROOT / "cgroup.subtree_control").write_text("+cpu")
    folders: list[Path] = []
    try:
        for name, pids in groups.items():
            folder = parent / f"tdcs-bench-{os.getpid()}-{name}"
            folder.mkdir()
            folders.append(folder)
            quota = round(processors * _PERIOD_MICROSECONDS)
            if unified:
                (folder / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
            for pid in pids:
                for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                    (folder / "cgroup.procs").write_text(str(process.pid))
        yield
    finally:
        for folder in folders:
            _removed(folder, parent)


def _removed(folder: Path, parent: Path) -> None:
    for pid in (folder / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (parent / "cgroup.procs").write_text(pid)
    for _ in range(50):  # a process that is just ending keeps its group for a moment
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
