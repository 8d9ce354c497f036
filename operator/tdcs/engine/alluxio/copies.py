"""Bringing blocks onto a worker, from the source or from another worker, each by the cheaper way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

import grpc

from tdcs.engine.alluxio.batches import LOADED
from tdcs.engine.alluxio.blocks import Pace
from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.contents import Contents
from tdcs.engine.alluxio.rpc import RpcFailureError
from tdcs.engine.alluxio.sources import plain_reason
from tdcs.engine.alluxio.worker import PRESENT, Worker
from tdcs.engine.protocol import Block, PutFailure, WorkerInfo

STREAMED = 1 << 20
"""Blocks up to this size are read and written by the caller; a worker needs tens of milliseconds to fetch even the
smallest block from another one, but then hundreds of megabytes a second."""

RELAYED = 1 << 20
"""With a limit of bandwidth larger blocks go through the caller, piece by piece, for a worker would read all of one at
once."""

_STREAMS = 16
_FETCHES = 4

_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


Holders = Callable[[list[int]], Awaitable[list[frozenset[str]]]]
"""Which workers hold blocks, as the master knows it."""


class GiverAwayError(Exception):
    """The worker that should give does not answer."""

    def __init__(self, failure: RpcFailureError) -> None:
        super().__init__(failure.text)
        self.failure = failure


class SourceReader:
    """Lets a worker read blocks from their source.

    Args:
        worker: The worker, and `info` where it is.
        holders: As the master knows them.
        pace: Awaited with a number of bytes before they are read; None for no limit.
    """

    def __init__(
        self, *, worker: Worker, info: WorkerInfo, holders: Holders, pace: Pace | None = None
    ) -> None:
        self._pace = pace
        self._worker = worker
        self._info = info
        self._holders = holders

    async def load(self, blocks: Sequence[Block]) -> tuple[list[PutFailure], list[int]]:
        """The failures, and the ids of blocks that the worker says it holds already.

        Raises:
            RpcFailureError: The worker does not answer.
        """
        most = LOADED if self._pace is None else RELAYED
        small = [block for block in blocks if block.length <= most]
        large = [block for block in blocks if block.length > most]
        if self._pace is not None and small:
            await self._pace(sum(block.length for block in small))
        failures, present = await self._worker.load(small) if small else ([], [])
        bring = self._fetch if self._pace is None else self._relay
        outcomes = await bounded(bring, large, limit=_FETCHES)
        return failures + [outcome for outcome in outcomes if outcome is not None], present

    async def _relay(self, block: Block) -> PutFailure | None:
        (held,) = await self._holders([block.id])
        if self._info.name in held:  # a write of a block that is there already makes the master forget it
            return None
        try:
            await self._worker.write(
                block, lambda: self._worker.chunks(block, from_source=True, pace=self._pace), paced=True
            )
        except RpcFailureError as failure:
            if failure.starting:
                raise
            return PutFailure(block_id=block.id, reason=plain_reason(failure.text), retryable=True)
        return None

    async def _fetch(self, block: Block) -> PutFailure | None:
        host, _, port = self._info.address.rpartition(":")
        reason = ""
        try:
            await self._worker.cache_from(block, host=host, port=int(port))
        except RpcFailureError as failure:
            if failure.starting:
                raise
            reason = failure.text
        # The worker answers with success when it could not read the source, too.
        (held,) = await self._holders([block.id])
        if self._info.name in held:
            return None
        reason = reason or await self._reason(block)
        return PutFailure(block_id=block.id, reason=plain_reason(reason), retryable=True)

    async def _reason(self, block: Block) -> str:
        """Why a block cannot be read from its source: the worker says it only to those who ask for the bytes."""
        try:
            async with aclosing(self._worker.chunks(block, from_source=True)) as chunks:
                await anext(chunks, None)
        except RpcFailureError as failure:
            return failure.text
        return "the worker could not keep it; see its log"


class Copier:
    """Copies from one worker to another.

    Args:
        giver: The worker that holds the blocks, and `giver_info` where it is.
        receiver: The worker that shall hold them, and `receiver_name` its name.
        holders: As the master knows them.
        contents: What was read for other receivers a moment ago.
    """

    def __init__(
        self,
        *,
        giver: Worker,
        giver_info: WorkerInfo,
        receiver: Worker,
        receiver_name: str,
        holders: Holders,
        contents: Contents,
    ) -> None:
        self._giver = giver
        self._contents = contents
        self._giver_info = giver_info
        self._receiver = receiver
        self._receiver_name = receiver_name
        self._holders = holders

    async def copy(self, blocks: Sequence[Block]) -> tuple[list[PutFailure], list[int]]:
        """The failures, and the ids of blocks that the receiver says it holds already.

        Raises:
            GiverAwayError: The giver does not answer.
            RpcFailureError: The receiver does not answer.
        """
        # Looked up for all of them: the listing may be old, and a write of a block that is there already makes the
        # master forget it.
        places = dict(zip(blocks, await self._holders([block.id for block in blocks]), strict=True))
        lacking = [block for block in blocks if self._receiver_name not in places[block]]
        failures = [self._absent(block) for block in lacking if self._giver_info.name not in places[block]]
        there = [block for block in lacking if self._giver_info.name in places[block]]
        outcomes = await bounded(
            self._stream, [block for block in there if block.length <= STREAMED], limit=_STREAMS
        )
        outcomes += await bounded(
            self._fetch, [block for block in there if block.length > STREAMED], limit=_FETCHES
        )
        failures += [outcome for outcome in outcomes if isinstance(outcome, PutFailure)]
        return failures, [outcome for outcome in outcomes if isinstance(outcome, int)]

    async def _stream(self, block: Block) -> PutFailure | int | None:
        try:
            content = await self._contents.get(
                block_id=block.id, length=block.length, read=lambda: self._giver.read(block)
            )
        except RpcFailureError as failure:
            if failure.code is grpc.StatusCode.NOT_FOUND:
                return self._absent(block)
            if failure.starting:
                raise GiverAwayError(failure) from failure
            return self._failed(block, failure)
        try:
            await self._receiver.write(block, lambda: _once(content))
        except RpcFailureError as failure:
            return self._refused(block, failure)
        return None

    async def _fetch(self, block: Block) -> PutFailure | int | None:
        host, _, port = self._giver_info.address.rpartition(":")
        try:
            await self._receiver.cache_from(block, host=host, port=int(port))
        except RpcFailureError as failure:
            return self._refused(block, failure)
        return None

    def _absent(self, block: Block) -> PutFailure:
        return PutFailure(
            block_id=block.id, reason=f"worker {self._giver_info.name} does not hold it", retryable=True
        )

    def _refused(self, block: Block, failure: RpcFailureError) -> PutFailure | int:
        if PRESENT in failure.text or failure.code is grpc.StatusCode.ALREADY_EXISTS:
            return block.id
        if failure.starting:
            raise failure
        return self._failed(block, failure)

    def _failed(self, block: Block, failure: RpcFailureError) -> PutFailure:
        return PutFailure(
            block_id=block.id, reason=plain_reason(failure.text), retryable=failure.code in _PASSING
        )


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
