"""Counts the objects of a bucket, and the folders in their names, at the store, page by page and no further than a
limit, before a cache learns a name.

An Alluxio master that lists a source keeps all names of it, and has no memory left where there are millions.
"""

import asyncio
import copy
import functools
import html
import re
from typing import Final, NamedTuple

import aiohttp

from tdcs.api.source_uri import SourceUri, parse_source_uri
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.namespace_share import NamespaceShare
from tdcs.listing.page_requests import PAGE, PageError, PageRequests
from tdcs.model.cache_engine import Source, SourceError
from tdcs.model.file_blocks import NO_LARGE_FILE, LargeFile, block_count
from tdcs.model.file_folders import FolderCounter
from tdcs.model.file_ids import AS_OF
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize

_EMPTY_PAGES: Final = 100
"""So many pages that name nothing new are no listing."""
_AT_ONCE: Final = 64
"""Sources that are counted at a time. Each has a connection, and its page is not kept, so slow stores cost little."""
_OF_ONE_NAMESPACE: Final = 8
"""So many of them are of one namespace at most: its slow stores keep no other namespace waiting."""
_PAGE_SECONDS: Final = 60.0
"""So long a page may take, from the connection to its last byte."""
_CONNECT_SECONDS: Final = 10.0
_SECONDS: Final = 60.0
_SECONDS_OF_A_PAGE: Final = 2.0
"""So long a whole count may take, and so much longer for each page within the limit: stores need some 0.1 s a page."""

_FOUND: Final = re.compile(
    rb"<Size>(\d{1,19})</Size>|<NextContinuationToken>([^<]{1,8192})</NextContinuationToken>"
    rb"|<Key>([^<]{1,8192})</Key>|<Contents>|<IsTruncated>(true|false)</IsTruncated>|(</ListBucketResult>)"
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
        of_one_namespace: so many of them for the Datasets of one namespace.
    """

    def __init__(
        self,
        *,
        page_seconds: float = _PAGE_SECONDS,
        seconds: float = _SECONDS,
        at_once: int = _AT_ONCE,
        of_one_namespace: int = _OF_ONE_NAMESPACE,
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=page_seconds, sock_connect=_CONNECT_SECONDS)
        self._seconds = seconds
        self._places = asyncio.Semaphore(at_once)
        self._share = NamespaceShare(of_one_namespace)

    async def __call__(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize | None:
        """Count the objects of a bucket and their folders, as far as the limit; None for a folder of nodes.

        Args:
            source: with its keys.
            limit: what it may have.
            path: its place in the cache, for the message.

        Raises:
            LimitExceededError: It has more.
            SourceError: Its store does not give all pages in time, each of them whole.
        """
        uri = parse_source_uri(source.uri)
        if uri.scheme != "s3" or source.options.get(AS_OF):
            return None
        seconds = self._seconds + _SECONDS_OF_A_PAGE * limit.files / PAGE
        counted = [LimitCount(limit, what=source.uri, path=path)]
        # In this order: who waits for others of its namespace takes no place from anybody.
        async with self._share.of(namespace), self._places:
            try:
                async with asyncio.timeout(seconds):
                    await self._count(source, uri, counted)
            except TimeoutError:
                raise SourceError(
                    attempted=f"count the objects of {source.uri}",
                    reason=f"its store has named {counted[-1].names} of them in {seconds:.0f} s, and there are more",
                    remedy="See why the store lists so slowly, or name a folder with fewer files in spec.source.uri",
                    path=path,
                ) from None
        return counted[-1].size

    async def _count(self, source: Source, uri: SourceUri, counted: list[LimitCount]) -> None:
        """Put the count after each page in place of the one before: of a page that is asked for again counts only what
        came in the end."""
        async with open_session(self._timeout, ca_bundle=source.ca_bundle, proxy=source.proxy) as session:
            requests = PageRequests(session, source, uri, path=counted[-1].path)
            token, empty = "", 0
            folders = FolderCounter(below=_below(uri))
            while empty < _EMPTY_PAGES:
                page, token = await requests.page(token, functools.partial(CountedPage, counted[-1], folders))
                # Objects, and folders without any.
                empty = 0 if page.count.files > counted[-1].files else empty + 1
                counted[:], folders = [page.count], page.folders
                if not token:
                    return
        raise SourceError(
            attempted=f"count the objects of {source.uri}",
            reason=f"its store gives {_EMPTY_PAGES} pages without an object in turn, and says that there are more",
            remedy="See what is wrong with the store, or name a folder with files in spec.source.uri",
            path=counted[-1].path,
        )


def _below(uri: SourceUri) -> bytes:
    """What all keys of a source have before its own names."""
    return f"{uri.path}/".encode() if uri.path else b""


class CountedPage:
    """A page that is counted as it comes, beside what was counted before it.

    Attributes:
        count: with this page.
        folders: those of the keys so far.
    """

    def __init__(self, count: LimitCount, folders: FolderCounter) -> None:
        self.count: Final = copy.copy(count)
        self.folders: Final = copy.copy(folders)
        self._page: Final = ListingPage(self.folders)

    def add(self, part: bytes) -> None:
        """Raises LimitExceededError."""
        found = self._page.add(part)
        self.count.add_sizes(found.sizes, folders=found.folders, largest=self._page.largest)

    def finish(self) -> str:
        if not self._page.is_whole:
            raise PageError("a page was cut off")
        return self._page.token


class Objects(NamedTuple):
    """Objects of a listing: their sizes, and their further folders, see `FolderCounter`."""

    sizes: list[int]
    folders: int


class ListingPage:
    """The text of a page of a listing, taken in part by part and not kept.

    Args:
        folders: counts those of the keys; it has counted those of the pages before.

    Attributes:
        token: of the next page, as far as the text has come; empty for none.
        largest: the object that counts the most of all so far, if that is more than once.
    """

    def __init__(self, folders: FolderCounter) -> None:
        self.token = ""
        self.largest = NO_LARGE_FILE
        self._truncated = False
        self._ended = False
        self._counter: Final = folders
        self._name = ""
        """Of the object that is being read; empty where its size comes first."""
        self._marker = False
        """Whether it is a name of a folder that was not counted before."""
        self._rest = b""

    @property
    def is_whole(self) -> bool:
        """Whether all of its text has come, with the token of the next page if there is one."""
        return self._ended and (bool(self.token) or not self._truncated)

    def add(self, part: bytes) -> Objects:
        """Take in a further part of the text; gives what it completes."""
        text, end, sizes, folders = self._rest + part, 0, [], 0
        for found in _FOUND.finditer(text):
            end = found.end()
            size, token, key, truncated, ended = found.groups()
            if size is not None:
                if self._marker and not int(size):
                    continue  # consoles make these for folders: the cache's master has the folder alone
                sizes.append(int(size))
                if sizes[-1] > self.largest.size and block_count(sizes[-1]) > 1:
                    self.largest = LargeFile(sizes[-1], self._name)
            elif token is not None:
                self.token = self.token or _text(token)
            elif key is not None:
                self._name = _text(key)
                further = self._counter.add(self._name.encode())
                self._marker = further > 0 and self._name.endswith("/")
                folders += further
            elif truncated is not None:
                self._truncated = truncated == b"true"
            elif ended is not None:
                self._ended = True
            else:
                self._name, self._marker = "", False
        self._rest = text[max(end, len(text) - _LONGEST) :]
        return Objects(sizes, folders)


def _text(escaped: bytes) -> str:
    return html.unescape(escaped.decode("utf-8", "replace"))
