"""GET /healthz for kubelet's liveness probe, in a few lines: a web framework would weigh more than the plugin."""

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

_REQUEST_SECONDS: Final = 5.0


@contextlib.asynccontextmanager
async def serve_health(*, port: int, sockets: Iterable[Path], host: str = "") -> AsyncIterator[int]:
    """Answer 200 while the event loop runs and all `sockets` exist, otherwise 503 with a sentence.

    A socket may vanish when kubelet's folder is cleaned by hand; kubelet then never finds the plugin again,
    until a restart makes the socket again. Yields the port in use (of any free one, for `port` 0). Raises OSError when
    another process has the port.
    """
    watched = tuple(sockets)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_health([str(path) for path in watched if not path.is_socket()]))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("a health probe was not answered: %s", error)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host=host or None, port=port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(
            f"no health probe can be answered on port {port}, which is taken: see by whom "
            f"(ss -ltnp 'sport = :{port}'), or choose another --health-port"
        ) from error
    async with server:
        yield server.sockets[0].getsockname()[1]


def _health(missing: list[str]) -> bytes:
    if missing:
        return _response(
            "503 Service Unavailable", f"gone, restart the plugin: {', '.join(missing)}\n".encode()
        )
    return _response("200 OK", b"ok\n")


def _response(status: str, body: bytes) -> bytes:
    headers = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + body
