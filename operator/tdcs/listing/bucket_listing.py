"""Lists a bucket by TDCS itself: names, counts, limits and writes in one pass over its pages.

Pages of one bucket come one after the other. A large one is split into ranges of keys, of which several are listed at a
time; that takes a store whose names come in order, as S3 promises. One of which they do not is listed as one range.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp

from tdcs.api.source_uri import SourceUri, parse_source_uri
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.key_ranges import LANES, KeyRange, split
from tdcs.listing.listed_page import ListedPage
from tdcs.listing.page_requests import PageRequests
from tdcs.model.cache_engine import Source, SourceError
from tdcs.model.file_blocks import BLOCK_SIZE, NO_LARGE_FILE, block_count, large_file
from tdcs.model.file_folders import FolderCounter
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize
from tdcs.model.manifest_builder import ManifestBuilder

_log: Final = logging.getLogger(__name__)

_PAGE_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0
_EMPTY_PAGES: Final = 100
"""So many pages in turn that name nothing are no listing."""
_DEPTH: Final = 4
"""Folders in each other that are looked through for prefixes to split by."""
_PREFIX_PAGES: Final = 4
"""Pages of prefixes that are looked at."""
_FOLDERS_TOO_MANY: Final = 4
"""Folders count exactly only when all names are in order. While they come, so many times the limit may be counted."""


_TRIES: Final = 20
"""Of each page but the first one: a store may be away for some five minutes in the middle of a listing, which then
goes on where it was."""

_Found = TypeVar("_Found")


class UnorderedError(Exception):
    """A store gives names in no order: ranges of keys say nothing of it."""


@dataclass(eq=False, slots=True, kw_only=True)
class BucketListing:
    """The listing of one bucket.

    Attributes:
        source: with its keys.
        path: of the mount.
        limit: what it may have; None: anything.
        builder: gives an empty builder: a second one when names come in no order.
        lanes: ranges at a time.
        pages: how many have come.
    """

    source: Source
    path: str
    limit: ListingLimit | None
    builder: Callable[[], ManifestBuilder]
    lanes: int = LANES
    pages: int = field(default=0, init=False)
    _uri: SourceUri = field(init=False)
    _prefix: bytes = field(init=False)
    _count: LimitCount = field(init=False)
    _folders: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._uri = parse_source_uri(self.source.uri)
        self._prefix = f"{self._uri.path}/".encode() if self._uri.path else b""
        self._begin()

    async def run(self) -> ManifestBuilder:
        """A builder with all files.

        Raises:
            LimitExceededError: There are more than the limit.
            SourceError: The store does not give all pages.
            OSError: The disk does not take what was found.
        """
        timeout = aiohttp.ClientTimeout(total=_PAGE_SECONDS, sock_connect=_CONNECT_SECONDS)
        async with open_session(timeout, connections=self.lanes, ca_bundle=self.source.ca_bundle) as session:
            builder = self.builder()
            try:
                await self._in_ranges(session, builder)
            except UnorderedError:
                _log.warning(
                    "%s names its objects in no order: they are listed one after the other", self.source.uri
                )
                self._begin()
                builder = self.builder()
                await self._in_turn(session, builder)
        return builder

    @property
    def size(self) -> SourcesSize:
        """What has come so far; folders roughly, see `_FOLDERS_TOO_MANY`."""
        size = self._count.size
        return SourcesSize(
            files=size.files + self._folders, folders=self._folders, bytes=size.bytes, largest=size.largest
        )

    def _begin(self) -> None:
        self._count = LimitCount(self.limit, what=self.source.uri, path=self.path)
        self._folders = self.pages = 0

    async def _in_ranges(self, session: aiohttp.ClientSession, builder: ManifestBuilder) -> None:
        requests = self._requests(session)
        page, token = await requests.page("", functools.partial(ListedPage, self._prefix))
        if not page.in_order:
            raise UnorderedError
        self._take(page, builder, FolderCounter())
        if not token:
            return
        if self.lanes < 2 or not page.last:
            await self._range(requests, builder, KeyRange(after=page.last), token=token)
            return
        ranges = split(await self._borders(session), behind=page.last, lanes=self.lanes)
        rest = [self._requests(session, after=each.after) for each in ranges[1:]]
        found = await _all(
            self._range(each, builder, keys, token=token if each is requests else "")
            for each, keys in zip([requests, *rest], ranges, strict=True)
        )
        for number, (whole, _) in enumerate(found):
            if not whole and any(names for _, names in found[number + 1 :]):
                raise SourceError(
                    attempted=f"list {self.source.uri}",
                    reason="its store says that there is nothing more in the middle of its names",
                    remedy="It is tried again; see what is wrong with the store if it goes on",
                    path=self.path,
                    retryable=True,
                )

    async def _range(
        self, requests: PageRequests, builder: ManifestBuilder, keys: KeyRange, *, token: str = ""
    ) -> tuple[bool, int]:
        """List a range of keys; whether its end was reached, and how many files it has. Raises UnorderedError."""
        last, folders, empty, names = keys.after, FolderCounter(), 0, 0
        while True:
            page, token = await requests.page(token, functools.partial(ListedPage, self._prefix))
            if page.first and (not page.in_order or page.first <= last):
                raise UnorderedError
            ended = keys.has_passed(page.last)
            if ended:
                border = (keys.until or b"")[len(self._prefix) :]
                page.files = [file for file in page.files if file.path <= border]
            self._take(page, builder, folders)
            last, names = page.last or last, names + len(page.files)
            empty = 0 if page.first else empty + 1
            if ended or not token:
                return ended or keys.until is None, names
            self._require_names(empty)

    async def _in_turn(self, session: aiohttp.ClientSession, builder: ManifestBuilder) -> None:
        """List a store of which nothing is known of the order of names."""
        requests, token, empty, folders = self._requests(session), "", 0, FolderCounter()
        while True:
            page, token = await requests.page(token, functools.partial(ListedPage, self._prefix))
            self._take(page, builder, folders)
            empty = 0 if page.first else empty + 1
            if not token:
                return
            self._require_names(empty)

    async def _borders(self, session: aiohttp.ClientSession) -> list[bytes]:
        """Prefixes of keys, from as deep as it takes to have some for each lane. A store that does not group names has
        none."""
        found, ahead = list[bytes](), [self._prefix]
        for _ in range(_DEPTH):
            deeper = [group for below in ahead for group in await self._groups(session, below)]
            ahead = [group for group in deeper if _is_text(group)]
            found += ahead
            if not ahead or len(found) >= 2 * self.lanes:
                break
        return found

    async def _groups(self, session: aiohttp.ClientSession, below: bytes) -> list[bytes]:
        """Prefixes of keys up to the next slash, of which a folder may have more than are looked at."""
        requests = self._requests(session, prefix=below, delimiter="/")
        found, token = list[bytes](), ""
        for _ in range(_PREFIX_PAGES):
            page, token = await requests.page(token, functools.partial(ListedPage, below))
            found += page.folders
            if not token:
                break
        return found

    def _requests(
        self,
        session: aiohttp.ClientSession,
        *,
        after: bytes = b"",
        prefix: bytes | None = None,
        delimiter: str = "",
    ) -> PageRequests:
        return PageRequests(
            session,
            self.source,
            self._uri,
            path=self.path,
            prefix=prefix.decode() if prefix is not None else None,
            after=after.decode(),
            delimiter=delimiter,
            encoded=True,
            tries=_TRIES if after or delimiter else None,
        )

    def _take(self, page: ListedPage, builder: ManifestBuilder, folders: FolderCounter) -> None:
        """Count the files of a page, and give them to the builder; raises LimitExceededError."""
        self.pages += 1
        files = page.files
        sizes = [file.length for file in files]
        largest = NO_LARGE_FILE
        counted = len(sizes)
        if sizes and max(sizes) > BLOCK_SIZE:
            counted = sum(map(block_count, sizes))
            largest = max(large_file(file.length, file.path.decode("utf-8", "replace")) for file in files)
        self._count.names += len(files)
        self._count.add(files=counted, size=sum(sizes), largest=largest)
        self._folders += sum(folders.add(file.path) for file in files)
        if self.limit is not None and self._folders > _FOLDERS_TOO_MANY * self.limit.files:
            self._count.add(files=0, size=0, folders=self._folders)
        builder.add_listed(files)
        for path in page.unspelled:
            builder.leave_out(
                path, "the store spells its name with U+FFFD: a character of it does not fit into XML"
            )

    def _require_names(self, empty: int) -> None:
        if empty >= _EMPTY_PAGES:
            raise SourceError(
                attempted=f"list {self.source.uri}",
                reason=f"its store gives {_EMPTY_PAGES} pages without an object in turn, and says that there are more",
                remedy="See what is wrong with the store, or name a folder with files in spec.source.uri",
                path=self.path,
            )


def _is_text(prefix: bytes) -> bool:
    """Whether a request can name it."""
    try:
        prefix.decode()
    except UnicodeDecodeError:
        return False
    return True


async def _all(works: Iterable[Coroutine[Any, Any, _Found]]) -> list[_Found]:
    """What several works give; the first failure ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
