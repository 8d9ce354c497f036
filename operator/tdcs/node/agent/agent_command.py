"""`tdcs agent`: the process beside each cache worker that carries bytes."""

from __future__ import annotations

import logging
from pathlib import Path

import click
import uvloop

from tdcs.api import names
from tdcs.api.quantities import to_bytes
from tdcs.node.agent import agent_process, open_files
from tdcs.node.agent.disk.ownership import give_tier
from tdcs.node.agent.memory_limit import limit_memory
from tdcs.trust.identity import TRUST_HELP, NoIdentityError


@click.group(name="agent")
def command() -> None:
    """Carry the blocks of one node, or make its disk ready."""


_TIER = click.option(
    "--tier",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="TDCS_TIER",
    help="The tier's folder, at the same path as in the worker.",
)


_TRUST = click.option(
    "--trust",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TDCS_TRUST",
    help=TRUST_HELP,
)


@command.command()
@_TIER
@click.option("--master", required=True, envvar="TDCS_MASTER", help="host:port of the cache's master.")
@click.option(
    "--user",
    type=click.IntRange(min=0),
    envvar="TDCS_USER",
    help="Number of the user of worker and agent, to whom the blocks are given; without it no owner changes.",
)
@_TRUST
def prepare(tier: Path, master: str, user: int | None, trust: Path | None) -> None:
    """Remove blocks of another journal, and give the others to the worker's user. Run it before the worker starts.

    It waits for the master as long as that takes.
    """
    _log_plainly()
    removed = uvloop.run(agent_process.prepare(tier=tier, master=master, trust=trust))
    if user is not None and (given := give_tier(tier, user=user)):
        click.echo(f"{given} files and folders in {tier} now belong to user {user}")
    if removed:
        click.echo(f"removed {removed} blocks of another journal from {tier}")


@command.command()
@_TIER
@click.option("--node", required=True, envvar="NODE_NAME", help="Name of the node.")
@click.option("--capacity", required=True, envvar="TDCS_CAPACITY", help="Bytes that the worker may hold.")
@click.option("--worker", required=True, envvar="TDCS_WORKER", help="host:port of the node's worker.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")  # noqa: S104
@click.option("--control-port", default=names.AGENT_CONTROL_PORT, show_default=True, help="Port of HTTP.")
@click.option("--block-port", default=names.AGENT_BLOCK_PORT, show_default=True, help="Port of blocks.")
@click.option(
    "--memory",
    default="4Gi",
    show_default=True,
    envvar="TDCS_MEMORY",
    help="What this process may allocate; one that needs more ends, and is started again.",
)
@_TRUST
def run(
    tier: Path,
    node: str,
    capacity: str,
    worker: str,
    host: str,
    control_port: int,
    block_port: int,
    memory: str,
    trust: Path | None,
) -> None:
    """Carry blocks, until a signal comes."""
    _log_plainly()
    open_files.allow_all()
    limit_memory(to_bytes(memory))
    settings = agent_process.ProcessSettings(
        node=node,
        tier=tier,
        capacity_bytes=to_bytes(capacity),
        worker=worker,
        host=host,
        control_port=control_port,
        block_port=block_port,
        trust=trust,
    )
    try:
        uvloop.run(agent_process.run(settings))
    except (agent_process.NoEpochError, NoIdentityError) as error:
        raise click.ClickException(str(error)) from error


def _log_plainly() -> None:
    logging.basicConfig(level=logging.INFO, format=names.LOG_LINE)
