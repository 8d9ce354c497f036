"""The listing of a repository of the Hugging Face Hub, by its API: the files of one commit, with the hashes by which
the Hub itself knows them."""

from dataclasses import dataclass
from typing import Annotated, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from tdcs.api.source_uri import parse_source_uri
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.web.counted_listing import CountedListing
from tdcs.listing.web.web_requests import CONNECT_SECONDS, SECONDS, WebRequests
from tdcs.model.cache_engine import Source
from tdcs.model.file_blocks import block_count, large_file
from tdcs.model.file_ids import plain_etag
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.model.web_address import DEFAULT_REVISION, REVISION

_LARGEST_PAGE: Final = 16 << 20
_MOST_PAGES: Final = 100_000

_Length = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


_Answer = TypeVar("_Answer")


class _Commit(msgspec.Struct, frozen=True):
    sha: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class _Large(msgspec.Struct, frozen=True):
    """A file that is kept outside of Git: its content's SHA-256, and its length."""

    oid: str
    size: _Length


class _Entry(msgspec.Struct, frozen=True):
    type: str
    path: str
    oid: str = ""
    size: _Length = 0
    lfs: _Large | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class HubListing(CountedListing):
    """The listing of one repository, or of a folder in it."""

    async def run(self) -> ManifestBuilder:
        """A builder with all files.

        Raises:
            LimitExceededError: There are more than the limit.
            SourceError: The Hub does not give all of its answers.
            OSError: The disk does not take what was found.
        """
        builder = self.builder()
        below = "/".join(parse_source_uri(self.source.uri).path.split("/")[2:])
        prefix = f"{below}/" if below else ""
        timeout = aiohttp.ClientTimeout(total=SECONDS, sock_connect=CONNECT_SECONDS)
        async with open_session(timeout, ca_bundle=self.source.ca_bundle, proxy=self.source.proxy) as session:
            requests = WebRequests(session, self.source, path=self.path)
            commit = await commit_of(requests, self.source)
            place = f"{requests.address.index}tree/{commit}/{quote(below)}".rstrip("/")
            query = "recursive=true"
            for _ in range(_MOST_PAGES):
                document = await requests.document(f"{place}?{query}", most=_LARGEST_PAGE)
                self._take(_decoded(requests, document.content, list[_Entry]), prefix, builder)
                # A mirror may name the Hub itself as the host of the next page: its query alone counts.
                if not document.next_page:
                    return builder
                query = document.next_page
        raise requests.failure(
            f"it has more than {_MOST_PAGES} pages", "Name a folder of it in spec.source.uri"
        )

    def _take(self, entries: list[_Entry], prefix: str, builder: ManifestBuilder) -> None:
        listed = []
        for entry in entries:
            if entry.type != "file" or not entry.path.startswith(prefix):
                continue
            length = entry.lfs.size if entry.lfs is not None else entry.size
            tag = plain_etag(entry.lfs.oid if entry.lfs is not None else entry.oid)
            path = entry.path.removeprefix(prefix).encode("utf-8", "surrogatepass")
            listed.append((path, length, tag.encode("utf-8", "replace")))
            self._count.add(files=block_count(length), size=length, largest=large_file(length, entry.path))
        builder.add_listed(listed)


async def commit_of(requests: WebRequests, source: Source) -> str:
    """The commit that the revision of a source stands for now. Raises SourceError."""
    revision = quote(source.options.get(REVISION, DEFAULT_REVISION), safe="")
    document = await requests.document(f"{requests.address.index}revision/{revision}", most=_LARGEST_PAGE)
    return _decoded(requests, document.content, _Commit).sha


def _decoded(requests: WebRequests, content: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise requests.failure(
            f"what answers is no Hugging Face Hub, nor a mirror of one: {error}",
            "Check spec.source.options.endpoint",
        ) from error
