"""Averages slices of gradients over all workers, the most urgent one that is ready next.

All workers must average the same slice at the same time, and each could think another one the most urgent. So worker 0
decides: it tells the number of the next slice by a broadcast, which costs a round trip while the slice before still
travels. No more than `WINDOW` slices are under way, so a gradient that becomes ready waits for these at most, however
many less urgent ones wait beside it.
"""

import datetime
import heapq
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as distributed

from tdcs_train.peers.errors import PeerError

WINDOW = 3
"""Slices under way: enough to keep the link busy while the next one is told."""
_END = -1
_IDLE = datetime.timedelta(days=30)
"""How long a worker may wait to be told a slice: training may pause, to evaluate for instance."""


class Exchange:
    """The thread of a worker that averages, and what has been averaged.

    Args:
        slices: what is averaged, in place, at every worker alike; the lower its number, the more urgent.
        timeout: seconds after which a slice that is waited for counts as lost.
    """

    def __init__(self, slices: Sequence[torch.Tensor], *, timeout: float) -> None:
        self.order: list[int] = []
        """Slices in the order in which they were averaged."""
        self._slices, self._timeout = slices, timeout
        self._decides = distributed.get_rank() == 0
        self._control = distributed.new_group(backend="gloo", timeout=_IDLE)
        self._data = distributed.new_group(backend="gloo")
        self._changed = threading.Condition()
        self._ready: list[int] = []
        self._under_way: set[int] = set()
        """From the moment in which it is ready until it has been averaged."""
        self._window = threading.Semaphore(WINDOW)
        self._ended = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="tdcs-averaging")
        self._thread.start()

    def offer(self, numbers: Sequence[int]) -> None:
        """These slices have this worker's part, and may be averaged."""
        with self._changed:
            for number in numbers:
                heapq.heappush(self._ready, number)
                self._under_way.add(number)
            self._changed.notify_all()

    def wait(self, numbers: Sequence[int], *, what: str) -> None:
        """Returns when these have been averaged.

        Raises:
            PeerError: A worker is gone, or nothing has come for too long.
        """
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: self._failure is not None or self._under_way.isdisjoint(numbers),
                timeout=self._timeout,
            )
            if self._failure is not None:
                raise PeerError(f"averaging gradients failed: {self._failure}") from self._failure
        if not is_over:
            raise PeerError(
                f"the gradients of {what} were not averaged within {self._timeout:g} s; see the logs of the other "
                "workers"
            )

    def close(self) -> None:
        """End the thread; all workers call it, when nothing is under way."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(self._timeout)
        for group in (self._control, self._data):
            distributed.destroy_process_group(group)

    def _run(self) -> None:
        try:
            while True:
                self._window.acquire()
                number = self._told()
                if number == _END:
                    return
                self._take(number)
                work = distributed.all_reduce(self._slices[number], group=self._data, async_op=True)
                work.get_future().add_done_callback(partial(self._done, number))
        except Exception as error:  # of gloo, whatever its kind
            self._fail(error)

    def _take(self, number: int) -> None:
        """Wait until a slice is ready here, too."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._ready)
            self._ready.remove(number)
            heapq.heapify(self._ready)
            self.order.append(number)

    def _told(self) -> int:
        """The next slice, as worker 0 decides."""
        number = _END
        if self._decides:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._ended)
                number = self._ready[0] if self._ready else _END
        tensor = torch.tensor([number])
        distributed.broadcast(tensor, src=0, group=self._control)
        return int(tensor)

    def _done(self, number: int, future: Any) -> None:
        try:
            future.value()
        except Exception as error:  # of gloo, whatever its kind
            self._fail(error)
            return
        self._window.release()
        with self._changed:
            self._under_way.discard(number)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
