"""Asks web servers for documents and for what they say of files, each until it has come whole.

A redirection is followed only where `tdcs.decide.redirection` lets it lead, and credentials go to the source's own
server alone.
"""

import asyncio
import functools
import itertools
import random
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from tdcs.decide.redirection import MOST_REDIRECTIONS, REDIRECTIONS, Hop, next_hop, refused_address
from tdcs.decide.store_refusal import StoreKind
from tdcs.engine.tls_failures import explain_certificate
from tdcs.listing.page_requests import read_document
from tdcs.listing.store_answers import PageRefusal, error_of, no_answer, not_trusted, refusal
from tdcs.model.cache_engine import Source, SourceError
from tdcs.model.file_ids import known_tag, plain_etag
from tdcs.model.web_address import authorization, web_address

LANES: Final = 16
"""Requests at a time."""
SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 10.0

_FIRST_TRIES: Final = 2
"""Of the first request: the caller tries again by its own rhythm."""
_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.2
_MOST_PAUSE: Final = 20.0
_PART: Final = re.compile(r"bytes (?:\d{1,19}-\d{1,19}|\*)/(\d{1,19})", re.IGNORECASE)
_GONE: Final = frozenset({404, 410})
_WITHOUT_HEAD: Final = frozenset({400, 403, 405, 501})
"""Answers of servers that do not know HEAD, or do not allow it: the file itself is asked for."""

_Found = TypeVar("_Found")


class FileFacts(NamedTuple):
    """What a server says of a file: its length, and its tag as a manifest has it."""

    length: int
    tag: bytes


class Document(NamedTuple):
    """A document that came whole. `next_page`: query of the URL that its header Link names as the next one."""

    content: bytes
    next_page: str


class WebRequests:
    """The requests of one listing.

    Args:
        session: with the server.
        source: with its keys.
        path: of the mount, for messages.
        tries: of each request but the first one.
    """

    def __init__(
        self, session: aiohttp.ClientSession, source: Source, *, path: str | None, tries: int = _TRIES
    ) -> None:
        keys = source.credentials
        self.address: Final = web_address(source.uri, source.reached_options)
        self._session: Final = session
        self._source: Final = source
        self._path: Final = path
        self._tries: Final = tries
        self._keyless: Final = keys is None or not keys.secrets
        named = {"Host": self.address.host} if self.address.host else {}
        auth_headers: dict[str, str] = {}
        if keys is not None:
            auth_headers = authorization(
                user=keys.access_key_id, password=keys.secret_access_key, token=keys.session_token
            )
        self._own_headers: Final = named | auth_headers
        self._has_answered = False
        self._chance: Final = random.Random()  # noqa: S311 - spreads requests, and keeps no secret

    async def document(self, place: str, *, most: int) -> Document:
        """The document at a place of the source's server.

        Args:
            place: path and query, encoded.
            most: bytes that it may have.

        Raises:
            EngineError: It does not come.
        """
        return await self._patiently(place, functools.partial(self._document, place, most))

    async def reach(self, place: str) -> None:
        """Have the server answer for a document, of which nothing is read. Raises EngineError."""
        await self._patiently(place, functools.partial(self._reach, place))

    async def facts(self, file: bytes) -> FileFacts | None:
        """What the server says of a file; None when it has none of that name. Raises EngineError."""
        place = self.address.file(file).removeprefix(self.address.origin)
        return await self._patiently(place, functools.partial(self._facts, place))

    def failure(self, reason: str, remedy: str) -> SourceError:
        """The failure of the listing for what a document says."""
        return SourceError(
            attempted=f"list {self._source.uri}", reason=reason, remedy=remedy, path=self._path
        )

    async def _document(self, place: str, most: int) -> Document:
        async with self._open("GET", place) as answer:
            if answer.status != 200:
                raise await self._refused(answer)
            content = bytearray()
            async for part in answer.content.iter_any():
                content += part
                if len(content) > most:
                    reason = f"the document {place} has more than {most >> 20} MiB"
                    raise self.failure(reason, "Name the files in several Datasets, or one on each line")
            following = answer.links.get("next")
            return Document(bytes(content), URL(str(following["url"])).raw_query_string if following else "")

    async def _reach(self, place: str) -> None:
        async with self._open("GET", place) as answer:
            if answer.status != 200:
                raise await self._refused(answer)
            answer.close()

    async def _facts(self, place: str) -> FileFacts | None:
        async with self._open("HEAD", place) as answer:
            if answer.status in _GONE:
                return None
            if answer.status == 200 and (facts := _facts_of(answer)) is not None:
                return facts
            if answer.status != 200 and answer.status not in _WITHOUT_HEAD:
                raise await self._refused(answer)
        async with self._open("GET", place, {"Range": "bytes=0-0"}) as answer:
            if answer.status in _GONE:
                return None
            if answer.status not in (200, 206, 416):
                raise await self._refused(answer)
            facts = _facts_of(answer)
            answer.close()  # one that takes no notice of ranges sends all of it
            if facts is not None:
                return facts
        raise self.failure(
            f"the server does not say how long {place} is, or packs it on its way",
            "Have it give files as they are, with Content-Length, or leave the file out by spec.source.exclude",
        )

    async def _refused(self, answer: aiohttp.ClientResponse) -> "_RefusedError":
        return _RefusedError(
            refusal(
                answer.status,
                await read_document(answer),
                retry_after=answer.headers.get("Retry-After", ""),
                keyless=self._keyless,
                kind=StoreKind.WEB,
            )
        )

    @asynccontextmanager
    async def _open(
        self, method: str, place: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask, and ask where the answer redirects to; raises SourceError for a redirection that is not followed."""
        hop = Hop(f"{self.address.origin}{place}", own=True)
        for _ in range(MOST_REDIRECTIONS + 1):
            sent = {
                "Accept-Encoding": "identity",
                **(headers or {}),
                **(self._own_headers if hop.own else {}),
            }
            async with self._session.request(
                method,
                URL(hop.url, encoded=True),
                headers=sent,
                allow_redirects=False,
                # An authority of the administrator's is trusted for the source alone.
                ssl=ssl.create_default_context() if hop.checked else True,
            ) as answer:
                location = answer.headers.get("Location", "")
                if answer.status not in REDIRECTIONS or not location:
                    yield answer
                    return
            hop = next_hop(
                url=hop.url,
                location=location,
                origin=self.address.origin,
                host=self.address.host,
                allowed=self._source.redirects,
                proxied=bool(self._source.proxy),
            )
            why = hop.refusal or (await _wrong_host(hop.url) if hop.checked else "")
            if why:
                raise self._redirected(place, why)
        raise self._redirected(place, f"it redirects more than {MOST_REDIRECTIONS} times")

    def _redirected(self, place: str, why: str) -> SourceError:
        remedy = (
            "Name the address at which the files are in spec.source.uri, or ask the administrator for a rule"
        )
        return self.failure(f"the server does not give {place}: {why}", remedy)

    async def _patiently(self, place: str, attempt: Callable[[], Awaitable[_Found]]) -> _Found:
        tries = self._tries if self._has_answered else _FIRST_TRIES
        uri, failure, wait = self._source.uri, None, 0.0
        for number in itertools.count(1):
            try:
                answer = await attempt()
                self._has_answered = True
                return answer
            except _RefusedError as error:
                refused = error.refused
                failure = error_of(refused, attempted=f"list {uri} ({place})", path=self._path)
                wait = refused.retry_after
                if not refused.passes:
                    raise failure from error
            except aiohttp.ClientConnectorCertificateError as error:
                why = explain_certificate(str(error.certificate_error))
                raise not_trusted(why, uri=uri, path=self._path) from error
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                failure, wait = no_answer(_plain(error), uri=uri, path=self._path), 0.0
            if number >= tries:
                raise failure
            most = min(_FIRST_PAUSE * 2.0**number, _MOST_PAUSE)
            await asyncio.sleep(max(wait, self._chance.uniform(most / 2, most)))
        raise AssertionError("it is counted without end")


class _RefusedError(Exception):
    """An answer is none that was asked for."""

    def __init__(self, refused: PageRefusal) -> None:
        super().__init__(str(refused.answer.said))
        self.refused = refused


def _facts_of(answer: aiohttp.ClientResponse) -> FileFacts | None:
    """What headers say; None where they do not say the length of the file as it is stored."""
    headers = answer.headers
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        return None
    if answer.status == 200:
        length = headers.get("Content-Length", "")
    else:
        part = _PART.fullmatch(headers.get("Content-Range", "").strip())
        length = part[1] if part is not None else ""
    if not length.isascii() or not length.isdigit() or (answer.status == 416 and length != "0"):
        return None
    return FileFacts(int(length), _tag(headers.get("ETag", ""), headers.get("Last-Modified", "")))


def _tag(etag: str, modified: str) -> bytes:
    if plain := plain_etag(etag):
        return known_tag(plain).encode("utf-8", "replace")
    try:
        return b"mtime-ms:%d" % (round(parsedate_to_datetime(modified).timestamp()) * 1000)
    except (ValueError, OverflowError):
        return b""


async def _wrong_host(url: str) -> str:
    """Why the host of a redirection is not followed to, by its addresses; empty where it is."""
    parts = urlsplit(url)
    look_up = functools.partial(
        socket.getaddrinfo, parts.hostname, parts.port or 443, type=socket.SOCK_STREAM
    )
    try:
        addresses = await asyncio.to_thread(look_up)
    except OSError:
        return f"it redirects to {parts.hostname}, which has no address"
    return next(filter(None, (refused_address(str(address[4][0])) for address in addresses)), "")


def _plain(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy of its rule (spec.sources[].proxy) answers {error.status}"
    if isinstance(error, aiohttp.ClientConnectorError):
        why = error.strerror or type(error.os_error).__name__
        return f"no connection with {error.host}:{error.port}: {why}"
    return type(error).__name__
