"""httpx2's requests over aiohttp, whose parser and TLS are compiled: a watch event costs a third of the processor time.

lightkube keeps what it is good at, which is configuration and credentials; only the bytes take another way.
"""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx2
from yarl import URL


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """A connection pool. Use it in one event loop, in which the first request finds itself.

    `verify`: the TLS settings of all connections. Proxies come from the environment, as with httpx2's own transport.
    """

    def __init__(self, *, verify: ssl.SSLContext) -> None:
        self._verify = verify
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response's body is read as it comes. Raises httpx2's TransportError."""
        limits = request.extensions.get("timeout", {})
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=limits.get("connect"), sock_read=limits.get("read")
        )
        content = await request.aread()
        with _as_httpx2(request):
            response = await self._opened().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(name.decode(), value.decode()) for name, value in request.headers.raw],
                data=content or None,
                timeout=timeout,
                allow_redirects=False,
            )
        return httpx2.Response(
            status_code=response.status,
            headers=list(response.raw_headers),
            stream=_Body(request=request, response=response),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit: every watch keeps a connection for itself.
                connector=aiohttp.TCPConnector(limit=0, ssl=self._verify),
                # httpx2 follows redirects, unpacks bodies, keeps cookies and names itself.
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
                trust_env=True,
            )
        return self._session


class _Body(httpx2.AsyncByteStream):
    """A response's body, in pieces of all that has come since the piece before."""

    def __init__(self, *, request: httpx2.Request, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx2(self._request):
            async for piece in self._response.content.iter_any():
                yield piece

    async def aclose(self) -> None:
        # A connection whose body was read whole is in the pool again already; another one is of no more use.
        self._response.close()


@contextmanager
def _as_httpx2(request: httpx2.Request) -> Iterator[None]:
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx2.ConnectTimeout(_told(error), request=request) from error
    except TimeoutError as error:
        raise httpx2.ReadTimeout(_told(error), request=request) from error
    except aiohttp.ClientConnectorError as error:
        raise httpx2.ConnectError(_told(error), request=request) from error
    except aiohttp.ClientPayloadError as error:
        raise httpx2.RemoteProtocolError(_told(error), request=request) from error
    except (aiohttp.ClientError, OSError) as error:
        raise httpx2.ReadError(_told(error), request=request) from error


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
