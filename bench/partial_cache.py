"""What the source sends in each epoch when the cache holds only a part of the dataset; beside it Alluxio as it comes.

    PYTHONPATH=.:deploy/local:operator python bench/partial_cache.py [--files 3000] [--epochs 3] [--part 0.6]

A real Alluxio, a real S3 server that counts what it sends, and the node plugin, as processes on this machine. The
product: a worker of `--part` of the dataset's bytes, planned, loaded and protected by the operator's own code, and
read through the volume that a pod gets. Then Alluxio with its own defaults (profile Stock) on a worker of the same
size: nothing is loaded before, reads fill the cache, and it is read through its FUSE client. Each epoch reads every
file once in an order of its own, with the page cache dropped before. Prints one line of JSON for both ways; the exit
status is 1 when the product's source sends more than 1.05 of what is not in the cache from the second epoch on.
Needs root and FUSE.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from bench.cache_lab import Store, tidy_when_ended
from bench.loading import ready
from bench.read_speed import THREADS, Kind, Way, read
from tests.engine.servers import AlluxioCluster, make_home, random_network, unmount
from tests.engine.viewing import HERE, Bench, machine_as_node, native, viewing
from tests.support.waiting import eventually_async

from tdcs.controllers.dataset.adopting import adopt
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.looking import Question, look
from tdcs.controllers.dataset.plan import NodeView, Want
from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.alluxio.profile import Profile
from tdcs.engine.protocol import Source
from tdcs_local import programs

SIZE = 100_000
MIB = 1 << 20
MOUNTED = "/datasets/partial"
BAR = 1.05
"""How much more than what is not in the cache the source may send in an epoch, from the second one on."""


def cluster_of(*, folder: Path, capacity: int, profile: Profile) -> AlluxioCluster:
    """One worker on this node; not started."""
    return AlluxioCluster(
        home=make_home(folder, lib=programs.ensure("alluxio") / "lib"),
        folder=folder / "cluster",
        network=random_network(),
        workers={HERE: capacity},
        overrides={},
        profile_kind=profile,
    )


def epochs(*, store: Store, way: Way, kind: Kind, count: int) -> list[dict[str, float]]:
    """What the store sends in each epoch, over the dataset's bytes, and how long the epoch takes."""
    found = []
    for number in range(count):
        before = store.sent()
        seconds = read(way=way, kind=kind, seed=number)
        sent = store.sent()
        found.append(
            {
                "source_ratio": round((sent.payload_bytes - before.payload_bytes) / kind.total_bytes, 4),
                "requests": sent.requests - before.requests,
                "seconds": round(seconds, 1),
                "files_per_s": round(len(kind.files) / seconds),
            }
        )
    return found


async def listed(engine: AlluxioEngine, data: MountedData, *, wants: list[Want]) -> None:
    """List the dataset and plan, as the operator does."""
    nodes = {HERE: NodeView(name=HERE, labels={})}
    question = Question(wants=wants, workers=await engine.workers(), nodes=nodes)
    seen = await look(
        engine=engine, path=data.path, question=question, runs=lambda: data.runs, clock=time.monotonic
    )
    await adopt(data, seen, engine=engine, on_done=lambda: None, clock=time.monotonic)


async def placed(engine: AlluxioEngine, *, path: str) -> MountedData:
    """The dataset as the operator loads one that does not fit: planned, loaded, checked and protected."""
    data = MountedData(cluster="default", path=path)
    want = Want(key="Dataset bench/partial")
    await data.set_reading(engine, owned=True, fills=False)

    async def complete() -> bool:
        await listed(engine, data, wants=[want])
        if data.plan.missing:
            done = asyncio.Event()
            await data.start(keys=[want.key], engine=engine, on_done=done.set, clock=time.monotonic)
            await done.wait()
            return False
        return await data.settle(engine)

    await eventually_async(complete, deadline=300, interval=1.0)
    return data


async def by_product(
    *, store: Store, source: Source, kind: Kind, capacity: int, folder: Path, count: int
) -> dict[str, Any]:
    """The product's volume over a cache that is too small."""
    cluster = cluster_of(folder=folder, capacity=capacity, profile=Profile.TUNED)
    with machine_as_node() as node:
        async with viewing(cluster=cluster, s3=None, node=node, block_size=64 * MIB) as bench:
            await bench.engine.mount(path=MOUNTED, source=source)
            data = await placed(bench.engine, path=MOUNTED)
            volume = await _volume(bench, files=data.plan.wants["Dataset bench/partial"].placed_files)
            found = await asyncio.to_thread(
                epochs, store=store, way=Way(name="view", folder=volume), kind=kind, count=count
            )
            await listed(bench.engine, data, wants=[])
            held = data.held()
    return {"cached_part": round(held.cached_bytes / kind.total_bytes, 4), "epochs": found}


async def by_stock(
    *, store: Store, source: Source, kind: Kind, capacity: int, folder: Path, count: int
) -> dict[str, Any]:
    """Alluxio with its own defaults: reads through FUSE fill the cache, the least recently used goes."""
    cluster = cluster_of(folder=folder, capacity=capacity, profile=Profile.STOCK)
    try:
        await asyncio.to_thread(cluster.start)
        async with AlluxioEngine(master=cluster.target) as engine:
            await ready(engine, 1)
            await engine.mount(path=MOUNTED, source=source)
            client = await asyncio.to_thread(cluster.mount_fuse, HERE)
            way = Way(name="fuse-stock", folder=client.folder / MOUNTED.lstrip("/"))
            return {"epochs": await asyncio.to_thread(epochs, store=store, way=way, kind=kind, count=count)}
    finally:
        await asyncio.to_thread(cluster.stop)


async def _volume(bench: Bench, *, files: int) -> Path:
    volume = await bench.publish_path(MOUNTED)
    await eventually_async(lambda: len(native(volume)) == files, deadline=120)
    return volume


async def run(*, files: int, part: float, count: int) -> dict[str, Any]:
    """Both ways, one after the other, on the same store."""
    tidy_when_ended()
    folder = Path(tempfile.mkdtemp(prefix="tdcs-partial-"))
    store = Store(folder=folder / "store", number=int.from_bytes(os.urandom(1)) % 250 + 1)
    try:
        store.start()
        source = store.fill("bench", files=files, size=SIZE)
        root = store.root / "bench" / "data"
        kind = Kind(
            name="small",
            files=tuple(sorted(str(path.relative_to(root)) for path in root.rglob("*.bin"))),
            total_bytes=files * SIZE,
            threads=THREADS,
        )
        shared: Mapping[str, Any] = {
            "store": store,
            "source": source,
            "kind": kind,
            "capacity": int(kind.total_bytes * part),
            "count": count,
        }
        result: dict[str, Any] = {}
        for name, way in (("product", by_product), ("stock", by_stock)):
            (folder / name).mkdir()
            result[name] = await way(folder=folder / name, **shared)
        return result
    finally:
        store.stop()
        unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


@click.command()
@click.option("--files", default=3000, show_default=True, type=click.IntRange(min=10), help="of 100 KB")
@click.option("--epochs", "count", default=3, show_default=True, type=click.IntRange(min=2))
@click.option("--part", default=0.6, show_default=True, type=click.FloatRange(min=0.1, max=0.95))
def main(files: int, count: int, part: float) -> None:
    """Measure what the source sends when the dataset does not fit."""
    result = asyncio.run(run(files=files, part=part, count=count))
    worst = max(epoch["source_ratio"] for epoch in result["product"]["epochs"][1:])
    allowed = round(BAR * (1 - part), 4)
    head = {"benchmark": "partial_cache", "files": files, "bytes": files * SIZE, "cache_part": part}
    bar = {"worst_source_ratio": worst, "allowed": allowed}
    machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
    click.echo(json.dumps(head | bar | result | machine))
    if worst > allowed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
