"""One listing of a source in this process."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from tdcs.api.source_uri import CLAIM_SCHEME, CLOUD_SCHEMES, parse_source_uri
from tdcs.listing.bucket_listing import BucketListing
from tdcs.listing.claim_listing import ClaimListing
from tdcs.listing.early_manifests import EarlyManifests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import NO_AGENTS, FolderAgents, FolderListing
from tdcs.listing.listing_progress import progress_of
from tdcs.listing.path_patterns import matcher_of
from tdcs.listing.result import Listed
from tdcs.listing.web.hub_listing import HubListing
from tdcs.listing.web.web_listing import WebListing
from tdcs.model.cache_engine import EngineError, Source
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.file_selection import selection_of
from tdcs.model.listing_limit import LimitCount, ListingLimit
from tdcs.model.manifest_builder import ManifestBuilder


async def list_source(
    *,
    source: Source,
    path: str,
    folder: ManifestFolder,
    limit: ListingLimit | None = None,
    agents: FolderAgents = NO_AGENTS,
    cut: Cut = WHOLE_BLOCKS,
    tell: Callable[[Listed], None] | None = None,
) -> Listed:
    """List a source in this process.

    Args:
        source: with its keys.
        path: of the mount.
        agents: list it if it is a folder.
        cut: how files are cut into blocks.
        tell: called with what a bucket's listing has so far, now and then; None: nobody asks.

    Raises:
        EngineError: As `tdcs.listing.bucket_listing.BucketListing.run` or
            `tdcs.listing.folder_listing.FolderListing.run`, and when the disk is full.
    """
    begun = time.monotonic()
    with _disk_errors(path=path, folder=folder):
        filled = await _named(source, path, folder, limit, agents, cut, tell)

        def check() -> None:
            # Folders were counted roughly while names came.
            LimitCount(limit, subject=source.uri, path=path).add_size(filled.summary.size)

        return await asyncio.to_thread(_written, filled, folder, begun=begun, check=check)


async def _named(
    source: Source,
    path: str,
    folder: ManifestFolder,
    limit: ListingLimit | None,
    agents: FolderAgents,
    cut: Cut,
    tell: Callable[[Listed], None] | None,
) -> ManifestBuilder:
    """What a store says that it has, or agents of a folder."""

    def builder() -> ManifestBuilder:
        is_taken = matcher_of(selection_of(source.uri, source.options))
        return ManifestBuilder(
            path=path, source=source.uri, scratch=folder.scratch, is_taken=is_taken, cut=cut
        )

    scheme = parse_source_uri(source.uri).scheme
    if scheme == CLAIM_SCHEME:
        return await ClaimListing(source=source, path=path, limit=limit, builder=builder).run()
    if scheme == "file":
        return await FolderListing(
            source=source, path=path, limit=limit, builder=builder, agents=agents
        ).run()
    if scheme in ("s3", *CLOUD_SCHEMES):
        progress = progress_of(folder, source, path=path)
        bucket = BucketListing(
            source=source,
            path=path,
            limit=limit,
            builder=builder,
            progress=progress,
            early=EarlyManifests(folder=folder, tell=tell) if tell is not None else None,
        )
        return await bucket.run()
    kinds: dict[str, type[HubListing | WebListing]] = {
        "http": WebListing,
        "https": WebListing,
        "hf": HubListing,
    }
    return await kinds[scheme](source=source, path=path, limit=limit, builder=builder).run()


def _written(
    builder: ManifestBuilder, folder: ManifestFolder, *, begun: float, check: Callable[[], None]
) -> Listed:
    digest = folder.write(builder, check=check)
    # By what was added up on the way: to read it again takes memory for each file.
    return Listed(digest=digest, seconds=time.monotonic() - begun, **builder.summary._asdict())


@contextlib.contextmanager
def _disk_errors(*, path: str, folder: ManifestFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(
            attempted=f"write the manifest of {path} into {folder.path}",
            reason=error.strerror or str(error),
            remedy="See whether the disk is full",
            path=path,
            retryable=True,
        ) from error
