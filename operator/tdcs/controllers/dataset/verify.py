"""Comparing what is cached with its source, byte for byte by hash.

That a block is where it should be is seen in a listing; that it is *what* it should be is seen here only: a cache does
not check what it was given, and a file that was replaced by one of the same length looks the same in a listing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tdcs.controllers.dataset.tally import FAILURES_KEPT, FileFailure
from tdcs.controllers.dataset.throttle import Throttle
from tdcs.engine.protocol import Engine, EngineError
from tdcs.engine.table import BlockTable
from tdcs.policy.preload import Subset, choose_files

_log = logging.getLogger(__name__)

LANES = 4
"""Blocks that are compared at a time."""

FRUITLESS = 20
"""After so many blocks in a row that could not be read, the rest is not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProgress:
    """A moment of a comparison.

    Attributes:
        blocks_total: blocks to compare, each with all of its copies.
        blocks_done: blocks compared.
        bytes_done: bytes of copies that were compared.
        failed_files: files of which a copy differs, or could not be read.
        failures: the first few of them.
        wrong: copies that differ from the source, by worker: to be dropped and loaded again.
    """

    blocks_total: int
    blocks_done: int
    bytes_done: int
    failed_files: int = 0
    failures: tuple[FileFailure, ...] = ()
    wrong: dict[str, tuple[int, ...]] = field(default_factory=dict)


class VerifyRun:
    """One comparison: begins at once, goes on in the background, and calls `on_done` however it ends.

    Args:
        engine: the cache.
        table: a listing; what it says to be cached is compared.
        on_done: called once.
        fraction: of the cached files, by bytes; 1 for all. Which ones depends on `seed`.
        only: one byte a file of the table, 1 for those that are meant; None for all.
        seed: another one samples other files.
        bandwidth: bytes a second that are read from the source at most; None for no limit.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        table: BlockTable,
        on_done: Callable[[], None],
        fraction: float = 1.0,
        only: bytearray | None = None,
        seed: str = "",
        bandwidth: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._table = table
        self._throttle = Throttle(rate=bandwidth, clock=clock)
        chosen = choose_files(files=_cached(table, only), subset=Subset(fraction=fraction), seed=seed).flags
        self._chosen = chosen if only is None else bytearray(a & b for a, b in zip(chosen, only, strict=True))
        self._total = sum(1 for _ in self._blocks())
        self._done = self._bytes = self._fruitless = 0
        self._failed: set[int] = set()
        self._failures: list[FileFailure] = []
        self._wrong: dict[str, list[int]] = {}
        self._error: EngineError | None = None
        self._task = asyncio.create_task(self._run(), name="verify")
        self._task.add_done_callback(lambda task: self._ended(task, on_done))

    @property
    def running(self) -> bool:
        """Whether blocks are still being compared."""
        return not self._task.done()

    @property
    def error(self) -> EngineError | None:
        """Why it ended before everything was compared; None when nothing hindered it."""
        return self._error

    @property
    def progress(self) -> VerifyProgress:
        """How far it is: at this moment, or at its end."""
        return VerifyProgress(
            blocks_total=self._total,
            blocks_done=self._done,
            bytes_done=self._bytes,
            failed_files=len(self._failed),
            failures=tuple(self._failures),
            wrong={worker: tuple(blocks) for worker, blocks in self._wrong.items()},
        )

    async def cancel(self) -> None:
        """Stop, and wait until it has stopped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self) -> VerifyProgress:
        """Wait until it has ended, however that was."""
        await asyncio.wait({self._task})
        return self.progress

    def _ended(self, task: asyncio.Task[None], on_done: Callable[[], None]) -> None:
        if not task.cancelled() and (defect := task.exception()) is not None:
            _log.error("a comparison with the source ended by a defect of the operator", exc_info=defect)
            self._error = EngineError(
                attempted="compare cached blocks with their source",
                reason=f"a defect of the operator ({type(defect).__name__})",
                remedy="See the operator's log",
            )
        on_done()

    def _blocks(self) -> Iterator[int]:
        table = self._table
        for file in range(table.files):
            if self._chosen[file]:
                yield from (block for block in table.blocks_of(file) if table.holders(block))

    async def _run(self) -> None:
        blocks = self._blocks()
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._lane(blocks))

    async def _lane(self, blocks: Iterator[int]) -> None:
        for block in blocks:
            if self._error is not None:
                return
            await self._compare(block)

    async def _compare(self, number: int) -> None:
        block = self._table.block(number)
        await self._throttle.take(block.length)
        try:
            wanted = await self._engine.digest(block=block)
            for worker in sorted(block.workers):
                if await self._engine.digest(block=block, worker=worker) != wanted:
                    self._wrong.setdefault(worker, []).append(block.id)
                    self._fail(number, f"the copy on {worker} differs from the source", retryable=False)
                self._bytes += block.length
        except EngineError as error:
            self._fruitless += 1
            self._fail(number, f"could not be compared: {error.reason}", retryable=error.retryable)
            if self._fruitless >= FRUITLESS:
                self._error = error
            return
        self._fruitless = 0
        self._done += 1

    def _fail(self, block: int, reason: str, *, retryable: bool) -> None:
        file = self._table.file_of(block)
        if file in self._failed:
            return
        self._failed.add(file)
        if len(self._failures) < FAILURES_KEPT:
            path = self._table.path(file)
            self._failures.append(FileFailure(path=path, reason=reason, retryable=retryable))


def _cached(table: BlockTable, only: bytearray | None) -> Iterator[tuple[str, int]]:
    """Files with the size of what is cached of them: the others do not count."""
    for file in range(table.files):
        blocks = table.blocks_of(file) if only is None or only[file] else range(0)
        yield table.path(file), sum(table.length(block) for block in blocks if table.holders(block))
