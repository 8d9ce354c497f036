"""The operator's health over HTTP: whether it can go on (`/livez`), and whether it does its part (`/healthz`).

It is served from the first moment. A process that waits for the API server or for the Lease can go on, however long
that takes: kubelet would gain nothing by starting it again, and would wait longer each time.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from tdcs.listening import listen

_log: Final = logging.getLogger(__name__)

STARTING: Final = "starting"
"""In the answer: whether the views are still being filled."""


class StaleError(Exception):
    """The operator's view of the cluster cannot be trusted any more."""


@asynccontextmanager
async def serve_health(health: Callable[[], Mapping[str, object]], *, port: int) -> AsyncIterator[None]:
    """Answer probes while the body runs.

    Args:
        health: what is to be said; raises StaleError where only a restart helps: both paths answer 503 then. `/healthz`
            does so, too, while it says that the operator is starting.
        port: 0: nothing is served.
    """
    if not port:
        yield
        return

    is_logged = False

    def answer(*, also_starting: bool) -> web.Response:
        nonlocal is_logged
        try:
            state = health()
        except StaleError as error:
            if not is_logged:
                is_logged = True
                _log.critical("only a new start helps: %s", error, exc_info=error.__cause__)
            return web.json_response({"problem": str(error)}, status=503)
        is_logged = False
        ready = also_starting or not state[STARTING]
        return web.json_response(dict(state), status=200 if ready else 503)

    async def livez(_: web.Request) -> web.Response:
        return answer(also_starting=True)

    async def healthz(_: web.Request) -> web.Response:
        return answer(also_starting=False)

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/healthz", healthz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listen(port=port)).start()
        yield
    finally:
        await runner.cleanup()
