"""Lists a bucket by TDCS itself: names, counts, limits and writes in one pass over its pages.

Pages of one bucket come one after the other. A large one is split into ranges of keys, of which several are listed at a
time; that takes a store whose names come in order, as S3 promises. One of which they do not is listed as one range.

Some gateways make an ETag of something that is another one in each answer. By such tags every listing would be a new
version, of which everything is loaded again. So the first names are asked for twice; where only their ETags differ,
files are known by length and time instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import aiohttp

from tdcs.api.source_uri import SourceUri, parse_source_uri
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.early_manifests import EarlyManifests
from tdcs.listing.key_ranges import LANES, KeyRange, split
from tdcs.listing.listed_page import ListedPage
from tdcs.listing.listing_progress import ListingProgress, Page
from tdcs.listing.page_requests import PageRequests
from tdcs.listing.page_sink import page_sink
from tdcs.model.cache_engine import LimitExceededError, Source, SourceError
from tdcs.model.file_blocks import BLOCK_SIZE, NO_LARGE_FILE, block_count, large_file
from tdcs.model.file_folders import FolderCounter
from tdcs.model.file_ids import AS_OF
from tdcs.model.listing_limit import LimitCount, ListingLimit
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


_COMPARED: Final = 100
"""Names at the beginning of which the tags are asked for twice."""

_TRIES: Final = 20
"""Of each page but the first one: a store may be away for some five minutes in the middle of a listing, which then
goes on where it was."""

_Found = TypeVar("_Found")
_Files = dict[bytes, tuple[int, bytes]]
"""Lengths and tags of files by their paths."""


class UnorderedError(Exception):
    """A store gives names in no order: ranges of keys say nothing of it."""


class UnsteadyTagsError(Exception):
    """A store names another ETag of an object each time that it lists it, although the object stays the same."""


@dataclass(eq=False, slots=True)
class _Range:
    """A range of keys, as far as it is listed.

    Attributes:
        last: key of what came of it.
        names: files that it has.
        whole: whether its end was reached when the store said that there is nothing more; None: it goes on.
    """

    number: int
    keys: KeyRange
    last: bytes = field(init=False)
    folders: FolderCounter = field(default_factory=FolderCounter)
    names: int = 0
    whole: bool | None = None

    def __post_init__(self) -> None:
        self.last = self.keys.after


@dataclass(eq=False, slots=True, kw_only=True)
class BucketListing:
    """The listing of one bucket.

    Attributes:
        source: with its keys.
        path: of the mount.
        limit: what it may have; None: anything.
        builder: gives an empty builder: a second one when names come in no order.
        lanes: ranges at a time.
        progress: what an earlier process has listed, with which this one goes on; None: nothing.
        early: has what is listed so far loaded; None: nothing is.
        pages: how many have come.
    """

    source: Source
    path: str
    limit: ListingLimit | None
    builder: Callable[[], ManifestBuilder]
    lanes: int = LANES
    progress: ListingProgress | None = None
    early: EarlyManifests | None = None
    pages: int = field(default=0, init=False)
    _uri: SourceUri = field(init=False)
    _prefix: bytes = field(init=False)
    _count: LimitCount = field(init=False)
    _folders: int = field(default=0, init=False)
    _in_order: bool = field(default=True, init=False)
    _by_time: bool = field(default=False, init=False)
    _as_of: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._uri = parse_source_uri(self.source.uri)
        self._prefix = f"{self._uri.path}/".encode() if self._uri.path else b""
        # No page of Azure's begins behind a key, only where another one ended.
        # Nor does one of versions say where a range of keys ends.
        self._as_of = self.source.options.get(AS_OF, "")
        self._in_order = self._uri.scheme != "az" and not self._as_of
        self._begin()

    async def run(self) -> ManifestBuilder:
        """A builder with all files.

        Raises:
            LimitExceededError: There are more than the limit.
            SourceError: The store does not give all pages.
            OSError: The disk does not take what was found.
        """
        try:
            self._require_past()
            return await self._list()
        except OSError:  # what it has taken of the disk may be what the next one needs
            self._end()
            raise
        finally:
            if self.early is not None:
                await self.early.close()
            if self.progress is not None:
                self.progress.close()

    def _require_past(self) -> None:
        """What will be written is no part of a time that is pinned."""
        if self._as_of and datetime.fromisoformat(self._as_of) > datetime.now(UTC):
            raise SourceError(
                attempted=f"list {self.source.uri}",
                reason=f"the time {self._as_of} (spec.source.options.asOf) has not come yet",
                remedy="Create the Dataset again with a time in the past, or without asOf",
                path=self.path,
            )

    async def _list(self) -> ManifestBuilder:
        timeout = aiohttp.ClientTimeout(total=_PAGE_SECONDS, sock_connect=_CONNECT_SECONDS)
        bundle, proxy = self.source.ca_bundle, self.source.proxy
        async with open_session(timeout, connections=self.lanes, ca_bundle=bundle, proxy=proxy) as session:
            while True:
                builder = self.builder()
                try:
                    await (self._go_on if self._in_order else self._in_turn)(session, builder)
                    break
                except LimitExceededError:
                    self._end()
                    raise
                except UnorderedError:
                    _log.warning(
                        "%s names its objects in no order: they are listed one after the other",
                        self.source.uri,
                    )
                    self._in_order = False
                except UnsteadyTagsError:
                    _log.warning(
                        "%s names another ETag of the same object in each listing: files are known by their length and "
                        "the time of their last change",
                        self.source.uri,
                    )
                    self._by_time = True
                self._end()
                self._begin()
        self._end()
        return builder

    def _begin(self) -> None:
        self._count = LimitCount(self.limit, subject=self.source.uri, path=self.path)
        self._folders = self.pages = 0

    def _end(self) -> None:
        """Nobody goes on with this listing."""
        if self.progress is not None:
            self.progress.end()

    async def _go_on(self, session: aiohttp.ClientSession, builder: ManifestBuilder) -> None:
        """List in ranges what no earlier process has listed, and take what it has."""
        resumed = self.progress.resume() if self.progress is not None else None
        if resumed is None:
            await self._in_ranges(session, builder)
            return
        borders, pages = resumed
        ranges = [
            _Range(number, KeyRange(after=after, until=until))
            for number, (after, until) in enumerate(zip(borders, [*borders[1:], None], strict=True))
        ]
        for page in pages:
            range_ = ranges[page.range]
            self._take(page, builder, range_.folders)
            range_.last, range_.names = page.last or range_.last, range_.names + len(page.files)
            range_.whole = page.whole if page.ended else None
        if not all(_is_text(range_.last) for range_ in ranges):  # no request can go on behind it
            raise UnorderedError
        _log.info("the listing of %s goes on behind %d pages", self.source.uri, self.pages)
        self._offer(builder)
        await self._all_of(session, builder, ranges, token="")

    async def _in_ranges(self, session: aiohttp.ClientSession, builder: ManifestBuilder) -> None:
        requests = self._requests(session)
        page, token = await requests.page("", self._sink())
        if not page.in_order:
            raise UnorderedError
        await self._require_steady_tags(session, page)
        self._take(page, builder, FolderCounter())
        if not token:
            return
        self._offer(builder)
        keys = [KeyRange(after=page.last)]
        if self.lanes > 1 and page.last:
            keys = split(await self._borders(session), behind=page.last, lanes=self.lanes)
        if self.progress is not None and not self._by_time:  # nothing of it says by which tags it was listed
            first = _noted(page, number=0, ended=False, whole=False)
            self.progress.begin([key_range.after for key_range in keys], first)
        ranges = [_Range(number, key_range) for number, key_range in enumerate(keys)]
        await self._all_of(session, builder, ranges, token=token)

    async def _all_of(
        self, session: aiohttp.ClientSession, builder: ManifestBuilder, ranges: list[_Range], *, token: str
    ) -> None:
        """List what is left of all ranges. `token`: of the next page of the first one; empty: it is asked for by its
        last key, as those of the others are."""
        await _all(
            self._range(
                self._requests(
                    session, after=b"" if token and not range_.number else range_.last, tries=_TRIES
                ),
                builder,
                range_,
                token=token if not range_.number else "",
            )
            for range_ in ranges
            if range_.whole is None
        )
        for range_ in ranges:
            if not range_.whole and any(later.names for later in ranges[range_.number + 1 :]):
                self._end()
                raise SourceError(
                    attempted=f"list {self.source.uri}",
                    reason="its store says that there is nothing more in the middle of its names",
                    remedy="It is tried again; see what is wrong with the store if it goes on",
                    path=self.path,
                    retryable=True,
                )

    async def _range(
        self, requests: PageRequests, builder: ManifestBuilder, range_: _Range, *, token: str = ""
    ) -> None:
        """List what is left of a range. Raises UnorderedError."""
        keys, empty = range_.keys, 0
        while True:
            sink = self._sink(after=range_.last)
            page, token = await requests.page(token, sink)
            if page.first and (not page.in_order or page.first <= range_.last):
                raise UnorderedError
            passed = keys.has_passed(page.last)
            if passed:
                border = (keys.until or b"")[len(self._prefix) :]
                page.files = [file for file in page.files if file.path <= border]
            self._take(page, builder, range_.folders)
            range_.last, range_.names = page.last or range_.last, range_.names + len(page.files)
            empty = 0 if page.first else empty + 1
            ended, whole = passed or not token, passed or keys.until is None
            self._note(page, number=range_.number, ended=ended, whole=whole)
            if ended:
                range_.whole = whole
                return
            self._offer(builder)
            self._require_names(empty)

    def _note(self, page: ListedPage, *, number: int, ended: bool, whole: bool) -> None:
        """Have another process find what came, if this one is killed."""
        if self.progress is not None and not self._by_time:
            self.progress.add(_noted(page, number=number, ended=ended, whole=whole))

    async def _in_turn(self, session: aiohttp.ClientSession, builder: ManifestBuilder) -> None:
        """List a store of which nothing is known of the order of names."""
        requests, token, empty, folders = self._requests(session), "", 0, FolderCounter()
        has_versions = not self._as_of
        while True:
            is_first = not token
            page, token = await requests.page(token, self._sink())
            if is_first:
                await self._require_steady_tags(session, page)
            self._take(page, builder, folders)
            has_versions |= page.has_versions
            empty = 0 if page.first or page.has_versions else empty + 1
            if not token:
                break
            self._offer(builder)
            self._require_names(empty)
        if not has_versions:
            raise SourceError(
                attempted=f"list {self.source.uri} as of {self._as_of} (spec.source.options.asOf)",
                reason="none of its objects has a version: the bucket keeps none, or nothing was written since it does",
                remedy="Have the bucket keep versions, or create the Dataset again without asOf",
                path=self.path,
            )

    async def _require_steady_tags(self, session: aiohttp.ClientSession, first: ListedPage) -> None:
        """Compare the tags of a listing's first page with those that the store names now. Raises UnsteadyTagsError."""
        if self._by_time or self._uri.scheme != "s3" or self._as_of or not first.files:
            return
        now = await self._first_files(session)
        if not (changed := _changed(_by_path(first), now)):
            return
        before = await self._first_files(session, by_time=True)
        changed &= _changed(now, await self._first_files(session))
        after = await self._first_files(session, by_time=True)
        if any(before.get(path) == after.get(path) is not None for path in changed):
            raise UnsteadyTagsError

    async def _first_files(self, session: aiohttp.ClientSession, *, by_time: bool = False) -> _Files:
        requests = self._requests(session, names=_COMPARED)
        page, _ = await requests.page("", page_sink(self._uri, self._prefix, by_time=by_time))
        return _by_path(page)

    def _sink(self, *, after: bytes = b"") -> Callable[[], ListedPage]:
        return page_sink(self._uri, self._prefix, after=after, by_time=self._by_time, as_of=self._as_of)

    async def _borders(self, session: aiohttp.ClientSession) -> list[bytes]:
        """Prefixes of keys, from as deep as it takes to have some for each lane. A store that does not group names has
        none."""
        borders, ahead = list[bytes](), [self._prefix]
        for _ in range(_DEPTH):
            deeper = [group for below in ahead for group in await self._groups(session, below)]
            ahead = [group for group in deeper if _is_text(group)]
            borders += ahead
            if not ahead or len(borders) >= 2 * self.lanes:
                break
        return borders

    async def _groups(self, session: aiohttp.ClientSession, below: bytes) -> list[bytes]:
        """Prefixes of keys up to the next slash, of which a folder may have more than are looked at."""
        requests = self._requests(session, prefix=below, delimiter="/")
        groups, token = list[bytes](), ""
        for _ in range(_PREFIX_PAGES):
            page, token = await requests.page(token, page_sink(self._uri, below))
            groups += page.folders
            if not token:
                break
        return groups

    def _requests(
        self,
        session: aiohttp.ClientSession,
        *,
        after: bytes = b"",
        prefix: bytes | None = None,
        delimiter: str = "",
        names: int | None = None,
        tries: int | None = None,
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
            names=names,
            tries=_TRIES if delimiter else tries,
        )

    def _take(self, page: ListedPage | Page, builder: ManifestBuilder, folders: FolderCounter) -> None:
        """Count the files of a page, and give them to the builder; raises LimitExceededError."""
        self.pages += 1
        files = page.files
        sizes = [length for _, length, _ in files]
        largest = NO_LARGE_FILE
        counted = len(sizes)
        if sizes and max(sizes) > BLOCK_SIZE:
            counted = sum(map(block_count, sizes))
            largest = max(large_file(length, name.decode("utf-8", "replace")) for name, length, _ in files)
        self._count.add(files=counted, size=sum(sizes), largest=largest)
        self._folders += sum(folders.add(name) for name, _, _ in files)
        if self.limit is not None and self._folders > _FOLDERS_TOO_MANY * self.limit.files:
            self._count.add(files=0, size=0, folders=self._folders)
        builder.add_listed(files)
        for path in page.unspelled:
            builder.leave_out(
                path, "the store spells its name with U+FFFD: a character of it does not fit into XML"
            )

    def _offer(self, builder: ManifestBuilder) -> None:
        if self.early is not None:
            self.early.offer(builder)

    def _require_names(self, empty: int) -> None:
        if empty >= _EMPTY_PAGES:
            raise SourceError(
                attempted=f"list {self.source.uri}",
                reason=f"its store gives {_EMPTY_PAGES} pages without an object in turn, and says that there are more",
                remedy="See what is wrong with the store, or name a folder with files in spec.source.uri",
                path=self.path,
            )


def _by_path(page: ListedPage) -> _Files:
    return {file.path: (file.length, file.tag) for file in page.files}


def _changed(before: _Files, after: _Files) -> set[bytes]:
    """Files with another tag and the same length."""
    return {
        path
        for path, (length, tag) in after.items()
        if path in before and before[path][0] == length and before[path][1] != tag
    }


def _noted(page: ListedPage, *, number: int, ended: bool, whole: bool) -> Page:
    files = [(path, length, tag) for path, length, tag in page.files]
    return Page(number, files, page.unspelled, page.last, ended, whole)


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
