"""Counts the objects of a bucket at the store, page by page and no further than a limit, before a cache learns a name.

An Alluxio master that lists a source keeps all names of it, and has no memory left where there are millions.
"""

import asyncio
import html
import re
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tdcs.api.source_uri import SourceUri, parse_source_uri
from tdcs.engine.protocol import Source, SourceError
from tdcs.engine.transport.signed_request import object_url
from tdcs.listing.limit import LimitCount, ListingLimit, SourcesSize

_PAGE: Final = 1000
"""Names in a page: the most that S3 gives."""
_LARGEST_PAGE: Final = 16 << 20
"""Bytes: a thousand names of 1,024 bytes, each of them escaped, and what is said of each."""
_EMPTY_PAGES: Final = 100
"""So many pages without a name are no listing."""
_AT_ONCE: Final = 64
"""Sources that are counted at a time. Each has a connection, and its page is not kept, so slow stores cost little."""
_PAGE_SECONDS: Final = 60.0
"""So long a page may take, from the connection to its last byte."""
_CONNECT_SECONDS: Final = 10.0
_SECONDS: Final = 60.0
_SECONDS_OF_A_PAGE: Final = 2.0
"""So long a whole count may take, and so much longer for each page within the limit: stores need some 0.1 s a page."""
_REGION: Final = "us-east-1"

_FOUND: Final = re.compile(
    rb"<Size>(\d{1,19})</Size>|<NextContinuationToken>([^<]{1,8192})</NextContinuationToken>"
)
_LONGEST: Final = 8300
"""Bytes: no match is longer."""


class SourceSize:
    """Counts the objects of buckets: the operator's `CheckSize`.

    It works without threads but for names of hosts, so a store that never ends its answer keeps nothing else waiting,
    and a count that is cancelled ends at once.

    Args:
        page_seconds: so long one page may take. A store that takes longer gives no listing.
        seconds: so long a count may take beside the time for the pages of its limit.
        at_once: so many sources are counted at a time; the others wait.
    """

    def __init__(
        self, *, page_seconds: float = _PAGE_SECONDS, seconds: float = _SECONDS, at_once: int = _AT_ONCE
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=page_seconds, sock_connect=_CONNECT_SECONDS)
        self._seconds = seconds
        self._places = asyncio.Semaphore(at_once)

    async def __call__(self, source: Source, limit: ListingLimit, *, path: str) -> SourcesSize:
        """Count the objects of a bucket, as far as the limit. A folder is not counted here, and of a store that gives
        no listing the cache's own says why.

        Args:
            source: with its keys.
            limit: what it may have.
            path: its place in the cache, for the message.

        Raises:
            LimitExceededError: It has more.
            SourceError: Its store gives pages, but not all of them in time.
        """
        uri = parse_source_uri(source.uri)
        if uri.scheme != "s3":
            return SourcesSize()
        seconds = self._seconds + _SECONDS_OF_A_PAGE * limit.files / _PAGE
        count = LimitCount(limit, what=source.uri, path=path)
        async with self._places:
            try:
                async with asyncio.timeout(seconds):
                    await self._count(source, uri, count)
            except TimeoutError:
                raise SourceError(
                    attempted=f"count the objects of {source.uri}",
                    reason=f"its store has named {count.files} of them in {seconds:.0f} s, and there are more",
                    remedy="See why the store lists so slowly, or name a folder with fewer files in spec.source.uri",
                    path=path,
                ) from None
        return SourcesSize(files=count.files, bytes=count.bytes)

    async def _count(self, source: Source, uri: SourceUri, count: LimitCount) -> None:
        resolver = _Resolver()
        connector = aiohttp.TCPConnector(resolver=resolver, limit=1)
        try:
            async with aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            ) as session:
                token, empty = "", 0
                while empty < _EMPTY_PAGES:
                    before = count.files
                    token = await _count_page(session, _url(source, uri, token), count)
                    if not token:
                        return
                    empty = 0 if count.files > before else empty + 1
        finally:
            await resolver.close()


async def _count_page(session: aiohttp.ClientSession, url: str, count: LimitCount) -> str:
    """Count what a page names, as it comes; gives the token of the next one, empty when none is to be had.

    Follows no redirection.
    """
    page, length = ListingPage(), 0
    # The host as it was signed.
    headers = {"Host": urlsplit(url).netloc, "Accept-Encoding": "identity"}
    try:
        async with session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                return ""
            async for part in answer.content.iter_any():
                length += len(part)
                if length > _LARGEST_PAGE:
                    break
                sizes = page.add(part)
                count.add(files=len(sizes), size=sum(sizes))
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return ""  # away, too slow, no HTTP, or no address
    return page.token


class ListingPage:
    """The text of a page of a listing, taken in part by part and not kept.

    Attributes:
        token: of the next page, as far as the text has come; empty for none.
    """

    def __init__(self) -> None:
        self.token = ""
        self._rest = b""

    def add(self, part: bytes) -> list[int]:
        """Take in a further part of the text; gives the sizes of the objects that it completes."""
        text, end, sizes = self._rest + part, 0, []
        for found in _FOUND.finditer(text):
            end = found.end()
            if found[1] is not None:
                sizes.append(int(found[1]))
            else:
                self.token = self.token or html.unescape(found[2].decode("utf-8", "replace"))
        self._rest = text[max(end, len(text) - _LONGEST) :]
        return sizes


class _Resolver(AbstractResolver):
    """Looks up the names of hosts in a thread of its own: a name server may be as slow as a store, and the threads of
    the event loop are for the operator's own work."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="source-host")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._thread, look_up)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _url(source: Source, uri: SourceUri, token: str) -> str:
    options, keys = source.reached_options, source.credentials
    endpoint = options.get("endpoint", "").rstrip("/")
    query: Mapping[str, str] = {
        "list-type": "2",
        "max-keys": str(_PAGE),
        **({"prefix": f"{uri.path}/"} if uri.path else {}),
        **({"continuation-token": token} if token else {}),
    }
    return object_url(
        endpoint=endpoint,
        bucket=uri.bucket,
        key="",
        region=options.get("region", _REGION),
        path_style=options.get("pathStyle", "true" if endpoint else "false") == "true",
        access_key_id=keys.access_key_id if keys is not None else "",
        secret_access_key=keys.secret_access_key if keys is not None else "",
        now=datetime.now(UTC),
        query=query,
    )
