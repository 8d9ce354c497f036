"""Asks a store whether it still takes the keys of a Dataset, by a page of one name: cheap, and no listing."""

import asyncio
from typing import Final, Protocol

import aiohttp

from tdcs.api.source_uri import is_web, parse_source_uri
from tdcs.listing.bucket_pages import ask, open_session, page_request
from tdcs.listing.namespace_share import NamespaceShare
from tdcs.listing.page_requests import in_region_of, is_keyless, read_document
from tdcs.listing.source_probe import probe
from tdcs.listing.store_answers import PageRefusal, error_of, kind_of, refusal
from tdcs.model.cache_engine import EngineError, KeysRefusedError, Source

_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_AT_ONCE: Final = 64
"""Stores that are asked at a time; the others wait."""
_OF_ONE_NAMESPACE: Final = 8
"""So many of them are of one namespace at most: its slow stores keep no other namespace waiting."""


class CheckKeys(Protocol):
    """Asks a source whether it takes its keys."""

    async def __call__(self, source: Source, *, namespace: str) -> bool:
        """Whether it said so to a Dataset of this namespace; raises KeysRefusedError when it refuses them. A store that
        is away, or says something else, says neither."""
        ...


async def unchecked(source: Source, *, namespace: str) -> bool:
    """`CheckKeys` for a cache without real sources: no word, so that no Dataset with keys joins a mount of others."""
    return False


class SourceKeys:
    """Asks buckets: the operator's `CheckKeys`.

    Args:
        seconds: so long an answer of a store may take. Those of one namespace wait for each other before that.
    """

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._share = NamespaceShare(_OF_ONE_NAMESPACE)

    async def __call__(self, source: Source, *, namespace: str) -> bool:
        if source.credentials is None:
            return False
        try:
            # In this order: who waits for others of its namespace takes no place from anybody.
            async with self._share.of(namespace), self._places:
                if is_web(source.uri):
                    return await _web_takes(source)
                refused = await self._refusal(source)
                if refused is not None and (regional := in_region_of(refused, source)) is not None:
                    refused = await self._refusal(regional)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False
        if refused is None:
            return True
        error = error_of(refused, attempted=f"open {source.uri}", path=None)
        if isinstance(error, KeysRefusedError):
            raise error
        return False

    async def _refusal(self, source: Source) -> PageRefusal | None:
        """Why a store gives no page; None when it does."""
        request = page_request(source, parse_source_uri(source.uri), names=1)
        async with (
            open_session(self._timeout, ca_bundle=source.ca_bundle, proxy=source.proxy) as session,
            ask(session, request) as answer,
        ):
            if answer.status == 200:
                return None
            region = answer.headers.get("x-amz-bucket-region", "")
            document = await read_document(answer)
            return refusal(
                answer.status, document, region=region, keyless=is_keyless(source), kind=kind_of(source.uri)
            )


async def _web_takes(source: Source) -> bool:
    """Whether a web server takes the credentials; raises KeysRefusedError when it refuses them."""
    try:
        await probe(source, path=None, tries=1)
    except KeysRefusedError:
        raise
    except EngineError:
        return False
    return True
