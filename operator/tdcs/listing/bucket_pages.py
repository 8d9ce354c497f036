"""Asks stores for pages of a bucket's listing, as the operator itself does: without threads but for names of hosts, and
without following a redirection.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tdcs.api.source_uri import DEFAULT_REGION, SourceUri, uses_path_style
from tdcs.engine import azure_requests, google_requests
from tdcs.engine.google_requests import StoreRequest
from tdcs.engine.signed_request import object_url
from tdcs.engine.tls_failures import pinned, trusting
from tdcs.listing.result import access_of
from tdcs.model.cache_engine import Source
from tdcs.model.file_ids import AS_OF


@asynccontextmanager
async def open_session(
    limits: aiohttp.ClientTimeout,
    *,
    connections: int = 1,
    ca_bundle: str = "",
    certificate: str = "",
    proxy: str = "",
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with one store, with at most so many connections; what takes longer than its limits fails.

    Args:
        ca_bundle: authorities in PEM that are trusted in addition to the public ones.
        proxy: of HTTP, which is asked for everything; empty: none.
        certificate: the only one that is taken, whatever the host is called; empty: any of a trusted authority.
    """
    tls = pinned(certificate) if certificate else trusting(ca_bundle) if ca_bundle else True
    resolver = _Resolver()
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver, limit=connections, ssl=tls),
            timeout=limits,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            proxy=proxy or None,
        ) as session:
            yield session
    finally:
        await resolver.close()


@asynccontextmanager
async def ask(session: aiohttp.ClientSession, request: StoreRequest) -> AsyncIterator[aiohttp.ClientResponse]:
    """Ask for a page; its answer, whatever its status. Raises as aiohttp does."""
    url = request.url
    # The host as it was signed.
    headers = {"Host": urlsplit(url).netloc, "Accept-Encoding": "identity", **request.headers}
    async with session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as answer:
        yield answer


def page_request(
    source: Source,
    uri: SourceUri,
    *,
    names: int,
    token: str = "",
    prefix: str | None = None,
    after: str = "",
    delimiter: str = "",
    encoded: bool = False,
) -> StoreRequest:
    """The request for a page with at most so many names.

    Args:
        token: of the page; empty for the first one.
        prefix: what all names begin with; None: that of the source.
        after: the key before the first one of the first page.
        delimiter: names are grouped by what they have up to it, behind the prefix.
        encoded: whether names are to be spelled so that XML can hold any of them.
    """
    below = prefix if prefix is not None else f"{uri.path}/" if uri.path else ""
    if uri.scheme == "gs":
        # It has the key itself, too, where that is an object's: `GooglePage` leaves it out.
        query = {"prefix": below, "startOffset": after, "delimiter": delimiter}
        return google_requests.page_request(access_of(source), names=names, token=token, query=query)
    if uri.scheme == "az":
        now = datetime.now(UTC)
        return azure_requests.page_request(access_of(source), names=names, token=token, prefix=below, now=now)
    if source.options.get(AS_OF) and not delimiter:
        key, _, version = token.partition("\0")
        parameters = {
            "max-keys": str(names),
            "prefix": below,
            "key-marker": key,
            "version-id-marker": version,
        }
        parameters["encoding-type"] = "url" if encoded else ""
        return StoreRequest(_signed(source, uri, {"versions": "", **_filled(parameters)}), {})
    parameters = {
        "list-type": "2",
        "max-keys": str(names),
        "prefix": below,
        "continuation-token": token,
        "start-after": after if not token else "",
        "delimiter": delimiter,
        "encoding-type": "url" if encoded else "",
    }
    return StoreRequest(_signed(source, uri, _filled(parameters)), {})


def _filled(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _signed(source: Source, uri: SourceUri, query: Mapping[str, str]) -> str:
    """The URL of a request for a bucket of S3."""
    options, keys = source.reached_options, source.credentials
    return object_url(
        endpoint=options.get("endpoint", ""),
        bucket=uri.bucket,
        key="",
        region=options.get("region", DEFAULT_REGION),
        path_style=uses_path_style(options, bucket=uri.bucket),
        access_key_id=keys.access_key_id if keys is not None else "",
        secret_access_key=keys.secret_access_key if keys is not None else "",
        session_token=keys.session_token if keys is not None else "",
        requester_pays=options.get("requesterPays") == "true",
        now=datetime.now(UTC),
        query=query,
    )


class _Resolver(AbstractResolver):
    """Looks up the names of hosts in a thread of its own: a name server may be as slow as a store, and the threads of
    the event loop are for the operator's own work."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="source-host")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM)
        addresses = await asyncio.get_running_loop().run_in_executor(self._thread, look_up)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in addresses
        ]

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
