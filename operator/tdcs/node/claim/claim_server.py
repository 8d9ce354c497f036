"""The HTTP service of a pod that has a claim: the names of its files, as an agent gives those of a folder, and ranges
of their bytes. Every caller shows the token of the pod's Secret, and no other folder than the one is ever looked into.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import hmac
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from aiohttp import web

from tdcs.listing.web.file_names import is_below
from tdcs.model.claim_source import FILES_PATH
from tdcs.node.agent.folder_routes import folder_routes
from tdcs.node.claim.claim_files import OpenFile, is_unchanged, open_file

_CHUNK: Final = 1 << 20
_THREADS: Final = 32
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_LEADS_OUT: Final = frozenset({errno.ELOOP, errno.EXDEV})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, *_LEADS_OUT})

_Found = TypeVar("_Found")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ClaimServer:
    """The service of one folder.

    Args:
        folder: absolute; no step to it is a link.
        token: what callers show; they are refused without.

    Attributes:
        asked_at: when a caller with the token last asked, or had its answer, on the clock of `time.monotonic`.
    """

    def __init__(self, *, folder: str, token: str) -> None:
        self._folder: Final = os.fsencode(folder)
        self._authorization: Final = f"Bearer {token}".encode()
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="file")
        self.asked_at = time.monotonic()

        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        self.application: Final = web.Application(middlewares=[guard])
        self.application.add_routes(
            [
                web.get("/healthz", self._health),
                web.get(f"{FILES_PATH}{{path:[\\s\\S]+}}", self._file),  # names may have ends of lines
                *folder_routes(only=folder),
            ]
        )

    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.path == "/healthz":
            return await handler(request)
        authorization = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(authorization, self._authorization):
            raise web.HTTPUnauthorized(text="the token of the claim's Secret is asked for\n")
        self.asked_at = time.monotonic()
        try:
            return await handler(request)
        finally:
            self.asked_at = time.monotonic()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        # As it came: a name may have any bytes.
        path = unquote_to_bytes(request.raw_path.partition("?")[0].removeprefix(FILES_PATH))
        if not is_below(path):
            raise web.HTTPNotFound(text="it is no path below the folder\n")
        try:
            file = await self._run(open_file, self._folder, path)
        except OSError as error:
            raise _refusal(error) from error
        try:
            return await self._answer(request, path, file)
        finally:
            file.close()

    async def _answer(self, request: web.Request, path: bytes, file: OpenFile) -> web.StreamResponse:
        byte_range = request.http_range
        begin, end, _ = slice(byte_range.start, byte_range.stop).indices(file.size)
        is_part = "Range" in request.headers
        headers = {
            "ETag": file.etag,
            "Last-Modified": formatdate(file.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if is_part and begin >= end:
            raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{file.size}"})
        if is_part:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{file.size}"
        response = web.StreamResponse(status=206 if is_part else 200, headers=headers)
        response.content_length = end - begin
        part = await self._part(request, path, file, begin, end)
        await response.prepare(request)
        while True:
            await response.write(part)
            begin += len(part)
            if begin >= end:
                return response
            part = await self._part(request, path, file, begin, end)

    async def _part(self, request: web.Request, path: bytes, file: OpenFile, begin: int, end: int) -> bytes:
        """The next bytes; the last ones only when the file is still the one that was asked for: an answer that does not
        end is believed by nobody."""
        length = min(_CHUNK, end - begin)
        try:
            part = await self._run(file.read, length, begin)
            whole = len(part) == length
            if whole and begin + length == end:
                whole = await self._run(is_unchanged, self._folder, path, file)
        except OSError:
            whole = False
        if whole:
            return part
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the file has changed while it was sent")

    async def _run(self, work: Callable[..., _Found], *arguments: object) -> _Found:
        call = functools.partial(work, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _refusal(error: OSError) -> web.HTTPException:
    reason = error.strerror or str(error)
    if error.errno in _LEADS_OUT:
        return web.HTTPForbidden(text="it is a symbolic link that leads out of the folder\n")
    if error.errno in _REFUSED:
        return web.HTTPForbidden(
            text=f"user {os.geteuid()}, as whom the claim's pod runs, may not read the file: {reason}\n"
        )
    if error.errno in _GONE or isinstance(error, FileNotFoundError):
        return web.HTTPNotFound(text=f"{reason}\n")
    return web.HTTPServiceUnavailable(text=f"the file cannot be opened: {reason}\n")
