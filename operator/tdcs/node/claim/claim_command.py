"""`tdcs claim-server`: the process of the pod that serves the files of a PersistentVolumeClaim."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import uvloop
from aiohttp import web

from tdcs.api import names
from tdcs.listening import listen
from tdcs.model.claim_source import CERTIFICATE_FILE, KEY_FILE, TOKEN_FILE
from tdcs.node.claim.claim_server import ClaimServer
from tdcs.options import FOLDER, PORT, option, options_of

_log: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSettings:
    folder: Path = option("The folder that is served; no step to it is a link.", type=FOLDER)
    secret: Path = option("The folder with token, tls.crt and tls.key.", type=FOLDER)
    port: int = option("Port of the service.", default=names.CLAIM_PORT, type=PORT)
    idle_seconds: float = option(
        "Ends when nobody has asked for so long: whoever made it may be gone.",
        default=1800.0,
        type=click.FloatRange(min=1),
    )


@click.command(name="claim-server")
@options_of(ClaimSettings)
def command(settings: ClaimSettings) -> None:
    """Serve the files of a claim, until a signal comes, or nobody has asked for a while."""
    logging.basicConfig(level=logging.INFO, format=names.LOG_LINE)
    try:
        uvloop.run(_serve(settings))
    except OSError as error:
        raise click.ClickException(f"the folder {settings.folder} cannot be served: {error}") from error


async def _serve(settings: ClaimSettings) -> None:
    token = (settings.secret / TOKEN_FILE).read_text().strip()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.load_cert_chain(settings.secret / CERTIFICATE_FILE, settings.secret / KEY_FILE)
    server = ClaimServer(folder=os.fspath(settings.folder), token=token)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(server.application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listen(port=settings.port), ssl_context=tls).start()
        _log.info("serving %s on port %d", settings.folder, settings.port)
        while not ended.is_set():
            idle = time.monotonic() - server.asked_at
            if idle > settings.idle_seconds:
                _log.info("nobody has asked for %.0f s", idle)
                return
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await ended.wait()
            except TimeoutError:
                continue
    finally:
        await runner.cleanup()
