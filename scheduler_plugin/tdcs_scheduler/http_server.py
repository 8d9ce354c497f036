"""An HTTP/1.1 server for handlers that answer at once, without waiting for anything.

kube-scheduler waits for the extender with every pod that it places. aiohttp's server, which all other processes of TDCS
use, takes 0.15 ms of processor time more for a call about 500 nodes, and 0.24 ms about 5000: half as much again, or
more. `bench/control_plane/extender_latency.py` measures a call. Here a call takes no task, and one write.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple, cast

import httptools

_log: Final = logging.getLogger(__name__)

# kube-scheduler keeps idle connections for 90 s; a server that closes them earlier makes some of its calls fail.
IDLE_SECONDS: Final = 120
_SHUTDOWN_SECONDS: Final = 5.0
_MOST_HEAD_BYTES: Final = 64 << 10


class HttpRequest(NamedTuple):
    """A request: `body` is cut off where it has more bytes than the server takes. `port`: of ours, that was asked."""

    method: str
    path: str
    body: bytes | bytearray = b""
    port: int = 0


class HttpAnswer(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Handle = Callable[[HttpRequest], HttpAnswer]


class HttpServer:
    """Serves one handler.

    `most_bytes`: a body is kept until it has more. The handler sees that it has, and refuses it.
    """

    def __init__(self, handle: Handle, *, most_bytes: int) -> None:
        self.handle: Final = handle
        self.most_bytes: Final = most_bytes
        self.connections: Final[set[ServerConnection]] = set()

    @contextlib.asynccontextmanager
    async def serving(
        self, listeners: Iterable[socket.socket], *, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[None]:
        """Serve on these sockets meanwhile; requests that are coming in at the end are answered still."""
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(lambda: ServerConnection(self), sock=listener, ssl=tls)
            for listener in listeners
        ]
        try:
            yield
        finally:
            for server in servers:
                server.close()
            connections = list(self.connections)
            for connection in connections:
                connection.end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SHUTDOWN_SECONDS):
                    await asyncio.gather(*(connection.closed.wait() for connection in connections))
            for connection in connections:
                connection.abort()


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server: Final = server
        self._loop: Final = asyncio.get_running_loop()
        # It finds this object's callbacks by their names.
        self._parser: Final = httptools.HttpRequestParser(self)
        self.closed: Final = asyncio.Event()
        self._heard_at = self._loop.time()
        self._ending = False
        self._coming = False
        self._url = b""
        self._head_bytes = 0
        self._expects = False
        self._body = bytearray()

    def end(self) -> None:
        """Close, after the answer to a request that is coming in."""
        self._ending = True
        if not self._coming:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none of asyncio's classes
        self._port = (transport.get_extra_info("sockname") or ("", 0))[1]
        self._server.connections.add(self)
        self._timer = self._loop.call_later(IDLE_SECONDS, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self.closed.set()
        self._timer.cancel()

    def pause_writing(self) -> None:
        self._transport.pause_reading()  # a client that takes no answers is not listened to

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._transport.close()  # it has its answer, and there is nothing to upgrade to
        except httptools.HttpParserError as error:
            self._answer(HttpAnswer(400, f"this is no request of HTTP/1.1: {error}\n".encode()), stays=False)

    # What the parser finds.

    def on_message_begin(self) -> None:
        self._coming, self._expects = True, False
        self._url, self._head_bytes, self._body = b"", 0, bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value)
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._expects = True

    def _count(self, *parts: bytes) -> None:
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > _MOST_HEAD_BYTES:
            raise ValueError(f"a request's head may have {_MOST_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        if self._expects:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if len(self._body) <= self._server.most_bytes:
            self._body += body

    def on_message_complete(self) -> None:
        self._coming = False
        method = self._parser.get_method().decode("ascii")
        stays = self._parser.should_keep_alive() and not self._ending
        try:
            path = httptools.parse_url(self._url).path.decode("ascii", "replace")
            answer = self._server.handle(HttpRequest(method, path, self._body, self._port))
        except httptools.HttpParserInvalidURLError as error:
            answer = HttpAnswer(400, f"{error}\n".encode())
        except Exception:
            # Whatever leaves a callback of the parser is taken for the client's error, and not logged.
            _log.exception("a request for %s has no answer", self._url.decode("ascii", "replace"))
            answer = HttpAnswer(500, b"the extender failed, see its log\n")
        self._answer(answer, stays=stays, with_body=method != "HEAD")

    def _answer(self, answer: HttpAnswer, *, stays: bool, with_body: bool = True) -> None:
        if self._transport.is_closing():
            return
        head = [
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
            f"content-type: {answer.content_type}",
            f"content-length: {len(answer.body)}",
            f"date: {formatdate(usegmt=True)}",
            *(() if stays else ("connection: close",)),
        ]
        self._transport.write(
            "\r\n".join([*head, "", ""]).encode("ascii") + (answer.body if with_body else b"")
        )
        if not stays:
            self._transport.close()

    def _close_idle(self) -> None:
        remaining = self._heard_at + IDLE_SECONDS - self._loop.time()
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._close_idle)
        else:
            self._transport.close()
