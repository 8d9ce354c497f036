"""How much of the disk processes take in a folder at most, files without a name included."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_PAUSE: Final = 0.002


class DiskPeak:
    """Watches a folder while it is entered.

    Args:
        folder: what is below it counts.
        processes: gives the ids of the processes that may have files there which have no name.

    Attributes:
        bytes: the most that was there at a time.
    """

    def __init__(self, folder: Path, *, processes: Callable[[], Iterable[int]]) -> None:
        self._folder: Final = folder.resolve()
        self._processes: Final = processes
        self._ended: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            self.bytes = max(self.bytes, self._now())

    def _now(self) -> int:
        sizes: dict[int, int] = {}
        opened = [fd for process in self._processes() for fd in _files(Path(f"/proc/{process}/fd"))]
        for file in (*_files(self._folder), *opened):
            with suppress(OSError):
                if file.is_symlink() and not os.readlink(file).startswith(f"{self._folder}/"):
                    continue
                status = file.stat()
                sizes[status.st_ino] = status.st_size
        return sum(sizes.values())


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended
        return []
