"""One agent as a process: from a disk that is made ready to the signal that ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from tdcs.alluxio.exported_files import ExportedFiles
from tdcs.alluxio.master_room import room_of
from tdcs.alluxio.rpc import Rpc
from tdcs.alluxio.worker_blocks import WorkerBlocks, journal_id
from tdcs.api import names
from tdcs.listing.folder import ManifestFolder
from tdcs.node.agent.agent import Agent
from tdcs.node.agent.agent_settings import AgentSettings
from tdcs.node.agent.disk.own_ids import enter_own_ids, has_own_ids
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.agent.serving import serving_agent
from tdcs.node.agent.transfer.exporter import Exporter
from tdcs.options import FOLDER, PORT, SIZE, certificates, node_name, option
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import TrustFolder

_log: Final = logging.getLogger(__name__)

_CALL_PATIENCE: Final = 5.0


class UnpreparedDiskError(Exception):
    """The disk was not made ready."""


class NoMasterError(Exception):
    """The arguments name one of Alluxio's processes, and not the other."""


@dataclass(frozen=True, kw_only=True)
class DiskSettings:
    """What all processes of an agent are given."""

    tier: Path = option("The tier's folder, at the same path as in the worker.", type=FOLDER, env="TDCS_TIER")


@dataclass(frozen=True, kw_only=True)
class PrepareSettings(DiskSettings):
    """What makes a disk ready is given."""

    user: int | None = option(
        "Number of the user of worker and agent, to whom the blocks are given; without it no owner changes.",
        default=None,
        type=click.IntRange(min=0),
        env="TDCS_USER",
    )


@dataclass(frozen=True, kw_only=True)
class ProcessSettings(DiskSettings):
    node: str = node_name()
    capacity_bytes: int = option(
        "Bytes that the worker may hold.", type=SIZE, flag="--capacity", env="TDCS_CAPACITY"
    )
    master: str = option(
        "host:port of Alluxio's master, next to `--worker`; left out, nothing is exported.",
        default="",
        env="TDCS_MASTER",
    )
    worker: str = option(
        "host:port of Alluxio's worker on this node, next to `--master`; left out, nothing is exported.",
        default="",
        env="TDCS_WORKER",
    )
    host: str = option("Address to listen on; empty: all of both families, IPv4 and IPv6.", default="")
    control_port: int = option("Port of HTTP.", default=names.AGENT_CONTROL_PORT, type=PORT)
    block_port: int = option("Port of blocks.", default=names.AGENT_BLOCK_PORT, type=PORT)
    memory_bytes: int = option(
        "What this process may allocate; one that needs more ends, and is started again.",
        default=4 << 30,
        type=SIZE,
        flag="--memory",
        env="TDCS_MEMORY",
    )
    trust: Path | None = certificates()


def prepare(tier: Path) -> int:
    """Make a disk ready, and look through what may have been lost with the power; how many blocks were removed.

    Run it while Alluxio's worker is away. What that has of blocks are further names, under ids that may be of a journal
    that is gone: it gets them again.
    """
    disk = Disk(tier)
    removed = enter_own_ids(disk)
    disk.take_exports_back()
    return removed + make_ready(disk).removed


async def run(settings: ProcessSettings) -> None:
    """Work until SIGTERM or SIGINT comes.

    Raises:
        UnpreparedDiskError: `prepare` was never run on this disk.
        NoMasterError: There is a worker without a master, or a master without a worker.
        OSError: A port is taken, or the certificate cannot be read.
    """
    if bool(settings.worker) != bool(settings.master):
        raise NoMasterError("--worker and --master are given both, or neither")
    disk = Disk(settings.tier)
    if not has_own_ids(disk):
        raise UnpreparedDiskError(
            f"{disk.tier} was not made ready for this release; run `tdcs agent prepare` first"
        )
    disk.prepare()
    await asyncio.to_thread(make_ready, disk)
    ManifestFolder(disk.manifests).clear_partial()
    identify = TrustFolder(settings.trust) if settings.trust is not None else None
    tls = Contexts(identify) if identify is not None else None
    if tls is not None:
        tls.server()  # no certificate, no agent
    agent_settings = AgentSettings(node=settings.node, capacity_bytes=settings.capacity_bytes)
    async with serving_agent(
        agent_settings,
        disk=disk,
        tls=tls,
        host=settings.host,
        control_port=settings.control_port,
        block_port=settings.block_port,
    ) as serving:
        work = asyncio.create_task(_work(serving.agent, settings, identify))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        _log.info("the agent of node %s works on %s", settings.node, settings.tier)
        try:
            with suppress(asyncio.CancelledError):
                await work
        finally:
            await asyncio.to_thread(disk.close)


async def _work(agent: Agent, settings: ProcessSettings, identify: TrustFolder | None) -> None:
    """The agent's life, and the export to Alluxio, where there is one."""
    if not settings.master:
        await agent.run()
        return
    master = Rpc(target=settings.master, patience=_CALL_PATIENCE, identify=identify)
    worker = WorkerBlocks(target=settings.worker, patience=_CALL_PATIENCE, identify=identify)
    exporter = Exporter(
        disk=agent.disk,
        files=ExportedFiles(master),
        worker=worker,
        journal=lambda: journal_id(master),
        room=lambda: room_of(master),
        mounts=agent.mounts.values,
        rests=lambda: not agent.brings,
    )
    exports = asyncio.create_task(exporter.run())
    exports.add_done_callback(lambda done: done.cancelled() or work.cancel())
    work = asyncio.create_task(agent.run())
    try:
        await work
    finally:
        for task in (work, exports):
            task.cancel()
        results = await asyncio.gather(work, exports, return_exceptions=True)
        await worker.close()
        await master.close()
        for result in results:
            if isinstance(result, Exception):
                raise result
