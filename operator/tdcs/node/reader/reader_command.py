"""`tdcs reader`: the remote-read client of a node, and the holder of its session."""

import logging
import os

import click

from tdcs.api import names
from tdcs.engine import reader_files
from tdcs.node import open_files
from tdcs.node.reader import child_process
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.fuse_protocol import Unsupported
from tdcs.node.reader.registration import ReaderFolder, ReadersPresent
from tdcs.node.reader.session_holder import HolderError, Session, SessionHolder
from tdcs.node.reader.settings import HolderSettings, ReaderSettings
from tdcs.options import options_of


@click.group(name="reader")
def command() -> None:
    """Show pods what of their datasets is not on the node."""
    logging.basicConfig(
        level=os.environ.get("TDCS_LOG_LEVEL", "INFO"),
        format=names.LOG_LINE,
    )
    open_files.allow_all()


@command.command()
@options_of(HolderSettings)
def hold(settings: HolderSettings) -> None:
    """Mount the file system, and hold its session while readers come and go."""
    folder, user = settings.folder, settings.user
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

        reserve.serve(session, folder=folder, node=settings.node, trust=settings.trust, user=user)

    def start_reserve(session: Session) -> int:
        return child_process.start(lambda: serve(session))

    try:
        SessionHolder(
            point=place.point,
            path=place.socket,
            user=user,
            reserve=start_reserve if settings.reserve else None,
            is_kept=keepers.any,
        ).run()
    except (OSError, Unsupported) as error:
        raise click.ClickException(f"the file system cannot be mounted at {place.point}: {error}") from error


@command.command()
@options_of(ReaderSettings)
def run(settings: ReaderSettings) -> None:
    """Serve the file system, until a signal comes."""
    from tdcs.node.reader.supervisor import Supervisor  # the holder itself stays small

    def watch(settings: ReaderSettings, counters: Counters) -> None:
        from tdcs.node.reader import monitor  # in its own process: those that serve need not wait for it

        monitor.run(settings, counters)

    try:
        Supervisor(settings, monitor=watch).run()
    except HolderError as error:
        raise click.ClickException(str(error)) from error
