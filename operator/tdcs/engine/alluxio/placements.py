"""Placing copies on workers, and removing them, without harm: room is set aside first, and what was removed settles
before it comes back.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tdcs.engine.alluxio.batches import batches
from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.master import Master
from tdcs.engine.alluxio.removals import Removals
from tdcs.engine.alluxio.worker import Worker
from tdcs.engine.protocol import Block, CapacityError, NoSuchWorkerError, PutFailure, WorkerInfo

Place = Callable[[WorkerInfo, list[Block]], Awaitable[tuple[list[PutFailure], list[int]]]]
"""Places a batch on a worker: the failures, and the ids of blocks that the worker says it holds already."""

_REMOVALS_AT_ONCE = 32
_REMOVALS_NOTED = 5000
"""So many removals wait for the worker's heartbeat together: a million ids need not be remembered at once."""

_HEARTBEATS = 3.0
"""Seconds within which a live worker has surely told the master what it removed (its heartbeat is 1 s)."""


class Placements:
    """What must be known of all workers together to place and remove copies.

    Args:
        master: Of the cluster.
        client: The worker at an address.
    """

    def __init__(self, *, master: Master, client: Callable[[str], Worker]) -> None:
        self._master = master
        self._client = client
        self._reserved = defaultdict[str, int](int)
        self._removals = Removals(settled_after=_HEARTBEATS)

    async def place(
        self,
        *,
        worker: str,
        blocks: Sequence[Block],
        attempted: str,
        place: Place,
        at_once: int,
    ) -> list[PutFailure]:
        """Place the blocks that the worker lacks, in batches of which `at_once` travel at a time.

        Raises:
            CapacityError: They do not fit. Nothing was placed then.
        """
        info = await self.live(worker, attempted=attempted)
        missing = list({block.id: block for block in blocks if worker not in block.workers}.values())
        await self._removals.settle(worker=worker, block_ids=[block.id for block in missing])
        missing = await self._reserve(worker=worker, blocks=missing, attempted=attempted)
        unfinished = sum(block.length for block in missing)
        try:
            client = self._client(info.address)

            async def one(batch: list[Block]) -> list[PutFailure]:
                nonlocal unfinished
                failures, present = await place(info, batch)
                failures += await self._disown(worker=worker, client=client, block_ids=present)
                done = sum(block.length for block in batch)
                unfinished -= done
                self._reserved[worker] -= done
                return failures

            results = await bounded(one, batches(missing), limit=at_once)
        finally:
            self._reserved[worker] -= unfinished
        return [failure for failures in results for failure in failures]

    async def drop(self, *, worker: str, ids: array[int], attempted: str) -> list[PutFailure]:
        """Remove copies from a worker, and wait until the master knows."""
        failures: list[PutFailure] = []
        for begin in range(0, len(ids), _REMOVALS_NOTED):
            some = ids[begin : begin + _REMOVALS_NOTED].tolist()
            client = self._client((await self.live(worker, attempted=attempted)).address)
            results = await bounded(client.remove, some, limit=_REMOVALS_AT_ONCE)
            self._removals.note(worker=worker, block_ids=some)
            failures += [failure for failure in results if failure is not None]
            failed = {failure.block_id for failure in failures}
            await self._forgotten(
                worker=worker, block_ids=[block_id for block_id in some if block_id not in failed]
            )
        return failures

    async def live(self, name: str, *, attempted: str) -> WorkerInfo:
        """A worker that is there.

        Raises:
            NoSuchWorkerError: It is not.
        """
        known = {worker.name: worker for worker in await self._master.workers()}
        found = known.get(name)
        if found is not None and found.live:
            return found
        raise NoSuchWorkerError(
            attempted=attempted,
            reason="it is lost" if found else f"the workers are: {', '.join(sorted(known)) or 'none'}",
            remedy="Wait for the worker's pod to be ready, or choose another node",
            worker=name,
            retryable=True,
        )

    async def any_live(self, *, attempted: str) -> str:
        """The live worker that holds least: it is the least busy one, as far as anybody knows."""
        live = [worker for worker in await self._master.workers() if worker.live]
        if live:
            return min(live, key=lambda worker: (worker.used_bytes, worker.name)).name
        return (await self.live("any", attempted=attempted)).name

    async def locations(self, block_ids: Iterable[int]) -> list[frozenset[str]]:
        """The workers that hold each block, as the master knows it."""
        return await bounded(
            lambda block_id: self._master.locations(block_id=block_id), block_ids, limit=_REMOVALS_AT_ONCE
        )

    async def _reserve(self, *, worker: str, blocks: list[Block], attempted: str) -> list[Block]:
        """Set room aside for blocks; those of them that the worker lacks.

        Alluxio would make room by evicting, and for a block that cannot fit first evicts everything and then fails.
        """
        checked = False
        while True:
            info = await self.live(worker, attempted=attempted)
            needed = sum(block.length for block in blocks)
            free = info.capacity_bytes - info.used_bytes - self._reserved[worker]
            if needed <= free:
                self._reserved[worker] += needed
                return blocks
            if not checked:  # the blocks may have been loaded since the caller's listing
                checked = True
                places = await self.locations(block.id for block in blocks)
                blocks = [block for block, held in zip(blocks, places, strict=True) if worker not in held]
            elif self._reserved[worker] or self._removals.pending(worker=worker):
                # What others are placing counts twice once it is there, until their batch has ended; and what was
                # removed counts until the worker's next heartbeat.
                await asyncio.sleep(0.2)
            else:
                raise CapacityError(
                    attempted=attempted,
                    reason=(
                        f"they take {needed} bytes, and {max(free, 0)} of its {info.capacity_bytes} bytes are free"
                    ),
                    remedy="Give the cache more capacity or workers, or let the dataset take less of it",
                    worker=worker,
                    retryable=True,
                )

    async def _disown(self, *, worker: str, client: Worker, block_ids: list[int]) -> list[PutFailure]:
        """Of blocks that the worker says it holds already, remove those that the master does not know of.

        Such a copy is never read, and would make each later load "succeed".
        """
        places = await self.locations(block_ids)
        unknown = [block_id for block_id, held in zip(block_ids, places, strict=True) if worker not in held]
        for block_id in unknown:
            await client.remove(block_id)
        self._removals.note(worker=worker, block_ids=unknown)
        reason = "the worker held a copy that the master does not know; it was removed"
        return [PutFailure(block_id=block_id, reason=reason, retryable=True) for block_id in unknown]

    async def _forgotten(self, *, worker: str, block_ids: list[int]) -> None:
        """Wait until the master knows of the removals.

        A block that is loaded again earlier loses its new location for good with the worker's next heartbeat.
        A heartbeat carries all removals so far, so the last ones stand for all.
        """
        deadline = time.monotonic() + _HEARTBEATS
        for block_id in block_ids[-_REMOVALS_AT_ONCE:]:
            while worker in await self._master.locations(block_id=block_id):
                if time.monotonic() > deadline:
                    return  # the next listing shows what is left
                await asyncio.sleep(0.1)
