"""A kernel that runs on several threads, so that several acts of one actor are under way at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns

from tdcs_train.actors.task import Cause, Done, Kernel, Registers


class PooledKernel:
    """Runs the acts of one actor on `workers` threads; the actor needs as many registers to keep them all busy."""

    def __init__(self, name: str, kernel: Kernel, *, workers: int) -> None:
        self.name = name
        self._kernel = kernel
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._own = threading.local()

    def submit(self, inputs: Registers, outputs: Registers, number: int, done: Done) -> None:
        """Begin an act as soon as a thread is free."""
        self._pool.submit(self._run, inputs, outputs, number, done, monotonic_ns())

    def _run(self, inputs: Registers, outputs: Registers, number: int, done: Done, submitted: int) -> None:
        before: tuple[int, Cause] | None = getattr(self._own, "before", None)
        waited = before is not None and before[0] > submitted
        started = monotonic_ns()
        try:
            self._kernel(inputs, outputs, number)
        except Exception as error:
            done(error=error)
            return
        self._own.before = (monotonic_ns(), (self.name, number))
        done(started=started, after=before[1] if waited and before else None)

    def close(self) -> None:
        """End the threads after the acts that are running."""
        self._pool.shutdown(cancel_futures=True)
