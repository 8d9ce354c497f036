"""One pass of a load over its blocks: reads from the source, and copies between nodes that follow on their heels."""

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from tdcs.controllers.dataset.portions import Portions
from tdcs.controllers.dataset.routes import Route, routes
from tdcs.controllers.dataset.tally import Tally
from tdcs.controllers.dataset.throttle import Throttle
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.protocol import Block, Engine, EngineError, PutFailure
from tdcs.engine.table import BlockTable

T = TypeVar("T")
Pace = Callable[[int], Awaitable[None]]

_log = logging.getLogger(__name__)

READ_LANES = 2
"""Portions that one worker reads at a time: while one waits for its last block, the next loads."""

COPY_LANES = 2
"""Portions that travel at a time from one worker to one other."""

PAUSE_AFTER = 250
"""Blocks that are counted in a stretch; a few milliseconds."""

FRUITLESS = 6
"""After so many portions in a row of which nothing came, the source is taken to be away."""


async def gently(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a pause for other tasks after every few: a million of them take seconds."""
    for number, item in enumerate(items):
        if number % PAUSE_AFTER == 0:
            await asyncio.sleep(0)
        yield item


class Round:
    """Carries out routes, and sorts what failed into what may be tried again and what not.

    Attributes:
        again: what to try again in the next round.
        again_direct: the same, of blocks that could not be copied between nodes: to be read from the source.
        error: what kept a worker, or all of them, from going on.
        given_up: whether nothing more shall be tried.
        outdated: whether files have changed at the source since they were listed.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        table: BlockTable,
        tally: Tally,
        throttle: Throttle,
        clock: Callable[[], float],
        last: bool,
    ) -> None:
        self.again = LoadWork(table=table)
        self.again_direct = LoadWork(table=table)
        self.error: EngineError | None = None
        self.given_up = False
        self.outdated = False
        self._engine = engine
        self._table = table
        self._tally = tally
        self._throttle = throttle
        self._clock = clock
        self._last = last
        self._reads: dict[str, Portions] = {}
        self._copies: dict[tuple[str, str], Portions] = {}
        self._groups: dict[tuple[str, ...], int] = {(): 0}
        self._group_list: list[tuple[str, ...]] = [()]
        self._receivers = array("I")
        self._stopped: set[str] = set()
        self._news = asyncio.Event()
        self._reading = True
        self._finishing = False
        self._fruitless = 0
        self._turn = asyncio.Lock()

    def finish(self) -> None:
        """Begin nothing more; what is on its way still arrives."""
        self.given_up = self._finishing = True
        self._news.set()

    async def run(self, *, shared: LoadWork, direct: LoadWork, live: Collection[str]) -> None:
        """Do all of it. `shared` is read from the source once, `direct` by every node of it."""
        self._receivers = array("I", bytes(4 * len(self._table)))
        async for route in gently(routes(table=self._table, wanted=shared, live=live)):
            self._enter(route)
        async for block, nodes in gently(direct):
            for node in nodes:
                self._enter(Route(block=block, origin=node, from_source=True))
        self._group_list = list(self._groups)
        async with asyncio.TaskGroup() as group:
            for giver, receiver in self._copies:
                for _ in range(COPY_LANES):
                    group.create_task(self._copy_lane(giver, receiver))
            await self._read_all()
            self._reading = False
            self._news.set()

    def _enter(self, route: Route) -> None:
        length = self._table.length
        if route.from_source:
            self._reads.setdefault(route.origin, Portions(length=length)).add(route.block)
            number = self._groups.setdefault(route.receivers, len(self._groups))
            if route.receivers:
                self._receivers[route.block] = number
        for receiver in route.receivers:
            queue = self._copies.setdefault((route.origin, receiver), Portions(length=length))
            if not route.from_source:
                queue.add(route.block)

    async def _read_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for node in self._reads:
                for _ in range(READ_LANES):
                    group.create_task(self._read_lane(node))

    async def _read_lane(self, node: str) -> None:
        portions = self._reads[node]
        rate = self._throttle
        while not self._finishing and (
            blocks := portions.take(most=rate.rate // READ_LANES if rate.rate is not None else None)
        ):
            pace = rate.take if rate.rate is not None else None
            try:
                placed, changed = await self._carry(blocks, node, portions, partial(self._read, node, pace))
            except EngineError as error:
                self._stop(node, error)
                for block in [*blocks, *portions.drain()]:
                    self.again.add(block=block, nodes=self._others(block))
                return
            for block in placed:
                for receiver in self._others(block):
                    self._copies[node, receiver].add(block)
            self._news.set()
            # What has changed was read all the same.
            self._judge(blocks=blocks, fruitful=bool(placed) or changed, node=node)

    async def _read(self, node: str, pace: Pace | None, blocks: Sequence[Block]) -> list[PutFailure]:
        if pace is None:
            return await self._engine.put(worker=node, blocks=blocks)
        asked, total = 0, sum(block.length for block in blocks)

        async def counted(size: int) -> None:
            nonlocal asked
            await pace(size)
            size = min(size, total - asked)
            asked += size
            self._tally.paced(size)

        try:
            return await self._engine.put(worker=node, blocks=blocks, pace=counted)
        finally:
            self._tally.paced(-asked)

    async def _copy_lane(self, giver: str, receiver: str) -> None:
        portions = self._copies[giver, receiver]
        while receiver not in self._stopped and not self._finishing:
            blocks = portions.take()
            if not blocks:
                if not self._reading:
                    return
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._carry(
                    blocks,
                    receiver,
                    portions,
                    lambda some: self._engine.copy(source=giver, worker=receiver, blocks=some),
                    direct=True,
                )
            except EngineError as error:
                if error.worker != giver:
                    self._stop(receiver, error)
                    return
                _log.warning("copying from %s to %s stopped: %s", giver, receiver, error)
                for block in [*blocks, *portions.drain()]:
                    self.again_direct.add(block=block, nodes=(receiver,))

    async def _carry(
        self,
        blocks: list[int],
        node: str,
        portions: Portions,
        call: Callable[[Sequence[Block]], Awaitable[list[PutFailure]]],
        *,
        direct: bool = False,
    ) -> tuple[list[int], bool]:
        """Place a portion on a node; those of its blocks that lie there now, and whether others have changed."""
        began = self._clock()
        some: list[Block] = []
        size = sum(map(self._table.length, blocks))
        self._tally.begun(node=node, size=size)
        try:
            for begin in range(0, len(blocks), PAUSE_AFTER):
                some += self._table.blocks(blocks[begin : begin + PAUSE_AFTER])
                await self._pause()
            failures = {failure.block_id: failure for failure in await call(some)}
        finally:
            self._tally.begun(node=node, size=-size)
        portions.took(seconds=self._clock() - began)
        placed, changed = [], False
        for count, (number, block) in enumerate(zip(blocks, some, strict=True), 1):
            if count % PAUSE_AFTER == 0:
                await self._pause()
            failure = failures.get(block.id)
            if failure is None:
                self._tally.placed(block=number, node=node, copied=direct)
                placed.append(number)
            elif failure.outdated:
                self.outdated = changed = True
                self._tally.failed(block=number, reason=failure.reason, retryable=True)
            elif direct and not self._last:
                self.again_direct.add(block=number, nodes=(node,))
            elif failure.retryable and not self._last:
                self.again.add(block=number, nodes=(node, *self._others(number)))
            else:
                self._tally.failed(block=number, reason=failure.reason, retryable=failure.retryable)
        if failures:
            first = next(iter(failures.values()))
            _log.info(
                "%d of %d blocks were not placed on %s: %s", len(failures), len(blocks), node, first.reason
            )
        return placed, changed

    async def _pause(self) -> None:
        """Let others go on; of all lanes one at a time, for together their stretches would be one long one."""
        async with self._turn:
            await asyncio.sleep(0)

    def _others(self, block: int) -> tuple[str, ...]:
        return self._group_list[self._receivers[block]]

    def _stop(self, node: str, error: EngineError) -> None:
        """Nothing more onto this node; the others go on."""
        self.error = error
        self._stopped.add(node)
        self._news.set()
        _log.warning("loading onto %s stopped: %s", node, error)

    def _judge(self, *, blocks: list[int], fruitful: bool, node: str) -> None:
        """Give up when the source seems to be away: every single block would else wait for its own time-out."""
        self._fruitless = 0 if fruitful else self._fruitless + 1
        if self._fruitless < FRUITLESS or self.given_up:
            return
        self.given_up = True
        self.error = EngineError(
            attempted=f"load {self._table.path(self._table.file_of(blocks[0]))} onto worker {node}",
            reason=f"of the last {FRUITLESS} portions not one block could be read from the source",
            remedy="Check that the source answers the cache's nodes; loading is tried again by itself",
            worker=node,
            retryable=True,
        )
        for portions in self._reads.values():
            portions.drain()
