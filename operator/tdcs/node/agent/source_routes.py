"""Buckets and web sources as the operator has them counted from another node, by a listing process of this node."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.result import source_of
from tdcs.model.agent_state import SourceCount, SourceToCount
from tdcs.model.cache_engine import EngineError, LimitExceededError
from tdcs.model.file_blocks import EXTENTS
from tdcs.model.listing_limit import ListingLimit

_FOLDER: Final = ".counted"
"""Where the listing writes, below the manifests that are used: what it wrote is removed once it is counted."""
_MSGPACK: Final = "application/msgpack"


def source_routes(manifests: ManifestFolder) -> list[web.RouteDef]:
    """`/v1/count-source` answers with a `SourceCount`. One source is counted at a time; others have other agents."""
    folder = ManifestFolder(manifests.path / _FOLDER, confined=manifests.confined)
    free = asyncio.Semaphore(1)

    async def count(request: web.Request) -> web.Response:
        try:
            request_body = msgspec.msgpack.decode(await request.read(), type=SourceToCount)
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text="the body is no source to count\n") from error
        if free.locked():
            raise web.HTTPServiceUnavailable(text="a source is counted here already\n")
        async with free:
            source_count = await _counted(request_body, folder)
        return web.Response(body=msgspec.msgpack.encode(source_count), content_type=_MSGPACK)

    return [web.post("/v1/count-source", count)]


async def _counted(request: SourceToCount, folder: ManifestFolder) -> SourceCount:
    source = source_of(request.source)
    lister = ProcessLister(
        folder=folder,
        limit_seconds=request.seconds,
        secrets=lambda _path: source.credentials.secrets if source.credentials is not None else (),
        source_of=lambda _path: source,
        cut=EXTENTS,
    )
    try:
        listing = await lister.list(path=request.mount, refresh=True, limit=ListingLimit(files=request.files))
    except LimitExceededError:
        return SourceCount(files=request.files + 1)
    except EngineError as error:
        return SourceCount(failure=str(error))
    finally:
        await asyncio.to_thread(folder.prune, keep=())
    return SourceCount(files=listing.size.files, bytes=listing.size.bytes)
