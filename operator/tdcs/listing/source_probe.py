"""Asks a source for the first answer of a listing: whether it is there, and takes the keys."""

from typing import Final

import aiohttp

from tdcs.api.source_uri import is_web, parse_source_uri
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.page_requests import PageRequests
from tdcs.listing.page_sink import page_sink
from tdcs.listing.web.hub_listing import commit_of
from tdcs.listing.web.web_requests import CONNECT_SECONDS, WebRequests
from tdcs.model.cache_engine import Source
from tdcs.model.web_address import FILES

_SECONDS: Final = 30.0


async def probe(source: Source, *, path: str | None, tries: int = 2) -> None:
    """Ask a bucket for a page of its names, or a web server for the first document or file.

    Args:
        path: of the mount, for messages.
        tries: of each request to a web server.

    Raises:
        SourceError: It does not answer as a source does.
        KeysRefusedError: It refuses the keys.
    """
    uri = parse_source_uri(source.uri)
    timeout = aiohttp.ClientTimeout(total=_SECONDS, sock_connect=CONNECT_SECONDS)
    async with open_session(
        timeout, connections=1, ca_bundle=source.ca_bundle, proxy=source.proxy
    ) as session:
        if not is_web(source.uri):
            prefix = f"{uri.path}/".encode() if uri.path else b""
            pages = PageRequests(session, source, uri, path=path or "", encoded=True)
            await pages.page("", page_sink(uri, prefix))
            return
        requests = WebRequests(session, source, path=path, tries=tries)
        if uri.scheme == "hf":
            await commit_of(requests, source)
        elif first := source.options.get(FILES, "").partition("\n")[0]:
            await requests.facts(first.encode())
        else:
            await requests.reach(requests.address.index)
