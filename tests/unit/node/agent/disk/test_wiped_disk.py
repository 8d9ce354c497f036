"""A disk whose folders are removed while several threads write blocks to it."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tdcs.node.agent.disk.tier import Disk

_THREADS = 8


def test_threads_that_find_a_wiped_disk_leave_each_other_what_they_write(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "tier")
    disk.prepare()
    for attempt in range(30):
        os.rename(tmp_path / "tier", tmp_path / f"wiped-{attempt}")
        begun, written = threading.Barrier(_THREADS), threading.Barrier(_THREADS)

        def is_there(
            block: int, *, begun: threading.Barrier = begun, written: threading.Barrier = written
        ) -> bool:
            begun.wait()
            with disk.create(block) as partial:
                written.wait()
                return os.path.exists(partial.path)

        with ThreadPoolExecutor(_THREADS) as threads:
            assert all(threads.map(is_there, range(_THREADS))), attempt
