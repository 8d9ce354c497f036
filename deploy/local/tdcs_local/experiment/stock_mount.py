"""Runs in the operator's container, which may ask Alluxio's master: mounts a bucket, without what was cached of it.

python3 -c PROGRAM < REQUEST, which is JSON; `Request` names its fields.
"""

import asyncio
import sys
from typing import Any

import grpc
import msgspec

from tdcs.alluxio.rpc import FILE_SYSTEM, Rpc, RpcFailureError
from tdcs.trust.identity import Identity

PATIENCE = 60.0
DEADLINE = 120.0
ABSENT = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
"""What the master says when nothing is mounted at a path that it has, or has not."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is mounted where.

    Attributes:
        master: `host:port`.
        path: in Alluxio.
        uri: of the bucket.
        properties: of the mount, with its keys.
        identity: what the master is shown; None: the connection is plain.
    """

    master: str
    path: str
    uri: str
    properties: dict[str, str]
    identity: Identity | None = None


async def mount(request: Request) -> None:
    """Mount the bucket again: of what was cached of it before nothing is found any more."""
    identity = request.identity
    master = Rpc(
        target=request.master,
        patience=PATIENCE,
        identify=(lambda: identity) if identity is not None else None,
    )

    async def call(method: str, **fields: Any) -> None:
        await master.unary(service=FILE_SYSTEM, method=method, deadline=DEADLINE, **fields)

    try:
        try:
            await call("Unmount", alluxioPath=request.path, options={})
        except RpcFailureError as failure:
            if failure.code not in ABSENT:
                raise
        options = {"readOnly": True, "shared": False, "properties": request.properties}
        await call("Mount", alluxioPath=request.path, ufsPath=request.uri, options=options)
    finally:
        await master.close()


if __name__ == "__main__":
    asyncio.run(mount(msgspec.json.decode(sys.stdin.buffer.read(), type=Request)))
