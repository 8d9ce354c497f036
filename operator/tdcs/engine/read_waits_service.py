"""The operator's port for reports of how long reads of pods waited."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from tdcs.engine.read_waits import READ_WAITS_PATH, ReadWaits

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
