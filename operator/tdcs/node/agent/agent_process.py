"""One agent as a process: from the epoch on the disk to the signal that ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tdcs.alluxio.rpc import Rpc
from tdcs.alluxio.worker_blocks import WorkerBlocks, journal_id
from tdcs.listing.folder import ManifestFolder
from tdcs.node.agent.agent_settings import AgentSettings
from tdcs.node.agent.disk.epoch import asked_patiently, enter_epoch, read_epoch
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.serving import serving_agent
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import TrustFolder

_log: Final = logging.getLogger(__name__)

_WORKER_PATIENCE: Final = 5.0
_CALL_PATIENCE: Final = 5.0


class NoEpochError(Exception):
    """The disk was not made ready for a journal."""


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What an agent's process is given.

    Attributes:
        node: name of its node.
        tier: the tier's folder, at the same path as in the worker.
        capacity_bytes: what the worker may hold.
        worker: `host:port` of the worker's RPC service.
        host: address that both services listen on.
        control_port, block_port: of the HTTP service and of the block service.
        trust: folder with its certificate: both services, and what it asks of other agents, are by TLS then, and every
            caller by its role. None: plain, and every caller is answered.
    """

    node: str
    tier: Path
    capacity_bytes: int
    worker: str
    host: str
    control_port: int
    block_port: int
    trust: Path | None = None


async def prepare(*, tier: Path, master: str, trust: Path | None = None) -> int:
    """Make a disk one of the master's journal, before the worker registers; how many blocks were removed."""
    disk = Disk(tier)
    identify = TrustFolder(trust) if trust is not None else None
    rpc = Rpc(target=master, patience=_CALL_PATIENCE, identify=identify)
    try:
        journal = await asked_patiently(lambda: journal_id(rpc))
    finally:
        await rpc.close()
    return await asyncio.to_thread(enter_epoch, disk, journal=journal)


async def run(settings: ProcessSettings) -> None:
    """Work until SIGTERM or SIGINT comes.

    Raises:
        NoEpochError: `prepare` was never run on this disk.
        OSError: A port is taken, or the certificate cannot be read.
    """
    disk = Disk(settings.tier)
    journal = read_epoch(disk)
    if not journal:
        raise NoEpochError(
            f"{disk.epoch} does not say which journal the blocks belong to; run `tdcs agent prepare` first"
        )
    disk.prepare()
    ManifestFolder(disk.manifests).clear_partial()
    identify = TrustFolder(settings.trust) if settings.trust is not None else None
    worker = WorkerBlocks(target=settings.worker, patience=_WORKER_PATIENCE, identify=identify)
    tls = Contexts(identify) if identify is not None else None
    if tls is not None:
        tls.server()  # no certificate, no agent
    agent_settings = AgentSettings(
        node=settings.node, capacity_bytes=settings.capacity_bytes, journal=journal
    )
    async with serving_agent(
        agent_settings,
        disk=disk,
        worker=worker,
        tls=tls,
        host=settings.host,
        control_port=settings.control_port,
        block_port=settings.block_port,
    ) as serving:
        work = asyncio.create_task(serving.agent.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        _log.info("the agent of node %s works on %s", settings.node, settings.tier)
        with suppress(asyncio.CancelledError):
            await work
