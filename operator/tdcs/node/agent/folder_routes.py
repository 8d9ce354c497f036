"""Folders of the node as the operator has them counted and listed: several at a time, each in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from aiohttp import web

from tdcs.model.agent_state import PAGE_LENGTH_BYTES, FolderLimit, FolderPage
from tdcs.node.agent.mount.folder_count import count_folder, list_folder

_PLACES: Final = 8
"""Folders that are counted or listed at a time: twice as many as the operator's listings of one namespace, of which
each hangs at one agent, so that its folders keep no other namespace waiting."""
_SLACK_SECONDS: Final = 60.0
"""So much longer than its limit a listing may take, for whoever takes the names in."""
_MSGPACK: Final = "application/msgpack"


def folder_routes(*, only: str | None = None) -> list[web.RouteDef]:
    """`/v1/count` answers with a `FolderCount`, `/v1/list` with pages, one `FolderPage` after the other.

    Args:
        only: the folder that is looked into, whichever one is asked for; None: any.
    """
    # Threads of their own: those that read and check files stay free while a folder hangs.
    threads = ThreadPoolExecutor(_PLACES, thread_name_prefix="folder")
    free = asyncio.Semaphore(_PLACES)

    async def limit_of(request: web.Request) -> FolderLimit:
        try:
            limit = msgspec.msgpack.decode(await request.read(), type=FolderLimit)
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text="the body is no folder with its limits\n") from error
        if only is not None:
            limit = msgspec.structs.replace(limit, folder=only)
        if free.locked():  # a folder that hangs keeps its place, and the others have other agents
            raise web.HTTPServiceUnavailable(text=f"{_PLACES} folders are counted here already\n")
        return limit

    async def count(request: web.Request) -> web.Response:
        limit = await limit_of(request)
        async with free:
            folder_count = await asyncio.get_running_loop().run_in_executor(threads, count_folder, limit)
        return web.Response(body=msgspec.msgpack.encode(folder_count), content_type=_MSGPACK)

    async def names(request: web.Request) -> web.StreamResponse:
        limit = await limit_of(request)
        response = web.StreamResponse(headers={"Content-Type": _MSGPACK})
        async with free, asyncio.timeout(limit.seconds + _SLACK_SECONDS):
            await response.prepare(request)
            pages = list_folder(limit)
            while (
                page := await asyncio.get_running_loop().run_in_executor(threads, _next, pages)
            ) is not None:
                content = msgspec.msgpack.encode(page)
                await response.write(len(content).to_bytes(PAGE_LENGTH_BYTES, "little") + content)
        return response

    return [web.post("/v1/count", count), web.post("/v1/list", names)]


def _next(pages: Iterator[FolderPage]) -> FolderPage | None:
    return next(pages, None)
