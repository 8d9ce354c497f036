"""How long a training loop waits for the batches of any loader, for itself and for `tdcs explain job`.

What a process of a pod has waited so far stands in a small file in its `/dev/shm`, where the node plugin of TDCS reads
it (`tdcs.node.csi.loader_waits` knows the same name and form): a container needs no volume, right or library for it.
"""

import atexit
import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

SHARED_MEMORY = "/dev/shm"  # noqa: S108  every container has one of its own
PREFIX = "tdcs-loader-waits."
WRITE_SECONDS = 2.0
"""Between two writes of a process's file."""

Batch = TypeVar("Batch")


class Waits:
    """Seconds that a loop waited, and those from the first batch that it asked for to the last that it got."""

    def __init__(self) -> None:
        self.waited_seconds = 0.0
        self._begun: float | None = None
        self._last = 0.0

    def add(self, begun: float, ended: float) -> None:
        """A wait for a batch; moments of `time.monotonic`."""
        self._begun = begun if self._begun is None else min(self._begun, begun)
        self._last = max(self._last, ended)
        self.waited_seconds += ended - begun

    @property
    def seconds(self) -> float:
        return 0.0 if self._begun is None else self._last - self._begun

    @property
    def stall_share(self) -> float:
        """Of the time, how much the loop waited: 0 to 1."""
        return min(self.waited_seconds / self.seconds, 1.0) if self.seconds else 0.0


class _Process:
    """All waits of this process, and the file that has them, in a pod."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits = Waits()
        self._written = 0.0
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        name = f"{PREFIX}{secrets.token_hex(8)}"
        self._path = os.path.join(SHARED_MEMORY, name) if in_pod else None

    def add(self, begun: float, ended: float) -> None:
        with self._lock:
            self._waits.add(begun, ended)
            if ended - self._written >= WRITE_SECONDS:
                self._written = ended
                self._write()

    def flush(self) -> None:
        with self._lock:
            if self._waits.seconds:
                self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        try:
            with open(f"{self._path}.new", "w") as file:
                json.dump({"seconds": self._waits.seconds, "waited": self._waits.waited_seconds}, file)
            os.replace(f"{self._path}.new", self._path)
        except OSError:
            self._path = None  # full, or read-only: training must not fail for a figure


_process = _Process()


def _after_fork() -> None:
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _process.flush())


class Watched(Generic[Batch]):
    """A loader whose waits are counted in `waits`; all else is the loader's own."""

    def __init__(self, loader: Iterable[Batch]) -> None:
        self.waits = Waits()
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        start = time.monotonic()
        batches = iter(self._loader)  # workers may be started here
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                self._count(start)
                return
            self._count(start)
            yield batch
            start = time.monotonic()

    def __next__(self) -> Batch:
        """The next batch of a loader that is an iterator itself, as DALI's are."""
        start = time.monotonic()
        try:
            return next(self._loader)  # type: ignore[call-overload, no-any-return]
        finally:
            self._count(start)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def _count(self, begun: float) -> None:
        end = time.monotonic()
        self.waits.add(begun, end)
        _process.add(begun, end)


def watch(loader: Iterable[Batch]) -> Watched[Batch]:
    """The same loader, whose waits are counted: a DataLoader of PyTorch, a tf.data.Dataset, DALI's, or any iterable.

    In a pod that mounts a Dataset they come to `tdcs explain job`, to the status of the TrainingJob and to the metrics.
    Wrap what the loop itself iterates over: a framework that makes another loader of this one counts nothing.
    """
    return Watched(loader)
