"""Loading blocks in the background, in portions small enough that progress can be seen.

A run is memory only: what it has done is seen in the engine's listing, so an operator that is killed in the
middle plans the rest anew and goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from tdcs.engine.protocol import Block, Engine, EngineError, PutFailure

_log = logging.getLogger(__name__)

FIRST_PORTION = 8 * 1024 * 1024
SMALLEST_PORTION = 1024 * 1024
LARGEST_PORTION = 256 * 1024 * 1024
MOST_BLOCKS = 500
TARGET_SECONDS = 2.0
"""A portion shall take about this long, so that the status moves."""

FAILURES_KEPT = 10


def next_portion(*, size: int, seconds: float) -> int:
    """The size of the next portion: doubled when one was quick, halved when it was slow."""
    if seconds < TARGET_SECONDS / 2:
        return min(size * 2, LARGEST_PORTION)
    if seconds > TARGET_SECONDS * 2:
        return max(size // 2, SMALLEST_PORTION)
    return size


def take(blocks: Sequence[Block], *, start: int, size: int) -> int:
    """The end of a portion that begins at `start`: at least one block, at most `size` bytes."""
    end, total = start, 0
    while end < len(blocks) and end - start < MOST_BLOCKS:
        total += blocks[end].length
        if end > start and total > size:
            break
        end += 1
    return end


class LoadRun:
    """Loads blocks onto workers, all workers at once.

    Attributes:
        node_bytes: bytes placed so far, by worker.
        cached_bytes: bytes of blocks that lay nowhere before and do now.
        failures: the first few blocks that could not be placed.
        failed: how many could not be placed.
        error: what ended the run of a worker early, if anything did.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        work: Mapping[str, Sequence[Block]],
        on_done: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.node_bytes: dict[str, int] = dict.fromkeys(work, 0)
        self.cached_bytes = 0
        self.failures: list[PutFailure] = []
        self.failed = 0
        self.error: EngineError | None = None
        self._engine = engine
        self._work = work
        self._clock = clock
        self._seen: set[int] = set()
        self._task = asyncio.create_task(self._run(), name="load")
        self._task.add_done_callback(lambda task: self._ended(task, on_done))

    @property
    def running(self) -> bool:
        """Whether blocks are still being loaded."""
        return not self._task.done()

    async def cancel(self) -> None:
        """Stop, and wait until it has stopped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None], on_done: Callable[[], None]) -> None:
        if not task.cancelled() and (defect := task.exception()) is not None:
            _log.error("a load ended by a defect of the operator; it is planned anew", exc_info=defect)
            self.failed += 1
        on_done()

    async def _run(self) -> None:
        await asyncio.gather(*(self._feed(worker, blocks) for worker, blocks in self._work.items()))

    async def _feed(self, worker: str, blocks: Sequence[Block]) -> None:
        try:
            for portion in self._portions(blocks):
                self._count(worker, portion, await self._engine.put(worker=worker, blocks=portion))
        except EngineError as error:
            self.error = error
            _log.warning("loading onto %s stopped: %s", worker, error)

    def _portions(self, blocks: Sequence[Block]) -> Iterator[Sequence[Block]]:
        start, size = 0, FIRST_PORTION
        while start < len(blocks):
            end = take(blocks, start=start, size=size)
            began = self._clock()
            yield blocks[start:end]
            size = next_portion(size=size, seconds=self._clock() - began)
            start = end

    def _count(self, worker: str, portion: Sequence[Block], failures: Sequence[PutFailure]) -> None:
        bad = {failure.block_id for failure in failures}
        self.failed += len(bad)
        self.failures += list(failures)[: FAILURES_KEPT - len(self.failures)]
        for block in portion:
            if block.id in bad:
                continue
            self.node_bytes[worker] += block.length
            if not block.workers and block.id not in self._seen:
                self._seen.add(block.id)
                self.cached_bytes += block.length
