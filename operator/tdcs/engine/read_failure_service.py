"""The operator's port for reports of failed reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from tdcs.engine.read_failure import READ_FAILURES_PATH, ReadFailure

LONGEST_REPORT: Final = 16 << 10
"""Bytes of a report."""

Report = Callable[[ReadFailure], Awaitable[None]]


def read_failure_routes(report: Report) -> list[web.RouteDef]:
    async def post(request: web.Request) -> web.Response:
        try:
            failure = msgspec.json.decode(await request.content.read(LONGEST_REPORT), type=ReadFailure)
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text=f"this is no report of a failed read: {error}\n") from error
        await report(failure)
        return web.Response(status=202)

    return [web.post(READ_FAILURES_PATH, post)]
