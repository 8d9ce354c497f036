"""Calls of a worker for blocks, as Alluxio's clients make them: they stream both ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tdcs.alluxio.rpc import BLOCK_WORKER, method_types
from tdcs.trust.identity import Identity

_DEADLINE_SECONDS = 20
_ROOT_MOUNT = 1


async def read_block(
    target: str, *, block: int, length: int, path: str = "", identity: Identity | None = None
) -> bytes:
    """What the worker at `target` has of a block, or with a path what it reads there, of the caller's choice, of the
    mount that every master has.

    Args:
        block: its id.
        length: of the block, in bytes.
        identity: of the caller; None: the worker asks for no certificate.

    Raises:
        AioRpcError: the worker refused, or could not read.
    """
    request_type, _ = method_types(BLOCK_WORKER, "ReadBlock")
    elsewhere = {
        "ufs_path": path,
        "offset_in_file": 0,
        "block_size": length,
        "maxUfsReadConcurrency": 9,
        "mountId": _ROOT_MOUNT,
        "no_cache": True,
    }
    content = b""
    async with _call(target, "ReadBlock", identity) as call:
        await call.write(
            request_type(
                block_id=block | 1 << 62 if path else block,
                offset=0,
                length=length,
                chunk_size=1 << 20,
                **({"open_ufs_block_options": elsewhere} if path else {}),
            )
        )
        while len(content) < length:
            piece = await call.read()
            if piece is grpc.aio.EOF:
                break
            content += piece.chunk.data
    return content


async def refusal(
    target: str, method: str, identity: Identity, *, name: str | None = None
) -> grpc.StatusCode:
    """How a worker answers a call before the caller has sent anything. What is written to a call that has been
    refused meanwhile fails on this side, as INTERNAL, so that the worker's own status is lost.

    Args:
        name: the worker's own, where `target` is a relay to it.
    """
    async with _call(target, method, identity, name) as call:
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@asynccontextmanager
async def _call(
    target: str, method: str, identity: Identity | None, name: str | None = None
) -> AsyncIterator[Any]:
    request_type, response_type = method_types(BLOCK_WORKER, method)
    if identity is None:
        channel = grpc.aio.insecure_channel(target)
    else:
        credentials = grpc.ssl_channel_credentials(identity.authorities, identity.key, identity.certificate)
        channel = grpc.aio.secure_channel(
            target, credentials, [("grpc.ssl_target_name_override", name)] if name is not None else []
        )
    async with channel:
        call = channel.stream_stream(
            f"/{BLOCK_WORKER}/{method}",
            request_serializer=request_type.SerializeToString,
            response_deserializer=response_type.FromString,
        )(timeout=_DEADLINE_SECONDS)
        try:
            yield call
        finally:
            call.cancel()
