"""A connection to a worker on which it is asked for blocks: gRPC's CreateLocalBlock over HTTP/2, by the library h2.

gRPC's own asyncio client sends each of the seven steps of such a call through a thread and back, which was most of what
an agent's processor did. Here what comes in one piece from the worker is taken in at once, whatever calls it is about,
and so is what goes there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import grpc

from tdcs.alluxio.alluxio_descriptors import method_types
from tdcs.alluxio.http2_connection import Connection, away
from tdcs.alluxio.rpc import BLOCK_WORKER, RpcFailureError
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import Identify, NoIdentityError

_METHOD: Final = "CreateLocalBlock"
_CONNECT_SECONDS: Final = 5.0

Place = Callable[[str], None]
"""Puts the content of a block at a path."""


class BlockChannel:
    """Asks one worker for blocks, over one connection that is made when it is needed. All in one event loop.

    Args:
        target: `host:port` of the worker.
        identify: gives the certificate to show; None: the connection is plain.
    """

    def __init__(self, *, target: str, identify: Identify | None = None) -> None:
        self._target: Final = target
        self._identify: Final = identify
        self._contexts: Final = Contexts(identify) if identify is not None else None
        self._request, self._response = method_types(BLOCK_WORKER, _METHOD)
        self._opening: Final = asyncio.Lock()
        self._connection: Connection | None = None
        self._shown = ""

    async def create(self, *, block_id: int, length: int, place: Place, deadline: float) -> None:
        """Have the worker make a file, put the content there, and have it committed. A call that breaks leaves nothing.

        Args:
            block_id: of the block.
            length: bytes.
            place: gets the path of the empty file; what it raises ends the call.
            deadline: seconds for all of it.

        Raises:
            RpcFailureError: The worker refuses, is away, or does not answer in time.
        """
        request = self._request(
            block_id=block_id,
            tier=0,
            space_to_reserve=length,
            cleanup_on_failure=True,
            pin_on_create=True,
            medium_type="",
        )
        try:
            async with asyncio.timeout(deadline) as limit:
                connection = await self._open()
                call = connection.begin(request)
                try:
                    place(self._response.FromString(await call.message()).path)  # type: ignore[attr-defined]
                    connection.finish(call)
                    await call.end()
                finally:
                    connection.leave(call)
        except TimeoutError as error:
            if not limit.expired():
                raise  # of the disk
            text = f"the worker has not answered within {deadline:g} s"
            raise RpcFailureError(code=grpc.StatusCode.DEADLINE_EXCEEDED, text=text) from error

    async def close(self) -> None:
        """Close the connection; calls that are under way fail."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _open(self) -> Connection:
        """The connection; a new one when there is another certificate to show, since a connection keeps its own."""
        shown = self._fingerprint()
        if self._connection is None or not self._connection.usable or shown != self._shown:
            async with self._opening:
                if self._connection is None or not self._connection.usable or shown != self._shown:
                    if self._connection is not None:
                        self._connection.retire()
                    self._connection, self._shown = await self._connect(), shown
        return self._connection

    def _fingerprint(self) -> str:
        if self._identify is None:
            return ""
        try:
            return self._identify().fingerprint
        except NoIdentityError as error:
            raise away(str(error)) from error

    async def _connect(self) -> Connection:
        host, _, port = self._target.rpartition(":")
        host = host.strip("[]")
        try:
            context = self._contexts.http2_client() if self._contexts is not None else None
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(
                        authority=self._target,
                        path=f"/{BLOCK_WORKER}/{_METHOD}",
                        secure=context is not None,
                    ),
                    host=host,
                    port=int(port),
                    ssl=context,
                    server_hostname=host if context is not None else None,
                )
        except TimeoutError as error:
            raise away(f"no connection to {self._target} within {_CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise away(f"failed to connect to {self._target}: {error}") from error
        secured = transport.get_extra_info("ssl_object")
        if isinstance(secured, ssl.SSLObject) and secured.selected_alpn_protocol() != "h2":
            connection.close()
            raise away(f"{self._target} does not speak HTTP/2")
        return connection
