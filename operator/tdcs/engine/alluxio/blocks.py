"""The content of blocks, to and from a worker: what nodes need to feed each other."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tdcs.engine.alluxio.rpc import BLOCK_WORKER, Rpc, RpcFailureError
from tdcs.engine.protocol import Block

_SLOWEST = 200_000
"""Bytes a second; what is slower than this is given up."""

_BASE = 30.0
_CHUNK = 1 << 20
_ALLUXIO_BLOCK = 0
_UNLIMITED = (1 << 31) - 1
_NOBODY = 1 << 62
"""Added to a block's id it makes one that no worker holds, so that a read of it goes to the source."""


class BlockStreams(Rpc):
    """The streams of one worker. All raise `RpcFailureError`."""

    async def chunks(self, block: Block, *, from_source: bool = False) -> AsyncIterator[bytes]:
        """A block's content as this worker holds it.

        Args:
            from_source: Let the worker read it from the source instead, and keep nothing of it.

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
        deadline = _deadline(block)
        async with self.duplex(service=BLOCK_WORKER, method="ReadBlock", deadline=deadline) as call:
            await call.send(**request)
            received = 0
            while received < block.length and (answer := await call.receive()) is not None:
                data: bytes = answer.chunk.data
                received += len(data)
                if data:
                    yield data
                if received < block.length:  # the worker stops sending when too much is unconfirmed
                    await call.send(offset_received=received)
            if received != block.length:
                text = f"{received} of its {block.length} bytes came"
                raise RpcFailureError(code=grpc.StatusCode.DATA_LOSS, text=text)
            await call.finish()

    async def read(self, block: Block) -> bytes:
        """All of a block that this worker holds; for small ones."""
        async for attempt in self.retrying():
            with attempt:
                return b"".join([chunk async for chunk in self.chunks(block)])
        raise AssertionError("tenacity either returns or raises")

    async def digest(self, block: Block, *, from_source: bool = False) -> str:
        """SHA-256 of a block's content, in hexadecimal."""
        async for attempt in self.retrying():
            with attempt:
                digest = hashlib.sha256()
                async for chunk in self.chunks(block, from_source=from_source):
                    digest.update(chunk)
                return digest.hexdigest()
        raise AssertionError("tenacity either returns or raises")

    async def write(self, block: Block, content: bytes) -> None:
        """Make a block of this content; it is there, and known to the master, when this returns.

        Nobody checks what is written: the length is compared here, and a stream that breaks leaves nothing.

        Raises:
            ValueError: The content is not as long as the block.
        """
        if len(content) != block.length:
            raise ValueError(f"block {block.id} has {block.length} bytes, got {len(content)}")
        command = {
            "type": _ALLUXIO_BLOCK,
            "id": block.id,
            "offset": 0,
            "tier": 0,
            "space_to_reserve": block.length,
        }
        async for attempt in self.retrying():
            with attempt:
                async with self.duplex(
                    service=BLOCK_WORKER, method="WriteBlock", deadline=_deadline(block)
                ) as call:
                    await call.send(command=command)
                    for begin in range(0, len(content), _CHUNK):
                        await call.send(chunk={"data": content[begin : begin + _CHUNK]})
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


def _deadline(block: Block) -> float:
    return _BASE + block.length / _SLOWEST
