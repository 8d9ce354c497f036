"""How fast the cache is filled, against what the link gives to plain downloads in the same run.

Scenarios, each printing one line of JSON (all of them when none is named):

* ``large``: 8 files of 256 MB over 400 Mbit/s (50 MB/s), partitioned over two nodes
* ``small``: 10,000 files of 100 KB over 160 Mbit/s (20 MB/s), partitioned over two nodes
* ``replicate``: 3,000 files of 100 KB over 160 Mbit/s, onto one node, then onto three
* ``replicate-large``: 4 files of 128 MB over 400 Mbit/s, onto one node, then onto three
* ``unshaped``: 10,000 files of 100 KB, no limit, partitioned over two nodes; beside it Alluxio's own load
* ``tiny``: 10,000 files of 670 bytes over 20 Mbit/s onto two nodes, by cold and by warm processes

Real Alluxio processes with the product's settings, a real S3 server in a network namespace of its own, and the loader
of the operator. ``link_use`` is bytes on the wire over what the link can carry; ``payload_share`` is bytes of files
over it, which headers keep below 0.96. Needs root. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator python bench/preload_speed.py small
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from bench.cache_lab import Lab, lab

from tdcs.controllers.dataset.loader import LoadRun
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Source
from tdcs.engine.table import BlockTable

GIB = 1 << 30
MB, KB = 10**6, 10**3
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


def spread(table: BlockTable, nodes: Sequence[str]) -> LoadWork:
    """Every block onto one of the nodes, in turn."""
    work = LoadWork(table=table)
    for block in range(len(table)):
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


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a scenario loads over what."""

    files: int
    size: int
    rate: int | None
    workers: int = 2

    @property
    def bytes(self) -> int:
        """Of one copy."""
        return self.files * self.size


Result = dict[str, Any]


async def partitioned(lab: Lab, engine: AlluxioEngine, source: Source, path: str, shape: Shape) -> Result:
    """One copy over all nodes, against plain downloads."""
    nodes = [worker.name for worker in await engine.workers()]
    warm = await listed(engine, path)
    work = spread(warm, nodes)
    load = await measured(lab, lambda: loaded(engine, work))
    await require(engine, path, work)
    result: Result = {"files_per_s": round(shape.files / load.seconds), "requests": load.requests}
    if shape.rate is not None:
        result |= load.over(rate=shape.rate, wanted_bytes=shape.bytes)
        plain = await measured(lab, lambda: downloads(lab, source, warm))
        result["plain_downloads"] = plain.over(rate=shape.rate, wanted_bytes=shape.bytes)
    else:
        result["mb_per_s"] = round(shape.bytes / MB / load.seconds, 1)
        await emptied(engine, path)
        result["alluxio_load"] = await alluxio_load(lab, engine, path, shape)
    return result


async def alluxio_load(lab: Lab, engine: AlluxioEngine, path: str, shape: Shape) -> Result:
    """Alluxio's own load of the same files by the same processes.

    It is the one that its master drives (`fs load --submit`, since 2.9.1). The older distributedLoad needs the job
    service, whose processes this cache does not run.
    """
    program = Path(__file__).with_name("AlluxioLoad.java")
    command = ["java", "-cp", f"{lab.cache.libraries}/*", *lab.cache.client_options, str(program), path]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    words = output.decode().split()
    if process.returncode or "SUCCEEDED" not in words:
        raise click.ClickException(f"Alluxio's own load failed: {output.decode()} {errors.decode()[-500:]}")
    seconds = float(words[words.index("seconds") + 1])
    table = await listed(engine, path)
    there = sum(1 for block in range(len(table)) if table.holders(block))
    return {
        "seconds": round(seconds, 1),
        "files_per_s": round(shape.files / seconds),
        "files_cached": there,
    }


async def one_and_three(lab: Lab, engine: AlluxioEngine, source: Source, path: str, shape: Shape) -> Result:
    """One copy, then the same on three nodes: what the source sends, and how long it takes."""
    result: Result = {}
    for count in (1, 3):
        nodes = [worker.name for worker in await engine.workers()][:count]
        work = replicated(await listed(engine, path), nodes)
        load = await measured(lab, lambda work=work: loaded(engine, work))  # type: ignore[misc]
        await require(engine, path, work)
        result[f"nodes_{count}"] = load.over(rate=shape.rate or 1, wanted_bytes=shape.bytes)
        await emptied(engine, path)
    result["source_ratio"] = result["nodes_3"]["source_ratio"]
    result["time_ratio"] = round(result["nodes_3"]["seconds"] / result["nodes_1"]["seconds"], 2)
    return result


async def cold_and_warm(lab: Lab, engine: AlluxioEngine, source: Source, path: str, shape: Shape) -> Result:
    """The same load three times by the same processes: what starting up costs."""
    result: Result = {}
    for name in ("cold", "warm", "warmer"):
        nodes = [worker.name for worker in await engine.workers()]
        work = replicated(await listed(engine, path), nodes)
        load = await measured(lab, lambda work=work: loaded(engine, work))  # type: ignore[misc]
        await require(engine, path, work)
        result[name] = load.over(rate=shape.rate or 1, wanted_bytes=shape.bytes)
        await emptied(engine, path)
    return result


SCENARIOS: dict[str, tuple[Shape, Any]] = {
    "large": (Shape(files=8, size=256 * MB, rate=400 * MB), partitioned),
    "small": (Shape(files=10_000, size=100 * KB, rate=160 * MB), partitioned),
    "replicate": (Shape(files=3_000, size=100 * KB, rate=160 * MB, workers=3), one_and_three),
    "replicate-large": (Shape(files=4, size=128 * MB, rate=400 * MB, workers=3), one_and_three),
    "unshaped": (Shape(files=10_000, size=100 * KB, rate=None), partitioned),
    "tiny": (Shape(files=10_000, size=670, rate=20 * MB), cold_and_warm),
}


async def run(name: str, shape: Shape) -> Result:
    """One scenario on a cluster of its own."""
    scenario = SCENARIOS[name][1]
    path = f"/datasets/{name}"
    with lab(workers=shape.workers, capacity=4 * GIB) as place:
        source = place.store.fill("bench", files=shape.files, size=shape.size)
        async with AlluxioEngine(master=place.cache.target) as engine:
            await ready(engine, shape.workers)
            await engine.mount(path=path, source=source)
            await listed(engine, path)
            place.store.set_rate(shape.rate)
            return dict(await scenario(place, engine, source, path, shape))


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option(
    "--part",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.001, max=1),
    help="Part of the files, for a quick look.",
)
def main(names: tuple[str, ...], part: float) -> None:
    """Measure how fast the cache is filled."""
    for name in names or SCENARIOS:
        whole = SCENARIOS[name][0]
        shape = replace(whole, files=max(1, round(whole.files * part)))
        result = asyncio.run(run(name, shape))
        head = {"benchmark": "preload_speed", "scenario": name, "files": shape.files, "bytes": shape.bytes}
        rate = {} if shape.rate is None else {"link_mbit": shape.rate // MB}
        machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
        click.echo(json.dumps(head | rate | result | machine))


if __name__ == "__main__":
    main()
