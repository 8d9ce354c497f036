"""Copying blocks from one worker to another, each by the cheaper way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import grpc

from tdcs.engine.alluxio.concurrency import bounded
from tdcs.engine.alluxio.rpc import RpcFailureError
from tdcs.engine.alluxio.sources import plain_reason
from tdcs.engine.alluxio.worker import PRESENT, Worker
from tdcs.engine.protocol import Block, PutFailure, WorkerInfo

STREAMED = 1 << 20
"""Blocks up to this size are read and written by the caller; a worker needs tens of milliseconds to fetch even the
smallest block from another one, but then hundreds of megabytes a second."""

_STREAMS = 16
_FETCHES = 4

_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class GiverAwayError(Exception):
    """The worker that should give does not answer."""

    def __init__(self, failure: RpcFailureError) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Copier:
    """Copies from one worker to another.

    Args:
        giver: The worker that holds the blocks, and `giver_info` where it is.
        receiver: The worker that shall hold them.
        holders: Which workers hold blocks, as the master knows it.
    """

    def __init__(
        self,
        *,
        giver: Worker,
        giver_info: WorkerInfo,
        receiver: Worker,
        holders: Callable[[list[int]], Awaitable[list[frozenset[str]]]],
    ) -> None:
        self._giver = giver
        self._giver_info = giver_info
        self._receiver = receiver
        self._holders = holders

    async def copy(self, blocks: Sequence[Block]) -> tuple[list[PutFailure], list[int]]:
        """The failures, and the ids of blocks that the receiver says it holds already.

        Raises:
            GiverAwayError: The giver does not answer.
            RpcFailureError: The receiver does not answer.
        """
        streamed = [block for block in blocks if block.length <= STREAMED]
        fetched = [block for block in blocks if block.length > STREAMED]
        places = await self._holders([block.id for block in fetched])
        absent = [
            self._absent(block)
            for block, held in zip(fetched, places, strict=True)
            if self._giver_info.name not in held
        ]
        gone = {failure.block_id for failure in absent}
        outcomes = await bounded(self._stream, streamed, limit=_STREAMS)
        outcomes += await bounded(
            self._fetch, [block for block in fetched if block.id not in gone], limit=_FETCHES
        )
        failures = absent + [outcome for outcome in outcomes if isinstance(outcome, PutFailure)]
        return failures, [outcome for outcome in outcomes if isinstance(outcome, int)]

    async def _stream(self, block: Block) -> PutFailure | int | None:
        try:
            content = await self._giver.read(block)
        except RpcFailureError as failure:
            if failure.code is grpc.StatusCode.NOT_FOUND:
                return self._absent(block)
            if failure.starting:
                raise GiverAwayError(failure) from failure
            return self._failed(block, failure)
        try:
            await self._receiver.write(block, content)
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
