"""Reads of a block from its source by a worker, as Alluxio's clients ask for them."""

from __future__ import annotations

from tdcs.engine.alluxio.rpc import BLOCK_WORKER, Rpc
from tdcs.engine.protocol import Block
from tdcs.trust.identity import Identify


async def read_block(
    target: str, *, block: Block, path: str, length: int, identify: Identify | None = None
) -> bytes:
    """Have the worker at `target` read a block from its source, at a path of the caller's choice, and keep nothing.

    Args:
        length: of the block, in bytes.
        identify: of the caller; None: the worker asks for no certificate.

    Raises:
        RpcFailureError: the worker refused, or could not read.
    """
    client = Rpc(target=target, patience=0.1, identify=identify)
    found = b""
    try:
        async with client.duplex(service=BLOCK_WORKER, method="ReadBlock", deadline=20) as call:
            await call.send(
                block_id=block.id | 1 << 62,
                offset=0,
                length=length,
                chunk_size=1 << 20,
                open_ufs_block_options={
                    "ufs_path": path,
                    "offset_in_file": 0,
                    "block_size": length,
                    "maxUfsReadConcurrency": 9,
                    "mountId": block.mount_id,
                    "no_cache": True,
                },
            )
            while len(found) < length:
                piece = await call.receive()
                if piece is None:
                    break
                found += piece.chunk.data
    finally:
        await client.close()
    return found
