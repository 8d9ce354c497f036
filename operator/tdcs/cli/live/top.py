"""`tdcs top`: nodes, data and jobs in the terminal, live; printed once where there is no terminal."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Final

import click
from rich.live import Live

from tdcs.cli.api_client import api_client, connection_options
from tdcs.cli.console import Console
from tdcs.cli.live.document import document
from tdcs.cli.live.terminal import LiveScreen
from tdcs.cli.live.watches import Watches

_PIPED: Final = 180
"""Columns where there is no terminal: whoever reads it later has room."""


@click.command(name="top")
@click.option("-n", "--namespace", help="Only this namespace; default: all that you may read.")
@click.option("--once", is_flag=True, help="Print once and end, as where there is no terminal.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the first look when it is printed once.",
)
@connection_options
def command(
    *,
    namespace: str | None,
    once: bool,
    interval: float,
    timeout: float,
    context: str | None,
    kubeconfig: Path | None,
) -> None:
    """Show nodes, data and jobs, live in the terminal, until interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            _run(
                kubeconfig,
                context=context,
                namespace=namespace,
                once=once or not sys.stdout.isatty(),
                interval=interval,
                timeout=timeout,
            )
        )


async def _run(
    kubeconfig: Path | None,
    *,
    context: str | None,
    namespace: str | None,
    once: bool,
    interval: float,
    timeout: float,  # noqa: ASYNC109 - of the command, for one of its steps
) -> None:
    changed = asyncio.Event()
    async with api_client(kubeconfig=kubeconfig, context=context) as api:
        watches = Watches(
            api=api, namespace=namespace, fallback=api.default_namespace or "default", on_change=changed.set
        )
        following = asyncio.create_task(watches.run())
        try:
            if once:
                await _print(watches, timeout)
            else:
                await _show(watches, changed, interval)
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


async def _print(watches: Watches, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await watches.settled()
    except TimeoutError:
        why = watches.contact.problem or "no answer"
        raise click.ClickException(f"nothing is known of the cluster after {seconds:g} s: {why}") from None
    console = Console() if sys.stdout.isatty() else Console(width=_PIPED)
    console.print(LiveScreen(document(watches.world()), contact=watches.contact, lines=None))


async def _show(watches: Watches, changed: asyncio.Event, interval: float) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            changed.clear()
            view = LiveScreen(document(watches.world()), contact=watches.contact, lines=console.height)
            live.update(view, refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), interval)
            waits = asyncio.create_task(changed.wait())
            ends = asyncio.create_task(ended.wait())
            # A terminal that has another size since is painted again without any news.
            await asyncio.wait({waits, ends}, timeout=2.0, return_when=asyncio.FIRST_COMPLETED)
            for task in (waits, ends):
                task.cancel()
