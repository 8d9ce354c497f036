"""One Alluxio worker as plain values: load blocks from their source, remove copies."""

from __future__ import annotations

import grpc

from tdcs.engine.alluxio.blocks import BlockStreams
from tdcs.engine.alluxio.rpc import BLOCK_WORKER, RpcFailureError
from tdcs.engine.alluxio.sources import plain_reason
from tdcs.engine.protocol import Block, PutFailure

_SLOWEST_SOURCE = 200_000
"""Bytes a second; a Load that is slower than this is given up and reported as retryable."""

_LOAD_BASE = 120.0
_REMOVE_DEADLINE = 5.0
"""RemoveBlock waits while a reader holds the block open, however long: better to hear of it soon."""

PRESENT = "already committed"
"""Part of what a worker says of a block that it holds."""

_OK = 0


class Worker(BlockStreams):
    """One worker's RPCs. All raise `RpcFailureError` for what concerns the whole request."""

    async def load(self, blocks: list[Block]) -> tuple[list[PutFailure], list[int]]:
        """Read blocks from their source into this worker: the failures, and the ids of blocks that it holds already.

        The caller keeps the request small (`batches`), and the lengths must be the master's: a wrong one
        makes a truncated block.
        """
        request = [
            {
                "block_id": block.id,
                "length": block.length,
                "ufs_path": block.source_path,
                "offset_in_file": block.offset,
                "mountId": block.mount_id,
            }
            for block in blocks
        ]
        try:
            response = await self.unary(
                service=BLOCK_WORKER,
                method="Load",
                deadline=_LOAD_BASE + sum(block.length for block in blocks) / _SLOWEST_SOURCE,
                blocks=request,
                options={"tag": "tdcs", "position_short": False},
            )
        except RpcFailureError as failure:
            if failure.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            reason = "the worker did not finish in time; its source is very slow or hangs"
            return [PutFailure(block_id=block.id, reason=reason, retryable=True) for block in blocks], []
        failures, present = [], []
        for status in response.block_status:
            block_id = status.block.block_id
            if PRESENT in status.message:
                present.append(block_id)
            elif status.code != _OK:
                reason = plain_reason(status.message)
                failures.append(PutFailure(block_id=block_id, reason=reason, retryable=status.retryable))
        return failures, present

    async def remove(self, block_id: int) -> PutFailure | None:
        """Remove this worker's copy; None when it is gone, or was not there."""
        try:
            await self.unary(
                service=BLOCK_WORKER, method="RemoveBlock", deadline=_REMOVE_DEADLINE, block_id=block_id
            )
        except RpcFailureError as failure:
            if failure.code is grpc.StatusCode.NOT_FOUND:
                return None
            if failure.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                reason = "a reader holds the block open"
                return PutFailure(block_id=block_id, reason=reason, retryable=True)
            if failure.starting:
                raise
            return PutFailure(block_id=block_id, reason=plain_reason(failure.text), retryable=True)
        return None
