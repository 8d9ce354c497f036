"""Which kind of page the store of a source gives."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from tdcs.api.source_uri import SourceUri
from tdcs.listing.azure_page import AzurePage
from tdcs.listing.google_page import GooglePage
from tdcs.listing.listed_page import ListedPage
from tdcs.listing.version_page import VersionPage


def page_sink(
    uri: SourceUri, prefix: bytes, *, after: bytes = b"", by_time: bool = False, as_of: str = ""
) -> Callable[[], ListedPage]:
    """What gives an empty sink for a page of a source.

    Args:
        prefix: what all keys begin with.
        after: the key behind which the listing goes on.
        by_time: whether the ETags of an S3 store say nothing.
        as_of: the time of which an S3 source is seen; empty: now.
    """
    match uri.scheme:
        case "gs":
            return partial(GooglePage, prefix, after=after)
        case "az":
            return partial(AzurePage, prefix)
    if as_of:
        return partial(VersionPage, prefix, as_of=datetime.fromisoformat(as_of))
    return partial(ListedPage, prefix, by_time=by_time)
