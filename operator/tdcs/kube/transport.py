"""httpx2's requests over aiohttp, whose parser and TLS are compiled: a watch event costs a third of the processor time.

lightkube keeps what it is good at, which is configuration and credentials; only the bytes take another way.
"""

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx2
from lightkube.core.exceptions import ConfigError
from yarl import URL

_HEAD_SECONDS = 90.0
"""Until an answer begins, whatever it waits for: names, a proxy, a connection that takes nothing more."""


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """A connection pool. Use it in one event loop, in which the first request finds itself.

    `verify`: the TLS settings of all connections. `server`: where all requests go; the environment says by which
    proxy. Raises lightkube's ConfigError for a proxy that aiohttp cannot use.
    """

    def __init__(self, *, verify: ssl.SSLContext, server: str) -> None:
        self._verify = verify
        # Found once: aiohttp would look for it, and into ~/.netrc, in a thread for each request.
        self._proxy = proxy_for(server)
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response's body is read as it comes. Raises httpx2's TransportError."""
        content = await request.aread()
        with _as_httpx2(request):
            response = await self._begun(request, content)
        return httpx2.Response(
            status_code=response.status,
            headers=list(response.raw_headers),
            stream=_Body(request=request, response=response),
        )

    async def _begun(self, request: httpx2.Request, content: bytes) -> aiohttp.ClientResponse:
        limits = request.extensions.get("timeout", {})
        async with asyncio.timeout(_HEAD_SECONDS):
            return await self._opened().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(name.decode(), value.decode()) for name, value in request.headers.raw],
                data=content or None,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=limits.get("connect"), sock_read=limits.get("read")
                ),
                allow_redirects=False,
                proxy=self._proxy,
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
                trust_env=False,
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


def proxy_for(server: str) -> str | None:
    """The proxy of the environment for an address, from HTTPS_PROXY or HTTP_PROXY, ALL_PROXY and NO_PROXY."""
    url = URL(server)
    proxies = urllib.request.getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found or urllib.request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    if URL(found).scheme != "http":
        raise ConfigError(
            f"the proxy for {server} in the environment does not begin with http://, as it must: correct "
            f"{url.scheme.upper()}_PROXY (or ALL_PROXY), or name {url.host} in NO_PROXY"
        )
    return found


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
