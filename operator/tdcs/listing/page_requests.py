"""Asks a store for the pages of a bucket's listing, each until it has come whole.

A page that did not come whole is no page: what it named is forgotten, and it is asked for again. A listing that ends
early, because a store was busy or a proxy cut an answer off, would look like files that were deleted.
"""

import asyncio
import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import aiohttp

from tdcs.api.source_uri import DEFAULT_REGION, SourceUri
from tdcs.decide.error_document import LONGEST_ANSWER
from tdcs.engine.tls_failures import explain_certificate
from tdcs.listing.bucket_pages import ask, page_request
from tdcs.listing.store_answers import PageRefusal, error_of, kind_of, no_answer, not_trusted, refusal
from tdcs.model.cache_engine import Source

PAGE: Final = 1000
"""Names in a page: the most that S3 gives."""
LARGEST_PAGE: Final = 16 << 20
"""Bytes: a thousand names of 1,024 bytes, each of them escaped, and what is said of each."""

_FIRST_TRIES: Final = 2
"""For the first page: the caller tries again by its own rhythm."""
_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.2
_MOST_PAUSE: Final = 20.0


class PageError(Exception):
    """What came is no whole page, or none that follows the one before. The text says why, for people."""


class PageSink(Protocol):
    """Takes in the text of one page, part by part."""

    def add(self, part: bytes) -> None: ...

    def finish(self) -> str:
        """The page has come to its end: the token of the next one, empty for the last; raises PageError."""
        ...


Sink = TypeVar("Sink", bound=PageSink)


async def read_document(answer: aiohttp.ClientResponse) -> bytes:
    """The beginning of the document of an answer, in as many parts as it comes in."""
    document = b""
    async for part in answer.content.iter_any():
        document += part
        if len(document) >= LONGEST_ANSWER:
            break
    return document[:LONGEST_ANSWER]


class PageRequests:
    """The requests of one listing.

    Args:
        session: with the store.
        path: of the mount, for messages.
        prefix: what all names begin with; None: that of the source.
        after: of the first page: the key before its first one.
        delimiter: names are grouped by what they have up to it, behind the prefix.
        encoded: whether names come so spelled that XML can hold any of them.
        names: in a page at most; None: as many as S3 gives.
        tries: of each page; None: few of the first one, before which nothing was done that would be lost.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        source: Source,
        uri: SourceUri,
        *,
        path: str,
        prefix: str | None = None,
        after: str = "",
        delimiter: str = "",
        encoded: bool = False,
        names: int | None = None,
        tries: int | None = None,
    ) -> None:
        self._session: Final = session
        self._source = source
        self._uri: Final = uri
        self._path: Final = path
        self._request: Final = functools.partial(
            page_request,
            names=names or PAGE,
            prefix=prefix,
            after=after,
            delimiter=delimiter,
            encoded=encoded,
        )
        self._tries: Final = tries
        self._pages = 0
        self._chance: Final = random.Random()  # noqa: S311 - spreads requests, and keeps no secret

    async def page(self, token: str, sink: Callable[[], Sink]) -> tuple[Sink, str]:
        """The page of a token, as a sink took it in, and the token of the next page.

        Args:
            token: empty for the first page.
            sink: gives an empty one, once for each try.

        Raises:
            SourceError: The store gives no such page.
        """
        tries = self._tries or (_TRIES if self._pages else _FIRST_TRIES)
        for attempt in itertools.count(1):
            page, wait = sink(), 0.0
            try:
                refused = await self._try(token, page)
                if refused is None:
                    after = page.finish()
                    if after and after == token:
                        raise PageError("it names itself as the next page")
                    self._pages += 1
                    return page, after
                failure = error_of(refused, attempted=f"list {self._source.uri}", path=self._path)
                wait = refused.retry_after
                if not refused.passes:
                    raise failure
            except aiohttp.ClientConnectorCertificateError as error:
                why = explain_certificate(str(error.certificate_error))
                raise not_trusted(why, uri=self._source.uri, path=self._path) from error
            except (aiohttp.ClientError, TimeoutError, PageError, ValueError) as error:
                failure = no_answer(_plain(error), uri=self._source.uri, path=self._path)
            if attempt == tries:
                raise failure
            most = min(_FIRST_PAUSE * 2.0**attempt, _MOST_PAUSE)
            await asyncio.sleep(max(wait, self._chance.uniform(most / 2, most)))
        raise AssertionError("it is counted without end")

    async def _try(self, token: str, sink: PageSink) -> PageRefusal | None:
        """Ask once; why there is no page, None when it came."""
        refused = await self._ask(token, sink)
        if refused is not None and (regional := in_region_of(refused, self._source)) is not None:
            self._source = regional
            refused = await self._ask(token, sink)
        return refused

    async def _ask(self, token: str, sink: PageSink) -> PageRefusal | None:
        request = self._request(self._source, self._uri, token=token)
        async with ask(self._session, request) as answer:
            if answer.status != 200:
                return refusal(
                    answer.status,
                    await read_document(answer),
                    region=answer.headers.get("x-amz-bucket-region", ""),
                    retry_after=answer.headers.get("Retry-After", ""),
                    keyless=is_keyless(self._source),
                    kind=kind_of(self._source.uri),
                )
            length = 0
            async for part in answer.content.iter_any():
                length += len(part)
                if length > LARGEST_PAGE:
                    raise PageError(f"a page has more than {LARGEST_PAGE} bytes")
                sink.add(part)
        return None


def is_keyless(source: Source) -> bool:
    return source.credentials is None or not source.credentials.secrets


def in_region_of(refused: PageRefusal, source: Source) -> Source | None:
    """The source as it is asked in the region that its store names, None where it was asked there: a bucket is known
    in its own region only, which Amazon says of any bucket."""
    region, asked_in = refused.answer.region, source.options.get("region", DEFAULT_REGION)
    if not region or region == asked_in:
        return None
    return replace(source, options={**source.options, "region": region})


def _plain(error: Exception) -> str:
    """What went wrong, without the address that was asked for: it is signed."""
    if isinstance(error, PageError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy of its rule (spec.sources[].proxy) answers {error.status}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return (
            f"no connection with {error.host}:{error.port}: {error.strerror or type(error.os_error).__name__}"
        )
    return type(error).__name__
