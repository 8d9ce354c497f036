"""The operator's port for reports of reads: those that failed, and how long reads of pods waited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from tdcs.engine.read_reports import READ_FAILURES_PATH, READ_WAITS_PATH, ReadFailure, ReadWaits

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


TakeWaits = Callable[[ReadWaits], bool]
"""Takes a report; whether it does: an operator that stands by does not."""


def read_waits_routes(take: TakeWaits) -> list[web.RouteDef]:
    async def post(request: web.Request) -> web.Response:
        try:
            # More than aiohttp's own limit, 1 MiB, it refuses itself: some thousand pods.
            waits = msgspec.json.decode(await request.read(), type=ReadWaits)
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text=f"this is no report of how long pods waited: {error}\n") from error
        if not take(waits):
            raise web.HTTPServiceUnavailable(text="this operator stands by: another one works\n")
        return web.Response(status=202)

    return [web.post(READ_WAITS_PATH, post)]
