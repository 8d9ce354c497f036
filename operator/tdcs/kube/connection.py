"""Requests to the API server over the package `kubernetes`: its connection pool and TLS, this project's JSON.

Only the package's REST layer is used. Its `ApiClient` copies every body on the way out and builds typed models on
the way in; bench/control_plane/kube_client.py has the figures.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from yarl import URL

from tdcs import __version__
from tdcs.kube.configuration import ApiAccess

HEAD_SECONDS = 90.0
"""Until an answer begins, whatever it waits for: names, a proxy, a connection that takes nothing more."""

JSON = "application/json"


class ApiConnection:
    """A connection pool of one API server, for one event loop. Requests fail with aiohttp's errors or TimeoutError.

    Args:
        access: where the server is, and the credentials; they are read again when the server answers 401.
    """

    def __init__(self, *, access: ApiAccess) -> None:
        self._access = access
        self._configuration: Configuration | None = None
        self._rest_client: RESTClientObject | None = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        read_seconds: float,
        connect_seconds: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; the response's body is read in the block, and the response is closed at its end.

        Args:
            method: of HTTP.
            path: below the server's address, from `Resource.path`.
            body: sent as JSON, whatever the content type is called.
            read_seconds: the longest silence of the server.
            connect_seconds: the longest time that a new connection may take.
        """
        query = f"?{urlencode(params)}" if params else ""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=read_seconds)

        async def send() -> tuple[Configuration, aiohttp.ClientResponse]:
            rest_client, configuration = await self._opened()
            headers = {"Accept": JSON, "Content-Type": content_type, "User-Agent": f"tdcs/{__version__}"}
            authorization = await self._access.authorization()
            if authorization:
                headers["Authorization"] = authorization
            # Encoded here once; a string would be parsed and quoted again.
            url = URL(f"{configuration.host}{path}{query}", encoded=True)
            answer = await rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=limits
            )
            return configuration, answer.response

        async with asyncio.timeout(HEAD_SECONDS):
            used, response = await send()
            if response.status == 401:
                response.release()
                await self._access.renew(refused=used)
                _, response = await send()
        try:
            yield response
        finally:
            # After the whole body was read, the connection is in the pool again already; else it is of no more use.
            response.close()

    async def close(self) -> None:
        if self._rest_client is not None:
            await self._rest_client.close()

    async def _opened(self) -> tuple[RESTClientObject, Configuration]:
        configuration = self._access.configuration
        if self._rest_client is None or self._configuration is None:
            self._rest_client = _rest_of(self._access)
        elif _certificates(configuration) != _certificates(self._configuration):
            before, self._rest_client = self._rest_client, _rest_of(self._access)
            await before.close()  # its watches end with an error, and go on with the new certificate
        self._configuration = configuration
        return self._rest_client, configuration


def _rest_of(access: ApiAccess) -> RESTClientObject:
    # By itself aiohttp looks for proxies and into ~/.netrc in a thread for each request, and keeps cookies.
    access.configuration.client_session_kwargs = {
        "trust_env": False,
        "cookie_jar": aiohttp.DummyCookieJar(),
        "headers": access.impersonation,
    }
    return RESTClientObject(access.configuration)


def _certificates(configuration: Configuration) -> tuple[object, ...]:
    configuration_read = configuration
    return (
        configuration_read.ssl_ca_cert,
        configuration_read.cert_file,
        configuration_read.key_file,
        configuration_read.verify_ssl,
        configuration_read.proxy,
    )
