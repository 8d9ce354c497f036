"""`tdcs agent`: the process next to each cache worker that carries bytes."""

from __future__ import annotations

import logging
import resource
import threading
from typing import Final

import click
import uvloop

from tdcs.api import names
from tdcs.node import open_files
from tdcs.node.agent import agent_process
from tdcs.node.agent.disk.ownership import give_tier
from tdcs.options import options_of
from tdcs.trust.identity import NoIdentityError

_STACK_BYTES: Final = 1 << 20
"""Room for the stack of a thread. All of it counts as allocated, and the usual 8 MiB, for each of 256 connections,
would be half of what an agent may have. JSON as deep as the interpreter lets it be takes more than 256 KiB."""


def limit_memory(limit: int) -> None:
    """Have what goes beyond so many bytes fail, which ends the process, and it is started again.

    Call it before the first thread is started: stacks of earlier ones stay as large as they are.

    A store may answer with a failure of which the text never ends, and the client library keeps all of that text.
    A limit of the container would count the pages of the blocks that the process writes, too, and so slow loads down;
    this one counts what the process allocates (RLIMIT_DATA).
    """
    threading.stack_size(_STACK_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


@click.group(name="agent")
def command() -> None:
    """Carry the blocks of one node, or make its disk ready."""


@command.command()
@options_of(agent_process.PrepareSettings)
def prepare(settings: agent_process.PrepareSettings) -> None:
    """Make the disk ready, remove what was lost with the machine's power, and give the rest to the worker's user. Run
    it before the worker starts.
    """
    _log_plainly()
    tier, user = settings.tier, settings.user
    removed = agent_process.prepare(tier)
    if user is not None and (handed_over := give_tier(tier, user=user)):
        click.echo(f"{handed_over} files and folders in {tier} now belong to user {user}")
    if removed:
        click.echo(f"removed {removed} blocks from {tier} that do not say what they are, or are not whole")


@command.command()
@options_of(agent_process.ProcessSettings)
def run(settings: agent_process.ProcessSettings) -> None:
    """Carry blocks, until a signal comes."""
    _log_plainly()
    open_files.allow_all()
    limit_memory(settings.memory_bytes)
    try:
        uvloop.run(agent_process.run(settings))
    except (agent_process.UnpreparedDiskError, agent_process.NoMasterError, NoIdentityError) as error:
        raise click.ClickException(str(error)) from error


def _log_plainly() -> None:
    logging.basicConfig(level=logging.INFO, format=names.LOG_LINE)
