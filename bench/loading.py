"""Steps of benchmarks that fill a cache: listings, loads by the operator's loader, plain downloads, and their times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import click
from bench.cache_lab import Lab

from tdcs.controllers.dataset.loader import LoadRun
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Source
from tdcs.engine.table import BlockTable

DOWNLOADS = 16
"""Plain downloads at a time, for the comparison."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What one load, or one round of downloads, did."""

    seconds: float
    payload_bytes: int
    wire_bytes: int
    requests: int

    def over(self, *, rate: int, wanted_bytes: int) -> dict[str, float]:
        """Compared with a link of `rate` bits a second, when `wanted_bytes` were to be brought."""
        able = rate / 8 * self.seconds
        return {
            "seconds": round(self.seconds, 1),
            "link_use": round(self.wire_bytes / able, 3),
            "payload_share": round(wanted_bytes / able, 3),
            "source_ratio": round(self.payload_bytes / wanted_bytes, 3),
        }


async def measured(lab: Lab, action: Callable[[], Awaitable[object]]) -> Timed:
    """Time an action and count what the store sent meanwhile."""
    sent, wire, began = lab.store.sent(), lab.store.wire_bytes(), time.monotonic()
    await action()
    seconds = time.monotonic() - began
    after = lab.store.sent()
    return Timed(
        seconds=seconds,
        payload_bytes=after.payload_bytes - sent.payload_bytes,
        wire_bytes=lab.store.wire_bytes() - wire,
        requests=after.requests - sent.requests,
    )


async def listed(engine: AlluxioEngine, path: str) -> BlockTable:
    """All files as they lie now."""
    table = BlockTable()
    async for page in engine.files(path=path):
        table.add(page)
    return table


def spread(table: BlockTable, nodes: Sequence[str], *, below: str = "") -> LoadWork:
    """Every block onto one of the nodes, in turn; only those of files whose path begins with `below`."""
    work = LoadWork(table=table)
    for block in range(len(table)):
        if table.path(table.file_of(block)).startswith(below):
            work.add(block=block, nodes=(nodes[block % len(nodes)],))
    return work


def replicated(table: BlockTable, nodes: Sequence[str]) -> LoadWork:
    """Every block onto all of the nodes."""
    work = LoadWork(table=table)
    for block in range(len(table)):
        work.add(block=block, nodes=tuple(nodes))
    return work


async def loaded(engine: AlluxioEngine, work: LoadWork) -> None:
    """Load, and make sure that all of it is there: by the listing, not by what the loader says."""
    run = LoadRun(engine=engine, work=work, on_done=lambda: None)
    progress = await run.wait()
    if run.error is not None or progress.failed_files:
        raise click.ClickException(f"the load failed: {run.error or progress.failures}")


async def require(engine: AlluxioEngine, path: str, work: LoadWork) -> None:
    """Fail unless a new listing shows every copy of a load in its place."""
    table = await listed(engine, path)
    absent = sum(1 for block, nodes in work for node in nodes if node not in table.holders(block))
    if absent:
        raise click.ClickException(f"{absent} copies are not where they were placed")


async def emptied(engine: AlluxioEngine, path: str) -> None:
    """Drop every copy."""
    table = await listed(engine, path)
    held: dict[str, list[int]] = {}
    for block in range(len(table)):
        for node in table.holders(block):
            held.setdefault(node, []).append(table.block(block).id)
    for node, ids in held.items():
        await engine.drop(worker=node, block_ids=ids)


async def downloads(lab: Lab, source: Source, table: BlockTable) -> None:
    """Read every file of a bucket by plain requests, each on a connection of its own, several at a time."""
    waiting = iter(range(table.files))

    async def lane() -> None:
        for file in waiting:
            address = lab.store.signed(source, table.path(file))
            command = ["curl", "-sSf", "-o", "/dev/null", address]
            process = await asyncio.create_subprocess_exec(*command)
            if await process.wait():
                raise click.ClickException(f"a plain download of {table.path(file)} failed")

    await asyncio.gather(*(lane() for _ in range(DOWNLOADS)))


async def ready(engine: AlluxioEngine, workers: int) -> None:
    """Wait until all workers are registered."""
    deadline = time.monotonic() + 60
    while len([worker for worker in await engine.workers() if worker.live]) < workers:
        if time.monotonic() > deadline:
            raise click.ClickException("the cache's workers did not come up within a minute")
        await asyncio.sleep(0.2)
