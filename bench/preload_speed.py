"""How fast the cache is filled, against what the link gives to plain downloads in the same run.

Scenarios, each printing one line of JSON (all of them when none is named):

* ``large``: 8 files of 256 MB over 400 Mbit/s (50 MB/s), partitioned over two nodes
* ``small``: 10,000 files of 100 KB over 160 Mbit/s (20 MB/s), partitioned over two nodes
* ``replicate``: 3,000 files of 100 KB over 160 Mbit/s, onto one node, then onto three
* ``replicate-slow``: 1,000 files of 100 KB over 60 Mbit/s, where the link is the bound, onto one node, then onto three
* ``replicate-large``: 4 files of 128 MB over 400 Mbit/s, onto one node, then onto three
* ``unshaped``: 10,000 files of 100 KB, no limit, partitioned over two nodes; then, in the order that it prints, by
  Alluxio's own ways of loading (`bench/ways_of_loading.py`), with the processor time that each of them takes
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
from dataclasses import dataclass, replace
from typing import Any

import click
from bench.cache_lab import Lab, lab
from bench.cpu_time import CpuTime, kinds
from bench.loading import (
    downloads,
    emptied,
    listed,
    loaded,
    measured,
    ready,
    replicated,
    require,
    spread,
)
from bench.ways_of_loading import compared

from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Source

GIB = 1 << 30
MB, KB = 10**6, 10**3


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
    plain = await measured(lab, lambda: downloads(lab, source, warm))
    return {
        "files_per_s": round(shape.files / load.seconds),
        "requests": load.requests,
        **load.over(rate=shape.rate or 1, wanted_bytes=shape.bytes),
        "plain_downloads": plain.over(rate=shape.rate or 1, wanted_bytes=shape.bytes),
    }


async def unshaped(lab: Lab, engine: AlluxioEngine, source: Source, path: str, shape: Shape) -> Result:
    """One copy over all nodes, beside Alluxio's own ways of loading."""
    return await compared(lab=lab, engine=engine, path=path, files=shape.files)


async def one_and_three(lab: Lab, engine: AlluxioEngine, source: Source, path: str, shape: Shape) -> Result:
    """One copy, then the same on three nodes: what the source sends, and how long it takes.

    Small files are first loaded onto all three once, not counted, so that the processes of both are as warm.
    """
    result: Result = {}
    nodes = [worker.name for worker in await engine.workers()]
    if shape.size < MB:
        await loaded(engine, replicated(await listed(engine, path), nodes))
        await emptied(engine, path)
    cpu = CpuTime(pids=kinds(lab))
    for count in (1, 3):
        work = replicated(await listed(engine, path), nodes[:count])
        cpu.again()
        load = await measured(lab, lambda work=work: loaded(engine, work))  # type: ignore[misc]
        used = cpu.report()
        await require(engine, path, work)
        result[f"nodes_{count}"] = load.over(rate=shape.rate or 1, wanted_bytes=shape.bytes)
        result[f"nodes_{count}"]["cpu_seconds"] = used
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
    "replicate-slow": (Shape(files=1_000, size=100 * KB, rate=60 * MB, workers=3), one_and_three),
    "replicate-large": (Shape(files=4, size=128 * MB, rate=400 * MB, workers=3), one_and_three),
    "unshaped": (Shape(files=10_000, size=100 * KB, rate=None), unshaped),
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
