"""One agent as a process: from the epoch on the disk to the signal that ends it."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tdcs.alluxio.exported_files import ExportedFiles
from tdcs.alluxio.rpc import Rpc
from tdcs.alluxio.worker_blocks import WorkerBlocks, journal_id
from tdcs.api import names
from tdcs.listing.folder import ManifestFolder
from tdcs.node.agent.agent import Agent
from tdcs.node.agent.agent_settings import AgentSettings
from tdcs.node.agent.disk.epoch import asked_patiently, enter_epoch, keep_from_worker, read_epoch
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.agent.serving import serving_agent
from tdcs.node.agent.transfer.exporter import Exporter
from tdcs.node.agent.transfer.journal_watch import JournalWatch
from tdcs.options import FOLDER, PORT, SIZE, certificates, node_name, option
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import TrustFolder

_log: Final = logging.getLogger(__name__)

_WORKER_PATIENCE: Final = 5.0
_CALL_PATIENCE: Final = 5.0
_MASTER_SECONDS: Final = 15.0
"""So long a master that starts beside this pod may take: its answer spares the worker to register all blocks anew."""


class NoEpochError(Exception):
    """The disk was not made ready for a journal."""


class NoMasterError(Exception):
    """The arguments name one of Alluxio's processes, and not the other."""


@dataclass(frozen=True, kw_only=True)
class DiskSettings:
    """What all processes of an agent are given."""

    tier: Path = option("The tier's folder, at the same path as in the worker.", type=FOLDER, env="TDCS_TIER")
    master: str = option(
        "host:port of the cache's master; left out, there is none, and the agents alone are the cache.",
        default="",
        env="TDCS_MASTER",
    )
    trust: Path | None = certificates()


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
    worker: str = option(
        "host:port of the node's worker, beside `--master`; left out, there is none.",
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


async def prepare(*, tier: Path, master: str, trust: Path | None = None) -> int:
    """Make a disk one of the master's journal, before the worker registers, and look through what may have been lost
    with the machine's power; how many blocks were removed.

    A master that is away is waited for on a disk of no master alone. What others hold is readable as soon as the agent
    runs: the worker gets nothing of it until the master has said that its journal is still the same (`JournalWatch`).

    Without a master the ids of blocks are TDCS's own, and nobody is waited for. What a worker has of them are further
    names, under ids that may be of a journal that is gone: it gets them again.
    """
    disk = Disk(tier)
    known = read_epoch(disk)
    seconds = _MASTER_SECONDS if known not in ("", names.OWN_BLOCK_IDS) else math.inf
    journal = await _journal_of(master, trust, seconds=seconds) if master else names.OWN_BLOCK_IDS

    def enter() -> int:
        removed = enter_epoch(disk, journal=journal or known)
        if journal is None:
            removed += keep_from_worker(disk)
        if not master:
            disk.take_exports_back()
        return removed + make_ready(disk).removed

    return await asyncio.to_thread(enter)


async def _journal_of(master: str, trust: Path | None, *, seconds: float) -> str | None:
    identify = TrustFolder(trust) if trust is not None else None
    rpc = Rpc(target=master, patience=_CALL_PATIENCE, identify=identify)
    try:
        return await asked_patiently(lambda: journal_id(rpc), seconds=seconds)
    finally:
        await rpc.close()


async def run(settings: ProcessSettings) -> None:
    """Work until SIGTERM or SIGINT comes.

    Raises:
        NoEpochError: `prepare` was never run on this disk, or for a cache of another kind.
        NoMasterError: There is a worker without a master, or a master without a worker.
        OSError: A port is taken, or the certificate cannot be read.
    """
    if bool(settings.worker) != bool(settings.master):
        raise NoMasterError("--worker and --master are given both, or neither")
    disk = Disk(settings.tier)
    journal = read_epoch(disk)
    own = journal == names.OWN_BLOCK_IDS
    if own and settings.worker:
        disk = Disk(settings.tier, exported=True)
    if not journal:
        raise NoEpochError(
            f"{disk.epoch} does not say which journal the blocks belong to; run `tdcs agent prepare` first"
        )
    if not own and not settings.worker:
        raise NoEpochError(
            f"{disk.epoch} says that ids of blocks are of {journal!r}, and this agent was started without a worker; "
            "run `tdcs agent prepare` without a master first"
        )
    disk.prepare()
    await asyncio.to_thread(make_ready, disk)
    ManifestFolder(disk.manifests).clear_partial()
    identify = TrustFolder(settings.trust) if settings.trust is not None else None
    worker = (
        WorkerBlocks(target=settings.worker, patience=_WORKER_PATIENCE, identify=identify)
        if settings.worker and not own
        else None
    )
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
    """The agent's life, and beside it what is asked and told of Alluxio, where there is one."""
    if not settings.master:
        await agent.run()
        return
    master = Rpc(target=settings.master, patience=_CALL_PATIENCE, identify=identify)
    worker = WorkerBlocks(target=settings.worker, patience=_CALL_PATIENCE, identify=identify)
    beside: Coroutine[Any, Any, None]
    if agent.settings.journal == names.OWN_BLOCK_IDS:
        beside = Exporter(
            disk=agent.disk,
            files=ExportedFiles(master),
            worker=worker,
            journal=lambda: journal_id(master),
            mounts=agent.mounts.values,
            rests=lambda: not agent.brings,
        ).run()
    else:
        beside = JournalWatch(registrar=agent.registrar, master=master, journal=agent.settings.journal).run()
    looks = asyncio.create_task(beside)
    looks.add_done_callback(lambda done: done.cancelled() or work.cancel())
    work = asyncio.create_task(agent.run())
    try:
        await work
    finally:
        for task in (work, looks):
            task.cancel()
        results = await asyncio.gather(work, looks, return_exceptions=True)
        await worker.close()
        await master.close()
        for result in results:
            if isinstance(result, Exception):
                raise result
