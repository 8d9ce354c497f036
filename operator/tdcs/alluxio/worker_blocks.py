"""Blocks of one worker: made, by a process that sees its folder, and removed; and the identity of the journal.

Nothing is compared at a commit: a short, empty or unknown block would be served. So only verified files go in.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc

from tdcs.alluxio.rpc import BLOCK_WORKER, META_MASTER, Rpc, RpcFailureError
from tdcs.trust.identity import Identify

_CREATE_DEADLINE = 60.0
_REMOVE_DEADLINE = 5.0
"""RemoveBlock waits while a reader holds the block open, however long: better to hear of it soon."""

_JOURNAL_DEADLINE = 10.0
_CLUSTER_ID = 10
_PRESENT = ("already committed", "already exists")


class PresentBlockError(Exception):
    """The worker says that it has the block already."""


class OpenBlockError(Exception):
    """A reader holds the block open, so that it cannot be removed for now."""


class UnknownBlockError(Exception):
    """The worker does not know the block."""


class WorkerBlocks:
    """RPCs of one worker. Failures without an error of their own here are `RpcFailureError`.

    Args:
        target: `host:port`.
        patience: seconds for which the removal of a block is repeated while the worker is away or starting.
        identify: gives the certificate to show; None: the connection is plain.
    """

    def __init__(self, *, target: str, patience: float, identify: Identify | None = None) -> None:

        self._rpc = Rpc(target=target, patience=patience, identify=identify)

    async def close(self) -> None:
        await self._rpc.close()

    async def create(
        self,
        *,
        block_id: int,
        length: int,
        place: Callable[[str], None],
        deadline: float = _CREATE_DEADLINE,
    ) -> None:
        """Make a block of a file in the worker's folder: worker and master know it when this returns, and the worker
        evicts it for nothing else. A call that breaks leaves nothing.

        Args:
            length: bytes, the master's.
            place: puts the content at a path, where the worker has made an empty file; what it raises ends the call.
            deadline: seconds for all of it.

        Raises:
            PresentBlockError: The worker has it.
            RpcFailureError: With RESOURCE_EXHAUSTED when it has no room.
        """
        try:
            await self._rpc.exchange(
                service=BLOCK_WORKER,
                method="CreateLocalBlock",
                deadline=deadline,
                received=lambda answer: place(answer.path),
                block_id=block_id,
                tier=0,
                space_to_reserve=length,
                cleanup_on_failure=True,
                pin_on_create=True,
                medium_type="",
            )
        except RpcFailureError as failure:
            present = any(text in failure.text for text in _PRESENT)
            if present or failure.code is grpc.StatusCode.ALREADY_EXISTS:
                raise PresentBlockError(failure.text) from failure
            raise

    async def remove(self, block_id: int) -> None:
        """Remove the worker's copy.

        The master hears of it with the next heartbeat: a block that is created again before that is struck from the
        master's map for good.

        Raises:
            UnknownBlockError: The worker has no such block.
            OpenBlockError: A reader holds it open.
        """
        try:
            await self._rpc.unary(
                service=BLOCK_WORKER, method="RemoveBlock", deadline=_REMOVE_DEADLINE, block_id=block_id
            )
        except RpcFailureError as failure:
            if failure.code is grpc.StatusCode.NOT_FOUND:
                raise UnknownBlockError(failure.text) from failure
            if failure.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise OpenBlockError(f"a reader holds block {block_id} open") from failure
            raise


async def journal_id(master: Rpc) -> str:
    """The identity of a master's journal: it stays as long as the journal does, and ids of blocks belong to it.

    Raises:
        RpcFailureError: The master does not answer, or has none yet.
    """
    answer = await master.unary(
        service=META_MASTER, method="GetMasterInfo", deadline=_JOURNAL_DEADLINE, filter=[_CLUSTER_ID]
    )
    journal = str(answer.masterInfo.clusterId)
    if not journal:
        raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text="the master's journal has no id yet")
    return journal
