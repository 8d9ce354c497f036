"""Makes spooled blocks known to the worker, and removes blocks from it.

Registration costs ten times what bringing a block costs, and holds up no reader: a block in the spool is readable.
While blocks are being brought few are registered at the same time, so that the processors work for the former.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

import grpc
import numpy as np

from tdcs.alluxio.rpc import RpcFailureError
from tdcs.alluxio.worker_blocks import (
    OpenBlockError,
    PresentBlockError,
    UnknownBlockError,
    WorkerBlocks,
)
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.block_rows import Numbers
from tdcs.node.agent.mount.mount_blocks import MountBlocks

_log: Final = logging.getLogger(__name__)

LANES: Final = 16

BUSY_LANES: Final = 2
"""Blocks of all mounts that are registered at the same time, at rest and while blocks are being brought."""

IDLE_ENOUGH: Final = 0.3

_MOST_WAIT_SECONDS: Final = 30.0

_MOST_PAUSE: Final = 30.0

_OPEN_PAUSE: Final = 5.0

_FORGOTTEN_SECONDS: Final = 600.0
"""A block that was not tried again for so long after its pause may be gone: its refusals are forgotten."""


SETTLED_SECONDS = 3.0
"""Heartbeats of a worker come every second: by then the master has heard of a removal."""


class Removals:
    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: dict[int, float] = {}  # the oldest first

    def note(self, block_id: int) -> None:
        self._at.pop(block_id, None)
        self._at[block_id] = self._clock()

    def recent(self) -> list[int]:
        settled = self._clock() - SETTLED_SECONDS
        for block_id, at in list(self._at.items()):
            if at > settled:
                break
            del self._at[block_id]
        return list(self._at)


def lanes_now(*, bringing: bool, idle: float, waited: float) -> int:
    """How many blocks may be registered at the same time.

    Args:
        bringing: whether blocks are being brought.
        idle: processors that have nothing to do.
        waited: seconds since something was registered.
    """
    if not bringing:
        return LANES
    if idle >= IDLE_ENOUGH:
        return BUSY_LANES
    return 1 if waited > _MOST_WAIT_SECONDS else 0


class Registrar:
    """Works on one worker's blocks. All in one event loop.

    Args:
        worker: None: there is none, and nobody but this agent knows of the blocks.
    """

    def __init__(
        self,
        *,
        worker: WorkerBlocks | None,
        disk: Disk,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker: Final = worker
        self._disk: Final = disk
        self._clock: Final = clock
        self._removals: Final = Removals(clock=clock)
        self._dropping: Final = asyncio.Semaphore(LANES)
        self._failures = 0
        self._until = 0.0
        self._refused: dict[int, tuple[int, float]] = {}
        self.confirmed = True
        """Whether ids of blocks are those of the master's journal, as far as that is asked (`JournalWatch`)."""
        self.registered = 0
        self.registered_at = clock()
        self.removed = 0

    @property
    def resting(self) -> bool:
        """Whether the worker is given time, because it did not answer."""
        return self._clock() < self._until

    async def register(
        self, mount: MountBlocks, *, most: int, lanes: int, leaves: Callable[[], bool] = lambda: False
    ) -> int:
        """Register up to `most` spooled blocks of a mount; how many were tried.

        Args:
            mount: that the blocks belong to.
            most: blocks.
            lanes: blocks at the same time.
            leaves: each lane asks it before its next block, and ends if it gives True.
        """
        ledger, worker = mount.ledger, self._worker
        if worker is None or ledger is None or mount.forgotten or self.resting or not self.confirmed:
            return 0
        skip = self._resting_blocks(ledger)
        with mount.lock:
            blocks = ledger.to_register(most=most, skip=skip)
        return await self._each(
            mount, ledger, blocks, lanes, lambda block: self._register(mount, ledger, block, worker), leaves
        )

    async def drop(self, mount: MountBlocks, *, most: int) -> int:
        """Drop up to `most` blocks of a mount that shall not lie here; how many were tried."""
        ledger = mount.ledger
        if ledger is None:
            return 0
        skip = self._resting_blocks(ledger)
        blocks = mount.to_drop(most=most, skip=skip, spooled_only=self.resting)

        async def drop(block: int) -> None:
            async with self._dropping:
                await self._drop(mount, ledger, block)

        return await self._each(mount, ledger, blocks, LANES, drop)

    async def drop_blocks(self, mount: MountBlocks, ledger: Ledger, blocks: list[int]) -> set[int]:
        """Drop these blocks, as far as that is possible now; those that were dropped."""
        removed: set[int] = set()

        async def drop(block: int) -> None:
            if await self._drop(mount, ledger, block):
                removed.add(block)

        with mount.lock:
            claimed = ledger.claim(blocks)
        await self._each(mount, ledger, claimed, LANES, drop)
        return removed

    async def remove_registered(self, identity: int) -> bool:
        """Remove the worker's file of an id, which is of no ledger, whatever the spool has under it; whether it is
        gone."""
        try:
            await self._remove_registered(identity)
        except (OpenBlockError, RpcFailureError, _WorkerAwayError) as error:
            self._note(error)
            return False
        return True

    async def _each(
        self,
        mount: MountBlocks,
        ledger: Ledger,
        blocks: list[int],
        lanes: int,
        action: Callable[[int], Awaitable[object]],
        leaves: Callable[[], bool] = lambda: False,
    ) -> int:
        """Do something with each of these claimed blocks, unless all lanes end before; with how many it was tried."""
        waiting = list(reversed(blocks))
        refused: list[OSError] = []

        async def lane() -> None:
            while waiting:
                block = waiting.pop()
                try:
                    await action(block)
                except BaseException as error:
                    with mount.lock:
                        ledger.release([block])
                    if isinstance(error, OSError):
                        self._refuse(int(ledger.manifest.block_ids[block]))
                        refused.append(error)
                    elif not isinstance(error, _WorkerAwayError):
                        raise
                if waiting and leaves():
                    break

        try:
            async with asyncio.TaskGroup() as running:  # an error in one of them ends the others
                for _ in range(min(lanes, len(blocks))):
                    running.create_task(lane())
        finally:
            with mount.lock:
                ledger.release(waiting)
        if refused:
            _log.warning(
                "the disk refuses %d blocks of %s, which are tried again: %s",
                len(refused),
                mount.path,
                refused[0],
            )
        return len(blocks) - len(waiting)

    async def _register(self, mount: MountBlocks, ledger: Ledger, block: int, worker: WorkerBlocks) -> None:
        identity = int(ledger.manifest.block_ids[block])
        length = int(ledger.manifest.block_lengths[block])
        if self.resting or not self.confirmed:
            raise _WorkerAwayError
        try:
            size = self._disk.size(identity)
            if size != length:
                if size:
                    ledger.warn_of_cut_off(mount.path, [block])  # seen here before `BlockLengths` came to it
                self._disk.unspool(identity)
                mount.located(ledger, block, spooled=False, registered=False)
                return
            await worker.create(
                block_id=identity,
                length=length,
                place=lambda path: self._disk.lend(identity, worker_file=path),
            )
        except PresentBlockError:
            await self._present(mount, ledger, block, identity)
            return
        except FileNotFoundError:  # somebody removed it, or the worker has restarted: the next look says
            self._refuse(identity)
            with mount.lock:
                ledger.release([block])
            return
        except RpcFailureError as failure:
            self._note(failure)
            self._refuse(identity)
            raise _WorkerAwayError from failure
        self._failures = 0
        self._refused.pop(identity, None)
        self.registered += 1
        self.registered_at = self._clock()
        self._disk.unspool(identity)
        mount.located(ledger, block, spooled=False, registered=True)

    async def _present(self, mount: MountBlocks, ledger: Ledger, block: int, identity: int) -> None:
        """The worker says that it has the block. When its file is gone it only believes so, and when it is another one
        than the spool's it has something else under this id."""
        if self._disk.registered(identity) and not self._disk.differs(identity):
            self._disk.unspool(identity)
            mount.located(ledger, block, spooled=False, registered=True)
            return
        try:
            await self._remove_registered(identity)
        except (OpenBlockError, RpcFailureError) as error:
            self._note(error)
        self._refuse(identity, first=SETTLED_SECONDS)
        with mount.lock:
            ledger.release([block])

    async def _drop(self, mount: MountBlocks, ledger: Ledger, block: int) -> bool:
        identity = int(ledger.manifest.block_ids[block])
        try:
            await self._remove(identity)
        except OpenBlockError:
            self._refused[identity] = (1, self._clock() + _OPEN_PAUSE)
            with mount.lock:
                ledger.release([block])
            return False
        except RpcFailureError as failure:
            self._note(failure)
            raise _WorkerAwayError from failure
        self._failures = 0
        self._refused.pop(identity, None)
        self.removed += 1
        mount.located(ledger, block, spooled=False, registered=False)
        return True

    async def _remove(self, identity: int) -> None:
        if self._disk.registered(identity):
            await self._remove_registered(identity)
        self._disk.unspool(identity)

    async def _remove_registered(self, identity: int) -> None:
        if self._worker is None:  # what an engine that had one has left
            self._disk.remove_registered(identity)
            return
        if self.resting:
            raise _WorkerAwayError
        try:
            await self._worker.remove(identity)
        except UnknownBlockError:
            self._disk.remove_registered(identity)
        self._removals.note(identity)

    def _resting_blocks(self, ledger: Ledger) -> Numbers:
        now = self._clock()
        for identity in [
            one for one, (_, until) in self._refused.items() if now > until + _FORGOTTEN_SECONDS
        ]:
            del self._refused[identity]
        ids = [identity for identity, (_, until) in self._refused.items() if now < until]
        ids += self._removals.recent()
        numbers = ledger.manifest.blocks_at(np.array(ids, dtype=np.int64))
        return np.asarray(numbers[numbers >= 0])

    def _refuse(self, identity: int, *, first: float = 1.0) -> None:
        failures = self._refused.get(identity, (0, 0.0))[0] + 1
        self._refused[identity] = (failures, self._clock() + max(first, pause(failures)))

    def _note(self, error: Exception) -> None:
        """The worker gets time when it is away, or full; an error of one block costs that block alone."""
        if isinstance(error, RpcFailureError) and (
            error.starting
            or error.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        ):
            if not self.resting:
                self._failures += 1
                _log.info("the worker does not take blocks for now: %s", error.code.name)
            self._until = self._clock() + pause(self._failures, most=_MOST_PAUSE)


class _WorkerAwayError(Exception):
    """The worker does not answer: the rest waits."""


class RegistrationLanes:
    """The lanes of all mounts. All in one event loop."""

    def __init__(self) -> None:
        self._allowed = 0
        self._lanes: Final[dict[str, int]] = {}
        self._resting: Final[set[str]] = set()
        """Mounts that got their lanes while no blocks were brought."""

    @property
    def free(self) -> int:
        """Lanes that may begin; below 0 when there are more than are allowed now."""
        return self._allowed - sum(self._lanes.values())

    def allow(self, lanes: int) -> None:
        self._allowed = lanes

    def begin(self, mount: str, *, lanes: int) -> None:
        """A mount begins a batch of blocks on so many lanes."""
        self._lanes[mount] = lanes
        if self._allowed > BUSY_LANES:
            self._resting.add(mount)

    def leaves(self, mount: str) -> bool:
        """Whether one lane of a mount ends before its batch: blocks are brought since it began, and fewer are allowed.

        The few lanes that began while blocks were brought end with their batches, which are short.
        """
        if mount not in self._resting or self.free >= 0:
            return False
        self._lanes[mount] -= 1
        return True

    def end(self, mount: str) -> None:
        self._lanes.pop(mount, None)
        self._resting.discard(mount)
