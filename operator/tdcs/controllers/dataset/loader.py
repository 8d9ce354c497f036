"""Loading blocks in the background, in portions small enough that progress can be seen.

A run is memory only: what it has done is seen in the engine's listing, so an operator that is killed in the
middle plans the rest anew and goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tdcs.engine.protocol import Block, Engine, EngineError, PutFailure

_log = logging.getLogger(__name__)

MIB = 1024 * 1024
TARGET_SECONDS = 2.0
"""A portion shall take about this long, so that the status moves."""

LANES = 2
"""Portions of one worker that are under way at a time: while one waits for its last block, the next loads."""

FAILURES_KEPT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """How much is given to a worker at once: at most so many bytes, and so many blocks."""

    size: int
    count: int


FIRST = Portion(size=4 * MIB, count=50)
SMALLEST = Portion(size=MIB, count=10)
LARGEST = Portion(size=256 * MIB, count=1000)


def next_portion(portion: Portion, *, seconds: float) -> Portion:
    """The portion after one that took this long: doubled when it was quick, halved when it was slow."""
    if seconds < TARGET_SECONDS / 2:
        return Portion(size=min(portion.size * 2, LARGEST.size), count=min(portion.count * 2, LARGEST.count))
    if seconds > TARGET_SECONDS * 2:
        return Portion(
            size=max(portion.size // 2, SMALLEST.size), count=max(portion.count // 2, SMALLEST.count)
        )
    return portion


def take(blocks: Sequence[Block], *, start: int, portion: Portion) -> int:
    """The end of a portion that begins at `start`: at least one block."""
    end, total = start, 0
    while end < len(blocks) and end - start < portion.count:
        total += blocks[end].length
        if end > start and total > portion.size:
            break
        end += 1
    return end


class Portions:
    """The blocks of one worker, handed out in portions that adapt to how long they take."""

    def __init__(self, *, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._start = 0
        self._portion = FIRST

    def take(self) -> Sequence[Block]:
        """The next blocks; empty when all were handed out."""
        end = take(self._blocks, start=self._start, portion=self._portion)
        blocks = self._blocks[self._start : end]
        self._start = end
        return blocks

    def took(self, *, seconds: float) -> None:
        """Learn from a portion that is done."""
        self._portion = next_portion(self._portion, seconds=seconds)

    def stop(self) -> None:
        """Hand out nothing more."""
        self._start = len(self._blocks)


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
        portions = Portions(blocks=blocks)
        await asyncio.gather(*(self._lane(worker, portions) for _ in range(LANES)))

    async def _lane(self, worker: str, portions: Portions) -> None:
        while portion := portions.take():
            began = self._clock()
            try:
                failures = await self._engine.put(worker=worker, blocks=portion)
            except EngineError as error:
                self.error = error
                portions.stop()
                _log.warning("loading onto %s stopped: %s", worker, error)
                return
            portions.took(seconds=self._clock() - began)
            self._count(worker, portion, failures)

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
