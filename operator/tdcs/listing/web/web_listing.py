"""The listing of a folder of a web server: what a page, a list or the Dataset itself names, and what the server says of
each file."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_from_bytes, urlsplit

import aiohttp

from tdcs.api.source_uri import parse_source_uri
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.path_patterns import matcher_of
from tdcs.listing.web.counted_listing import CountedListing
from tdcs.listing.web.file_names import NamedFile, NamesError, is_below, is_page, named_files, page_links
from tdcs.listing.web.web_requests import CONNECT_SECONDS, LANES, SECONDS, WebRequests
from tdcs.model.file_blocks import block_count, large_file
from tdcs.model.file_selection import selection_of
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.model.web_address import FILES, INDEX

_LARGEST_LIST: Final = 96 << 20
_LARGEST_PAGE: Final = 16 << 20
_AT_ONCE: Final = 512
"""Files that are asked about before they are counted."""
_MOST_DEPTH: Final = 64
_MOST_FOLDERS: Final = 100_000


@dataclass(eq=False, slots=True, kw_only=True)
class WebListing(CountedListing):
    """The listing of one folder."""

    _requests: WebRequests = field(init=False)
    _builder: ManifestBuilder = field(init=False)

    async def run(self) -> ManifestBuilder:
        """A builder with all files.

        Raises:
            LimitExceededError: There are more than the limit.
            SourceError: The server does not give the documents that name them, or does not say how long they are.
            OSError: The disk does not take what was found.
        """
        self._builder = self.builder()
        timeout = aiohttp.ClientTimeout(total=SECONDS, sock_connect=CONNECT_SECONDS)
        bundle, proxy = self.source.ca_bundle, self.source.proxy
        async with open_session(timeout, connections=LANES, ca_bundle=bundle, proxy=proxy) as session:
            self._requests = WebRequests(session, self.source, path=self.path)
            async for files in self._named():
                await self._take(files)
        return self._builder

    async def _named(self) -> AsyncIterator[Iterable[NamedFile]]:
        """Files as they are named, in parts."""
        options = self.source.options
        if names := [name for name in options.get(FILES, "").split("\n") if name]:
            yield [NamedFile(name.encode()) for name in names]
            return
        address = self._requests.address
        document = await self._requests.document(address.index, most=_LARGEST_LIST)
        if not is_page(document.content):
            if INDEX not in options:
                raise self._requests.failure(
                    "the document at its address is no HTML page with links",
                    "Name the document that lists the files in spec.source.options.index, or the files in "
                    "spec.source.options.files",
                )
            yield named_files(document.content)
            return
        async for files in self._linked(document.content):
            yield files

    async def _linked(self, page: bytes) -> AsyncIterator[Iterable[NamedFile]]:
        """Files that a page links to, and pages of folders below it."""
        address = self._requests.address
        uri = parse_source_uri(self.source.uri)
        hosts = {urlsplit(address.origin).netloc, uri.bucket} if uri.scheme != "hf" else set()
        listed_files, folders, waiting = set[bytes](), {b""}, [(b"", page)]
        index = self.source.options.get(INDEX, "").encode()
        while waiting:
            folder, content = waiting.pop()
            links = page_links(content, base=address.folder, folder=folder, hosts=hosts)
            fresh = [file for file in links.files if file not in listed_files and file != index]
            listed_files.update(fresh)
            yield [NamedFile(file) for file in fresh]
            below = [
                subfolder
                for subfolder in links.folders
                if subfolder not in folders and subfolder.count(b"/") <= _MOST_DEPTH
            ]
            folders.update(below)
            if len(folders) > _MOST_FOLDERS:
                reason = f"its pages link to more than {_MOST_FOLDERS} folders"
                raise self._requests.failure(reason, "Name its files in spec.source.options.index")
            for subfolder in below:
                place = address.folder + quote_from_bytes(subfolder, safe="/-_.~")
                document = await self._requests.document(place, most=_LARGEST_PAGE)
                waiting.append((subfolder, document.content))

    async def _take(self, files: Iterable[NamedFile]) -> None:
        """Ask about files of which not all is known, and give them to the builder; raises LimitExceededError."""
        is_taken = matcher_of(selection_of(self.source.uri, self.source.options))
        try:
            chosen = (file for file in files if is_taken(file.path))
            while part := list(itertools.islice(chosen, _AT_ONCE)):
                entries = await asyncio.gather(*(self._of(file) for file in part))
                listed = [file for file in entries if file is not None]
                self._count.add(
                    files=sum(block_count(length) for _, length, _ in listed),
                    size=sum(length for _, length, _ in listed),
                    largest=max(
                        (large_file(length, path.decode("utf-8", "replace")) for path, length, _ in listed),
                        default=large_file(0, ""),
                    ),
                )
                self._builder.add_listed(listed)
        except NamesError as error:
            raise self._requests.failure(
                f"the document that names its files cannot be read: {error}",
                "Correct it: lines of names, lines of sha256sum, or JSON with path, size and sha256 of each file",
            ) from error

    async def _of(self, file: NamedFile) -> tuple[bytes, int, bytes] | None:
        """A file as it is listed; None where it is left out."""
        if not is_below(file.path):
            self._builder.leave_out(file.path, "its name is no path below the source")
            return None
        if file.tag and file.length is not None:
            return file.path, file.length, file.tag
        facts = await self._requests.facts(file.path)
        if facts is None:
            self._builder.leave_out(file.path, "the server has no file of that name (404)")
            return None
        if file.length is not None and file.length != facts.length:
            reason = f"the server has {facts.length} bytes of it, and the list says {file.length}"
            self._builder.leave_out(file.path, reason)
            return None
        named = NamedFile(file.path, facts.length, file.sha256)
        return file.path, facts.length, named.tag or facts.tag
