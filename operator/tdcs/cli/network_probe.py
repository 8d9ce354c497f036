"""`tdcs network-probe`: try to connect, and report what took the connection; run where nothing should be reached."""

import asyncio
import socket
import sys
from collections.abc import Iterable
from enum import Enum, auto
from pathlib import Path
from typing import Final

import click

from tdcs.control.cachecluster.isolation_probe import ProbeReport

TRIES: Final = 3
"""A name that was looked up in vain is looked up again: the pod's network may just begin."""
PAUSE_SECONDS: Final = 1.0


class Reach(Enum):
    """What became of an attempt to connect."""

    REACHED = auto()
    CLOSED = auto()
    UNNAMED = auto()


Target = tuple[str, int]


def _target(text: str) -> Target:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as default-master.tdcs-system.svc:19998")
    return host.strip("[]"), int(port)


@click.command(name="network-probe")
@click.option(
    "--control",
    required=True,
    help="HOST:PORT that every pod reaches; one that does not reach it proves nothing.",
)
@click.option("--target", "targets", multiple=True, required=True, help="HOST:PORT to try; may be repeated.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    help="Seconds for one address.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the result there as JSON, and end well whatever it is.",
)
def command(control: str, targets: tuple[str, ...], timeout: float, report: Path | None) -> None:
    """Try to connect to ports that should be closed to this pod.

    Ends with 0 when no target took a connection, 1 when one did, 2 when nothing can be concluded.
    """
    parsed = {text: _target(text) for text in targets}
    probed = asyncio.run(probe(control=_target(control), targets=parsed, seconds=timeout))
    if report is not None:
        report.write_text(probed.render())
        return
    for name, listed in (
        ("reached", probed.reached),
        ("closed", probed.closed),
        ("no address", probed.unnamed),
    ):
        for address in listed:
            click.echo(f"{name}: {address}")
    if probed.reached:
        click.echo("the network does not enforce NetworkPolicies, or one of them admits strangers", err=True)
        sys.exit(1)
    if not probed.control or probed.unnamed:
        shortage = (
            "names were not found, which they are not before their pods are Ready"
            if probed.control
            else f"{control} is not reached either"
        )
        click.echo(f"nothing is proven: {shortage}", err=True)
        sys.exit(2)


async def probe(*, control: Target, targets: dict[str, Target], seconds: float) -> ProbeReport:
    controlled, *outcomes = await asyncio.gather(
        *(reach(target, seconds=seconds) for target in (control, *targets.values()))
    )
    by_outcome = {
        outcome: tuple(name for name, result in zip(targets, outcomes, strict=True) if result is outcome)
        for outcome in Reach
    }
    return ProbeReport(
        control=controlled is Reach.REACHED,
        reached=by_outcome[Reach.REACHED],
        closed=by_outcome[Reach.CLOSED],
        unnamed=by_outcome[Reach.UNNAMED],
    )


async def reach(target: Target, *, seconds: float, pause: float = PAUSE_SECONDS) -> Reach:
    host, port = target
    for tries_left in reversed(range(TRIES)):
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            break
        except socket.gaierror:
            if not tries_left:
                return Reach.UNNAMED
            await asyncio.sleep(pause)
    addresses: Iterable[str] = {str(info[4][0]) for info in infos}
    connected = await asyncio.gather(*(_connects(address, port, seconds) for address in addresses))
    return Reach.REACHED if any(connected) else Reach.CLOSED


async def _connects(address: str, port: int, seconds: float) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), seconds)
    except OSError:  # a timeout, too
        return False
    writer.close()
    return True
