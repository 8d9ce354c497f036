"""`tdcs reader`: the remote-read client of a node, and the holder of its session."""

import logging
import os
from pathlib import Path
from typing import Final

import click

from tdcs.api import names
from tdcs.api.quantities import to_bytes
from tdcs.engine import reader_files
from tdcs.node.agent import open_files
from tdcs.node.reader import child_process
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.fuse_protocol import Unsupported
from tdcs.node.reader.serving.registration import ReaderFolder, ReadersPresent
from tdcs.node.reader.session_holder import Holder, HolderError, Session
from tdcs.trust.identity import TRUST_HELP

_FOLDER: Final = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(names.READER_ROOT),
    show_default=True,
    envvar="TDCS_READER",
    help="The reader's folder on the node, the same for all of its parts.",
)

_TRUST: Final = click.option(
    "--trust",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TDCS_TRUST",
    help=TRUST_HELP,
)


@click.group(name="reader")
def command() -> None:
    """Show pods what of their datasets is not on the node."""
    logging.basicConfig(
        level=os.environ.get("TDCS_LOG_LEVEL", "INFO"),
        format=names.LOG_LINE,
    )
    open_files.allow_all()


@command.command()
@_FOLDER
@click.option("--node", envvar="NODE_NAME", default="", help="Name of this Kubernetes node.")
@click.option(
    "--reserve/--no-reserve",
    "with_reserve",
    default=True,
    show_default=True,
    help="Serve the file system while no reader does.",
)
@click.option(
    "--user",
    type=click.IntRange(1),
    help="Number of the user as whom readers run, and what serves while none does; root alone by default.",
)
@_TRUST
def hold(folder: Path, node: str, with_reserve: bool, user: int | None, trust: Path | None) -> None:
    """Mount the file system, and hold its session while readers come and go."""
    place = ReaderFolder(folder)
    place.prepare()
    if user is not None:
        try:
            reader_files.give_files(folder, user=user)
        except OSError as error:
            raise click.ClickException(
                f"user {user} cannot be given its files in {folder}: {error}"
            ) from error
    keepers = ReadersPresent(place.keepers)

    def serve(session: Session) -> None:
        from tdcs.node.reader import reserve  # in its own process: the holder itself stays small

        reserve.serve(session, folder=folder, node=node, trust=trust, user=user)

    def start_reserve(session: Session) -> int:
        return child_process.start(lambda: serve(session))

    try:
        Holder(
            point=place.point,
            path=place.socket,
            user=user,
            reserve=start_reserve if with_reserve else None,
            kept=keepers.any,
        ).run()
    except (OSError, Unsupported) as error:
        raise click.ClickException(f"the file system cannot be mounted at {place.point}: {error}") from error


@command.command()
@_FOLDER
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of this Kubernetes node.")
@click.option(
    "--buffer", default="64Mi", show_default=True, help="How much of what was fetched is kept in memory."
)
@click.option("--operator", default="", help="HOST:PORT where the operator serves who holds what.")
@click.option(
    "--health-port", default=0, type=click.IntRange(0, 65535), help="Port of /healthz; none by default."
)
@click.option(
    "--metrics-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port of /metrics, with --trust by TLS, for Prometheus' certificate alone; none by default.",
)
@click.option(
    "--patience",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds after which a read that no agent and no source can answer fails.",
)
@_TRUST
def run(
    *,
    folder: Path,
    node: str,
    buffer: str,
    operator: str,
    health_port: int,
    metrics_port: int,
    patience: float,
    trust: Path | None,
) -> None:
    """Serve the file system, until a signal comes."""
    from tdcs.node.reader.supervisor import ReaderSettings, Supervisor

    def watch(settings: ReaderSettings, counters: Counters) -> None:
        from tdcs.node.reader import monitor  # in its own process: those that serve need not wait for it

        monitor.run(settings, counters)

    settings = ReaderSettings(
        folder=folder,
        node=node,
        buffer_bytes=to_bytes(buffer),
        operator=operator,
        health_port=health_port,
        metrics_port=metrics_port,
        patience_seconds=patience,
        trust=trust,
    )
    try:
        Supervisor(settings, monitor=watch).run()
    except HolderError as error:
        raise click.ClickException(str(error)) from error
