"""Lists a claim through the pod that serves it: names, lengths and times, as an agent gives those of a folder."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec

from tdcs.listing.bucket_pages import open_session
from tdcs.listing.folder_listing import pages_of
from tdcs.model.agent_state import FolderCount, FolderLimit, FolderPage
from tdcs.model.cache_engine import Source, SourceError
from tdcs.model.claim_source import ClaimFolder, claim_folder, file_etag, folders_left_out
from tdcs.model.file_selection import selection_of
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.model.web_address import authorization

_SECONDS: Final = 4 * 3600.0
"""So long the pod may look through the claim: some 40,000 files a second on a disk, a thousand over a slow network."""
_SILENT_SECONDS: Final = 300.0
_CONNECT_SECONDS: Final = 10.0
_NO_LIMIT: Final = 1 << 62
_TIME_TAG: Final = b"mtime-ms:"


@dataclass(eq=False, slots=True, kw_only=True)
class ClaimListing:
    """The listing of one folder of a claim.

    Attributes:
        source: as its pod is reached.
        path: of the mount.
        limit: what it may have; None: anything.
        builder: gives an empty builder.
        size: what was listed.
    """

    source: Source
    path: str
    limit: ListingLimit | None
    builder: Callable[[], ManifestBuilder]
    size: SourcesSize = field(default=SourcesSize(), init=False)

    async def run(self) -> ManifestBuilder:
        """A builder with all files.

        Raises:
            LimitExceededError: There are more than the limit.
            SourceError: The pod does not answer, or cannot look through the folder.
            OSError: The disk does not take what was found.
        """
        where = claim_folder(self.source.uri, self.source.options)
        builder, end = self.builder(), None
        try:
            async with asyncio.timeout(_SECONDS):
                end = await self._listed(where, builder)
        except (
            aiohttp.ClientError,
            asyncio.IncompleteReadError,
            TimeoutError,
            ValueError,
            msgspec.MsgspecError,
        ) as error:
            reason = str(error) or type(error).__name__
            raise self._failure(
                f"the pod that serves {where} gives no whole answer: {reason}",
                "It is tried again; see the pod, and NetworkPolicies that keep the operator and the agents from it",
            ) from error
        if end is None or end.cut_off:
            raise self._failure(
                f"{where} is not listed to its end", "Name a folder of it with fewer files in spec.source.uri"
            )
        if end.failure:
            raise self._failure(f"{where}: {end.failure}", _remedy(end))
        count = LimitCount(self.limit, subject=self.source.uri, path=self.path)
        count.add(files=end.counted, size=end.bytes, folders=end.folders, largest=end.largest)
        return builder

    async def _listed(self, where: ClaimFolder, builder: ManifestBuilder) -> FolderCount | None:
        limit, keys = self.limit, self.source.credentials
        folder_limit = FolderLimit(
            folder=where.folder,
            files=limit.files if limit is not None else _NO_LIMIT,
            bytes=limit.bytes if limit is not None else None,
            seconds=_SECONDS,
            exclude=folders_left_out(selection_of(self.source.uri, self.source.options)),
            required=True,
        )
        headers = authorization(user="", password="", token=keys.session_token if keys is not None else "")
        limits = aiohttp.ClientTimeout(
            total=_SECONDS, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS
        )
        end: FolderCount | None = None
        async with (
            open_session(limits, certificate=self.source.ca_bundle) as session,
            session.post(
                f"{self.source.options['endpoint']}/v1/list",
                data=msgspec.msgpack.encode(folder_limit),
                headers=headers,
                allow_redirects=False,
            ) as response,
        ):
            if response.status != 200:
                raise ValueError(f"it answers {response.status}")
            async with aclosing(pages_of(response)) as pages:
                async for page in pages:
                    _take(page, builder)
                    end = page.end
        return end

    def _failure(self, reason: str, remedy: str) -> SourceError:
        return SourceError(attempted=f"list {self.source.uri}", reason=reason, remedy=remedy, path=self.path)


def _take(page: FolderPage, builder: ManifestBuilder) -> None:
    builder.add_listed([(path, length, _etag(tag, length)) for path, length, tag in page.files])
    for path in page.left_out:
        builder.leave_out(path, "it is neither a file nor a link to a file of the folder")


def _etag(tag: bytes, length: int) -> bytes:
    """The ETag that answers for the file have, by the time that the listing has."""
    return file_etag(int(tag.removeprefix(_TIME_TAG)), length).encode()


def _remedy(count: FolderCount) -> str:
    if count.unreadable:
        return (
            "Make it readable for everybody, or name the owner of the files, or their group, in "
            "spec.source.options.runAsUser and runAsGroup"
        )
    if count.refused:
        return "Correct the folder in spec.source.uri, which begins at the root of the claim, without symbolic links"
    return "See what is wrong with the volume"
