"""Counts the objects of a bucket at the store, page by page and no further than a limit, before a cache learns a name.

An Alluxio master that lists a source keeps all names of it, and has no memory left where there are millions.
"""

import asyncio
import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from tdcs.api.source_uri import SourceUri, parse_source_uri
from tdcs.engine.protocol import Source
from tdcs.engine.signed_request import object_url
from tdcs.listing.limit import LimitCount, ListingLimit

_PAGE: Final = 1000
"""Names in a page: the most that S3 gives."""
_LARGEST_PAGE: Final = 16 << 20
"""Bytes: a thousand names of 1,024 bytes, each of them escaped, and what is said of each."""
_EMPTY_PAGES: Final = 100
"""So many pages without a name are no listing."""
_REGION: Final = "us-east-1"

_SIZE: Final = re.compile(rb"<Size>(\d{1,19})</Size>")
_TOKEN: Final = re.compile(rb"<NextContinuationToken>([^<]*)</NextContinuationToken>")


async def check_size(source: Source, limit: ListingLimit, *, path: str) -> None:
    """Count the objects of a bucket, as far as the limit. A folder is not counted here, and of a store that gives no
    listing the cache's own says why.

    Args:
        source: with its keys.
        limit: what it may have.
        path: its place in the cache, for the message.

    Raises:
        LimitExceededError: It has more.
    """
    uri = parse_source_uri(source.uri)
    if uri.scheme == "s3":
        await asyncio.to_thread(_count, source, uri, LimitCount(limit, what=source.uri, path=path))


def _count(source: Source, uri: SourceUri, count: LimitCount) -> None:
    token, empty = "", 0
    with PoolManager(timeout=Timeout(connect=10, read=60)) as pool:
        while empty < _EMPTY_PAGES:
            page = _page(pool, _url(source, uri, token))
            sizes = [int(size) for size in _SIZE.findall(page)]
            count.add(files=len(sizes), size=sum(sizes))
            found = _TOKEN.search(page)
            if found is None:
                return
            token = html.unescape(found[1].decode("utf-8", "replace"))
            empty = 0 if sizes else empty + 1


def _page(pool: PoolManager, url: str) -> bytes:
    """The text of a page; empty when there is none to be had. Follows no redirection."""
    try:
        answer = pool.request("GET", url, redirect=False, retries=False, preload_content=False)
        try:
            return answer.read(_LARGEST_PAGE) if answer.status == 200 else b""
        finally:
            answer.close()
    except HTTPError:
        return b""


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
