"""Asks a store whether it still takes the keys of a Dataset, by a page of one name: cheap, and no listing."""

import asyncio
import re
from dataclasses import replace
from typing import Final, Protocol

import aiohttp

from tdcs.api.source_uri import parse_source_uri
from tdcs.listing.bucket_pages import ask, open_session, page_url
from tdcs.listing.namespace_share import NamespaceShare
from tdcs.model.cache_engine import KeysRefusedError, Source

_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10.0
_AT_ONCE: Final = 64
"""Stores that are asked at a time; the others wait."""
_OF_ONE_NAMESPACE: Final = 8
"""So many of them are of one namespace at most: its slow stores keep no other namespace waiting."""
_LONGEST: Final = 65_536
"""Bytes of an answer that are looked at."""
_REFUSED: Final = frozenset({401, 403})
_NOT_THE_KEYS: Final = re.compile(rb"<Code>RequestTimeTooSkewed</Code>")
"""Refused for a clock that is wrong, which says nothing of the keys."""
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_TOKEN: Final = re.compile(rb"<Code>(Expired|Invalid)Token</Code>")
"""What Amazon calls a bad request, and is a key that counts no more."""


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
        if parse_source_uri(source.uri).scheme != "s3" or source.credentials is None:
            return False
        try:
            # In this order: who waits for others of its namespace takes no place from anybody.
            async with self._share.of(namespace), self._places:
                status, text, region = await self._answer(source)
                if status != 200 and "region" not in source.options and _REGION.fullmatch(region):
                    # A bucket is known in its own region only, which Amazon says of any bucket.
                    there = replace(source, options={**source.options, "region": region})
                    status, text, _ = await self._answer(there)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False
        refused = status in _REFUSED and not _NOT_THE_KEYS.search(text)
        if refused or (status == 400 and _TOKEN.search(text)):
            raise KeysRefusedError(
                attempted=f"open {source.uri}",
                reason=f"the source refused the credentials ({status})",
                remedy="Check accessKeyId and secretAccessKey in the Secret of spec.source.secretRef",
            )
        return status == 200

    async def _answer(self, source: Source) -> tuple[int, bytes, str]:
        """The status and the beginning of a store's answer, and the region that it names."""
        url = page_url(source, parse_source_uri(source.uri), names=1)
        async with open_session(self._timeout) as session, ask(session, url) as answer:
            text = await answer.content.read(_LONGEST)
            return answer.status, text, answer.headers.get("x-amz-bucket-region", "")
