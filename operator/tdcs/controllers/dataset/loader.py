"""Loading blocks in the background: what a Dataset's and a Preload's controller start, watch and stop.

A run is memory only: what it has done is seen in the engine's listing, so an operator that is killed in the
middle plans the rest anew and goes on. For the same reason suspending a load is cancelling it, and resuming is
planning anew; and a load is *complete* only when a new listing shows every copy in its place.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping

from tdcs.controllers.dataset.rounds import Round, gently
from tdcs.controllers.dataset.tally import FileFailure, LoadProgress, Tally
from tdcs.controllers.dataset.throttle import Throttle
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.protocol import Engine, EngineError

_log = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often a block is tried within a run, when trying again can help."""

PROGRESS_SECONDS = 1.0
"""`on_progress` is called about so often."""

__all__ = ["FileFailure", "LoadProgress", "LoadRun"]


class LoadRun:
    """One load: begins at once, goes on in the background, and calls `on_done` however it ends.

    Each block is read from the source once, by one of the nodes that want it, and travels between nodes from
    there (or from nodes that hold it already), while the next ones are being read. What cannot be placed is tried
    again a few times; then it is counted with its file and its reason, and the rest goes on.

    Args:
        engine: the cache.
        work: the copies to make (`LoadPlan.work`).
        on_done: called once, after the last placement, a failure or `cancel`.
        clock: seconds that only grow.
        bandwidth: bytes a second that are taken from the source at most, by all nodes together; None for no
            limit. What travels between nodes is not limited.
        on_progress: called about once a second while something moves.
        retry_wait: seconds before the second try of a block; later tries wait longer.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        work: LoadWork,
        on_done: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        bandwidth: int | None = None,
        on_progress: Callable[[LoadProgress], None] | None = None,
        retry_wait: float = 1.0,
    ) -> None:
        self._engine = engine
        self._work = work
        self._clock = clock
        self._on_progress = on_progress
        self._retry_wait = retry_wait
        self._throttle = Throttle(rate=bandwidth, clock=clock)
        self._tally = Tally(work=work, clock=clock)
        self._round: Round | None = None
        self._finishing = self._defect = self._outdated = False
        self._error: EngineError | None = None
        self._task = asyncio.create_task(self._run(), name="load")
        self._task.add_done_callback(lambda task: self._ended(task, on_done))

    @property
    def running(self) -> bool:
        """Whether blocks are still being loaded."""
        return not self._task.done()

    @property
    def progress(self) -> LoadProgress:
        """How far it is: at this moment, or at its end."""
        return self._tally.progress()

    @property
    def error(self) -> EngineError | None:
        """What kept a worker, or all of them, from being loaded further; None when nothing did."""
        return self._error

    @property
    def incomplete(self) -> bool:
        """Whether it is known to have left something out, apart from being cancelled."""
        return self._defect or self._error is not None or self.progress.failed_files > 0

    @property
    def outdated(self) -> bool:
        """Whether files have changed at the source since they were listed, or may have: what was on its way when it was
        cancelled stays, and nobody has compared it."""
        return self._outdated

    @property
    def node_bytes(self) -> Mapping[str, int]:
        """Bytes placed so far, by node."""
        return self._tally.node_bytes

    def set_bandwidth(self, bandwidth: int | None) -> None:
        """Another limit of what is taken from the source, from now on.

        Raises:
            ValueError: It is not positive.
        """
        self._throttle.set_rate(bandwidth)

    @property
    def bandwidth(self) -> int | None:
        """Bytes a second that are taken from the source at most; None for no limit."""
        return self._throttle.rate

    @property
    def moving(self) -> Mapping[str, int]:
        """Bytes on their way, by node."""
        return self._tally.taken

    def finish(self) -> None:
        """Begin nothing more; what is on its way still arrives, and then it ends."""
        self._finishing = True
        if self._round is not None:
            self._round.finish()

    @property
    def finishing(self) -> bool:
        """Whether it was told to end early."""
        return self._finishing

    async def cancel(self) -> None:
        """Stop, and wait until it has stopped. What was placed stays."""
        self._outdated = self._outdated or (self.running and any(self.moving.values()))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self) -> LoadProgress:
        """Wait until it has ended, however that was."""
        await asyncio.wait({self._task})
        return self.progress

    def _ended(self, task: asyncio.Task[None], on_done: Callable[[], None]) -> None:
        self._tally.ended()
        if not task.cancelled() and (defect := task.exception()) is not None:
            _log.error("a load ended by a defect of the operator; it is planned anew", exc_info=defect)
            self._defect = True
        on_done()

    async def _run(self) -> None:
        telling = asyncio.create_task(self._tell())
        try:
            await self._load()
        finally:
            telling.cancel()
            if self._on_progress is not None:
                self._on_progress(self.progress)

    async def _load(self) -> None:
        async for block, nodes in gently(self._work):
            self._tally.expect(block=block, copies=len(nodes))
        shared, direct = self._work, LoadWork(table=self._work.table)
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._retry_wait * attempt * random.uniform(1, 2))  # noqa: S311  # no secret
            try:
                live = {worker.name for worker in await self._engine.workers() if worker.live}
            except EngineError as error:
                self._error = error
                return
            one = Round(
                engine=self._engine,
                table=self._work.table,
                tally=self._tally,
                throttle=self._throttle,
                clock=self._clock,
                last=attempt == ATTEMPTS - 1,
            )
            self._round = one
            if self._finishing:
                return
            await one.run(shared=shared, direct=direct, live=live)
            self._error = one.error or self._error
            self._outdated = self._outdated or one.outdated
            shared, direct = one.again, one.again_direct
            if one.given_up or not (shared or direct):
                return

    async def _tell(self) -> None:
        done = -1
        while self._on_progress is not None:
            await asyncio.sleep(PROGRESS_SECONDS)
            progress = self.progress
            if progress.bytes_done + progress.bytes_moving != done:
                done = progress.bytes_done + progress.bytes_moving
                self._on_progress(progress)
