"""`tdcs ui`: a web page on this machine that shows what is going on, with the rights of the user's own kubeconfig."""

import asyncio
import contextlib
import errno
import signal
import socket
import webbrowser
from pathlib import Path

import click
from aiohttp import web

from tdcs.cli.api_client import api_client, connection_options
from tdcs.cli.live.page_server import LiveServer
from tdcs.cli.live.watches import Watches

DEFAULT_PORT = 8910


@click.command(name="ui")
@click.option("-n", "--namespace", help="Only this namespace; default: all that you may read.")
@connection_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port on 127.0.0.1; 0: any that is free.",
)
@click.option("--open/--no-open", "opens", default=False, help="Open the page in the default browser.")
def command(
    *, namespace: str | None, context: str | None, kubeconfig: Path | None, port: int, opens: bool
) -> None:
    """Serve a live page about nodes, data and jobs, for this machine alone, until interrupted."""
    with _listen(port) as listener:
        asyncio.run(_serve(listener, kubeconfig, context=context, namespace=namespace, opens=opens))


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
        raise click.ClickException(
            f"port {port} of 127.0.0.1 {why}; choose another --port, or 0 for any"
        ) from error


async def _serve(
    listener: socket.socket,
    kubeconfig: Path | None,
    *,
    context: str | None,
    namespace: str | None,
    opens: bool,
) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with api_client(kubeconfig=kubeconfig, context=context) as api:
        server = LiveServer(title=context or namespace or "")
        watches = Watches(
            api=api,
            namespace=namespace,
            fallback=api.default_namespace or "default",
            on_change=server.touch,
        )
        server.watch(watches)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={server.token}"
        click.echo(f"The page is at {address}\nEnd it with Ctrl-C.")
        if opens:
            webbrowser.open(address)
        following = asyncio.create_task(watches.run())
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait({following, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, following):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await runner.cleanup()
