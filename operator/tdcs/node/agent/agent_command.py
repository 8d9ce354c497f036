"""`tdcs agent`: the process beside each cache worker that carries bytes."""

from __future__ import annotations

import logging

import click
import uvloop

from tdcs.api import names
from tdcs.node.agent import agent_process, open_files
from tdcs.node.agent.disk.ownership import give_tier
from tdcs.node.agent.memory_limit import limit_memory
from tdcs.options import options_of
from tdcs.trust.identity import NoIdentityError


@click.group(name="agent")
def command() -> None:
    """Carry the blocks of one node, or make its disk ready."""


@command.command()
@options_of(agent_process.PrepareSettings)
def prepare(settings: agent_process.PrepareSettings) -> None:
    """Remove blocks of another journal, and give the others to the worker's user. Run it before the worker starts.

    It waits for the master as long as that takes.
    """
    _log_plainly()
    tier, user = settings.tier, settings.user
    removed = uvloop.run(agent_process.prepare(tier=tier, master=settings.master, trust=settings.trust))
    if user is not None and (given := give_tier(tier, user=user)):
        click.echo(f"{given} files and folders in {tier} now belong to user {user}")
    if removed:
        click.echo(f"removed {removed} blocks of another journal from {tier}")


@command.command()
@options_of(agent_process.ProcessSettings)
def run(settings: agent_process.ProcessSettings) -> None:
    """Carry blocks, until a signal comes."""
    _log_plainly()
    open_files.allow_all()
    limit_memory(settings.memory_bytes)
    try:
        uvloop.run(agent_process.run(settings))
    except (agent_process.NoEpochError, NoIdentityError) as error:
        raise click.ClickException(str(error)) from error


def _log_plainly() -> None:
    logging.basicConfig(level=logging.INFO, format=names.LOG_LINE)
