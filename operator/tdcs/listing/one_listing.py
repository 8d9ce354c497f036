"""One listing in this process: through the cache's master, by TDCS itself, or both beside each other."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import msgspec

from tdcs.api.source_uri import CLAIM_SCHEME, CLOUD_SCHEMES, parse_source_uri
from tdcs.decide.source_loss import has_lost
from tdcs.listing.bucket_listing import BucketListing
from tdcs.listing.claim_listing import ClaimListing
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import NO_AGENTS, FolderAgents, FolderListing
from tdcs.listing.listing_progress import progress_of
from tdcs.listing.path_patterns import matcher_of
from tdcs.listing.result import Listed
from tdcs.listing.web.hub_listing import HubListing
from tdcs.listing.web.web_listing import WebListing
from tdcs.model.cache_engine import Engine, EngineError, NoSuchPathError, Source
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.file_selection import ALL_FILES, FileSelection, selection_of
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize
from tdcs.model.manifest_builder import ManifestBuilder


async def list_mount(
    *,
    engine: Engine,
    path: str,
    refresh: bool,
    folder: ManifestFolder,
    limit: ListingLimit | None = None,
    selection: FileSelection = ALL_FILES,
) -> Listed:
    """List a mount of an engine in this process. Sorting and writing run in a thread; raises EngineError."""
    begun = time.monotonic()
    source = (await engine.mounts()).get(path)
    if source is None:
        raise NoSuchPathError.not_mounted(path=path, attempted=f"list {path}")
    builder = ManifestBuilder(
        path=path, source=source, scratch=folder.scratch, is_taken=matcher_of(selection)
    )
    count = LimitCount(limit, what=source, path=path)
    with _disk_errors(path=path, folder=folder):
        async for page in engine.files(path=path, refresh=refresh):
            count.add_page(page)
            builder.add(page)
        return await asyncio.to_thread(_written, builder, folder, begun=begun)


async def list_source(
    *,
    source: Source,
    path: str,
    folder: ManifestFolder,
    limit: ListingLimit | None = None,
    agents: FolderAgents = NO_AGENTS,
    cut: Cut = WHOLE_BLOCKS,
) -> Listed:
    """List a source without any engine, in this process.

    Args:
        source: with its keys.
        path: of the mount.
        agents: list it if it is a folder.
        cut: how files are cut into blocks.

    Raises:
        EngineError: As `tdcs.listing.bucket_listing.BucketListing.run` or
            `tdcs.listing.folder_listing.FolderListing.run`, and when the disk is full.
    """
    begun = time.monotonic()
    with _disk_errors(path=path, folder=folder):
        filled, _ = await _named(source, path, folder, limit, agents, cut)
        found = await asyncio.to_thread(_written, filled, folder, begun=begun)
    # Folders were counted roughly while names came.
    LimitCount(limit, what=source.uri, path=path).add_size(found.size)
    return found


async def list_both(
    *,
    engine: Engine,
    source: Source,
    path: str,
    refresh: bool,
    folder: ManifestFolder,
    limit: ListingLimit | None = None,
    agents: FolderAgents = NO_AGENTS,
) -> Listed:
    """List a mounted source by TDCS itself, and ask the engine for nothing but the ids of its blocks.

    Names, lengths and tags are the source's. The engine learns of it only when all of it was listed, and it is no
    more than the limit, nor less than `ListingLimit.loss` says: what an engine does not find any more it forgets. A
    file that the engine does not know, or with another length, is incomplete.

    Args:
        source: with its keys.
        refresh: see `Lister`.

    Raises:
        EngineError: As `list_source`, and as `tdcs.model.cache_engine.Engine.files`.
    """
    begun = time.monotonic()
    with _disk_errors(path=path, folder=folder):
        filled, size = await _named(source, path, folder, limit, agents)
        loss = limit.loss if limit is not None else None
        if loss is not None and has_lost(before=loss.before, now=size, percent=loss.percent):
            found = await asyncio.to_thread(_written, filled, folder, begun=begun)
            return msgspec.structs.replace(found, names_only=True)
        count = LimitCount(limit, what=source.uri, path=path)
        async for page in engine.files(path=path, refresh=refresh):
            count.add_page(page)
            filled.add_blocks(page)
        return await asyncio.to_thread(_written, filled, folder, begun=begun)


async def _named(
    source: Source,
    path: str,
    folder: ManifestFolder,
    limit: ListingLimit | None,
    agents: FolderAgents,
    cut: Cut = WHOLE_BLOCKS,
) -> tuple[ManifestBuilder, SourcesSize]:
    """What a store says that it has, or agents of a folder, and how much that is."""

    def builder() -> ManifestBuilder:
        is_taken = matcher_of(selection_of(source.uri, source.options))
        return ManifestBuilder(
            path=path, source=source.uri, scratch=folder.scratch, is_taken=is_taken, cut=cut
        )

    scheme = parse_source_uri(source.uri).scheme
    if scheme == CLAIM_SCHEME:
        claim = ClaimListing(source=source, path=path, limit=limit, builder=builder)
        return await claim.run(), claim.size
    if scheme == "file":
        folders = FolderListing(source=source, path=path, limit=limit, builder=builder, agents=agents)
        return await folders.run()
    if scheme in ("s3", *CLOUD_SCHEMES):
        progress = progress_of(folder, source, path=path)
        bucket = BucketListing(source=source, path=path, limit=limit, builder=builder, progress=progress)
        return await bucket.run(), bucket.size
    kinds: dict[str, type[HubListing | WebListing]] = {
        "http": WebListing,
        "https": WebListing,
        "hf": HubListing,
    }
    listing = kinds[scheme](source=source, path=path, limit=limit, builder=builder)
    return await listing.run(), listing.size


def _written(builder: ManifestBuilder, folder: ManifestFolder, *, begun: float) -> Listed:
    digest = folder.write(builder)
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
