"""The content of blocks, to and from a worker: what nodes need to feed each other."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from tdcs.engine.alluxio.rpc import BLOCK_WORKER, Rpc, RpcFailureError
from tdcs.engine.protocol import Block

T = TypeVar("T")

_SLOWEST = 200_000
"""Bytes a second; what is slower than this is given up."""

_BASE = 30.0
_UNCONFIRMED = 3 << 20
"""A worker stops sending when 4 MiB are unconfirmed, so all but the end has to be confirmed; and a confirmation that
comes when it has sent everything breaks the call. What is sent and not read is less than this (`_STEADY`)."""

_STEADY = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 20))
"""Let a worker send one piece ahead, and not as much as the connection could hold."""

_PACED_DEADLINE = 86_400.0
_STEP = 120.0
_CHUNK = 1 << 20
_ALLUXIO_BLOCK = 0
_UNLIMITED = (1 << 31) - 1
_NOBODY = 1 << 62
"""Added to a block's id it makes one that no worker holds, so that a read of it goes to the source."""


Pace = Callable[[int], Awaitable[None]]
"""Awaited with a number of bytes before they are taken from a source."""


class BlockStreams(Rpc):
    """The streams of one worker. All raise `RpcFailureError`.

    Args:
        target: `host:port`.
        patience: Seconds for which a call is repeated while the worker is away or starting.
    """

    def __init__(self, *, target: str, patience: float) -> None:
        super().__init__(target=target, patience=patience, options=_STEADY)

    async def chunks(
        self, block: Block, *, from_source: bool = False, pace: Pace | None = None
    ) -> AsyncGenerator[bytes, None]:
        """A block's content as this worker holds it.

        Args:
            from_source: Let the worker read it from the source instead, and keep nothing of it.
            pace: Awaited with the length of each piece before it is asked for. The worker reads some mebibytes ahead.

        Raises:
            RpcFailureError: With NOT_FOUND when the worker does not hold it; with DATA_LOSS when what came is not
                as long as the block.
        """
        request: dict[str, Any] = {
            "block_id": block.id,
            "offset": 0,
            "length": block.length,
            "chunk_size": _CHUNK,
        }
        if from_source:
            request["block_id"] = block.id | _NOBODY
            request["open_ufs_block_options"] = {
                "ufs_path": block.source_path,
                "offset_in_file": block.offset,
                "block_size": block.length,
                "maxUfsReadConcurrency": _UNLIMITED,
                "mountId": block.mount_id,
                "no_cache": True,
            }
        deadline = _deadline(block) if pace is None else _PACED_DEADLINE
        async with self.duplex(service=BLOCK_WORKER, method="ReadBlock", deadline=deadline) as call:
            received = 0
            if pace is not None:
                await pace(min(_CHUNK, block.length))
            await call.send(**request)
            while received < block.length:
                answer = await _soon(call.receive(), single=pace is None and block.length <= _CHUNK)
                if answer is None:
                    break
                data: bytes = answer.chunk.data
                received += len(data)
                if data:
                    yield data
                left = block.length - received
                if pace is not None and left:
                    await pace(min(_CHUNK, left))
                if left > _UNCONFIRMED:
                    await call.send(offset_received=received)
            if received != block.length:
                text = f"{received} of its {block.length} bytes came"
                raise RpcFailureError(code=grpc.StatusCode.DATA_LOSS, text=text)
            await call.finish()

    async def read(self, block: Block) -> bytes:
        """All of a block that this worker holds; for small ones."""

        async def once() -> bytes:
            return b"".join([chunk async for chunk in self.chunks(block)])

        return await self.patiently(once)

    async def digest(self, block: Block, *, from_source: bool = False) -> str:
        """SHA-256 of a block's content, in hexadecimal."""

        async def once() -> str:
            digest = hashlib.sha256()
            async for chunk in self.chunks(block, from_source=from_source):
                digest.update(chunk)
            return digest.hexdigest()

        return await self.patiently(once)

    async def write(
        self, block: Block, content: Callable[[], AsyncIterator[bytes]], *, paced: bool = False
    ) -> None:
        """Make a block of this content; it is there, and known to the master, when this returns.

        Nobody checks what is written: the length is compared here, and a stream that breaks leaves nothing.

        Args:
            content: Begins to give the content; called again when the worker has to be asked again.
            paced: It may take any time.

        Raises:
            RpcFailureError: With DATA_LOSS when the content is not as long as the block.
        """
        deadline = _PACED_DEADLINE if paced else _deadline(block)
        await self.patiently(lambda: self._write(block, content(), deadline=deadline))

    async def _write(self, block: Block, content: AsyncIterator[bytes], *, deadline: float) -> None:
        command = {
            "type": _ALLUXIO_BLOCK,
            "id": block.id,
            "offset": 0,
            "tier": 0,
            "space_to_reserve": block.length,
        }
        async with self.duplex(service=BLOCK_WORKER, method="WriteBlock", deadline=deadline) as call:
            await call.send(command=command)
            written = 0
            async for piece in content:
                written += len(piece)
                for begin in range(0, len(piece), _CHUNK):
                    part = piece[begin : begin + _CHUNK]
                    single = deadline < _PACED_DEADLINE and len(part) == block.length
                    await _soon(call.send(chunk={"data": part}), single=single)
            if written != block.length:
                text = f"its content has {written} bytes instead of {block.length}"
                raise RpcFailureError(code=grpc.StatusCode.DATA_LOSS, text=text)
            await call.finish()

    async def cache_from(self, block: Block, *, host: str, port: int) -> None:
        """Let this worker fetch a block from another one; for large ones.

        The other one must hold it: it would read it from the source otherwise, and keep it too.
        """
        await self.unary(
            service=BLOCK_WORKER,
            method="Cache",
            deadline=_deadline(block),
            block_id=block.id,
            length=block.length,
            source_host=host,
            source_port=port,
            open_ufs_block_options={
                "ufs_path": block.source_path,
                "offset_in_file": block.offset,
                "block_size": block.length,
                "maxUfsReadConcurrency": _UNLIMITED,
                "mountId": block.mount_id,
            },
            **{"async": False},
        )


async def _soon(step: Awaitable[T], *, single: bool) -> T:
    """A bound for each single step: a paced stream has no other, and one of a single step needs no other."""
    if single:
        return await step
    try:
        async with asyncio.timeout(_STEP):
            return await step
    except TimeoutError as error:
        text = f"nothing moved for {_STEP:.0f} seconds"
        raise RpcFailureError(code=grpc.StatusCode.DEADLINE_EXCEEDED, text=text) from error


def _deadline(block: Block) -> float:
    return _BASE + block.length / _SLOWEST
