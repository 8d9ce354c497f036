"""What a dataset of a million files costs the operator: memory, and how long another Dataset waits meanwhile.

The operator's own controller runs in this process, on an API server in memory, with two Datasets: one of a million
files and a small one. The listing of the large one is generated in pages, as the engine gives them, and calls to
workers answer at once: the cache itself is not part of the measurement, so the operator is as busy as it can be.
While the large one is counted, planned, loaded and checked, the small one is asked for again and again, and each time
it is noted when its pass has ended, and how much processor time this process took meanwhile: the rest of a wait is
other processes' doing. Prints one line of JSON. From the root of the checkout::

    PYTHONPATH=.:operator python bench/million_files.py --files 1000000

With ``--part 0.6`` the cache has room for 60 % of the dataset only.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from tests.unit.controllers.cluster import Cluster

from tdcs.controllers.context import Settings, WorkKey
from tdcs.engine.memory import MemoryEngine
from tdcs.engine.protocol import Block, CachedFile, PutFailure, WorkerInfo
from tdcs.kube.resources import DATASETS

PAGE = 2000
SIZE = 110_000
FIRST_ID = 1 << 40
"""Ids of the generated blocks begin here, above all others."""

MIB = 1 << 20
MEMORY_BAR_MIB = 400
LATENCY_BAR_SECONDS = 1.0
LARGE, SMALL = "million", "small"


class EndlessEngine(MemoryEngine):
    """An engine in which one source's listing is generated, and that remembers one byte of each of its blocks."""

    uri = "s3://imagenet"

    def __init__(self, *, files: int, workers: Sequence[str], part: float) -> None:
        capacity = math.ceil(files * (SIZE + 500) * part / 0.98 / (len(workers) if part < 1 else 1))
        super().__init__(
            sources={self.uri: {"generated": 1}, "s3://pictures": {f"{n:03d}.jpg": 1000 for n in range(100)}},
            workers=dict.fromkeys(workers, capacity + MIB),
        )
        self._names = list(workers)
        self._held = bytearray(files)
        self._used = dict.fromkeys(workers, 0)

    async def workers(self) -> list[WorkerInfo]:
        return [
            WorkerInfo(
                name=info.name,
                address=info.address,
                capacity_bytes=info.capacity_bytes,
                used_bytes=info.used_bytes + self._used[info.name],
                live=True,
            )
            for info in await super().workers()
        ]

    async def files(self, *, path: str, refresh: bool = False) -> AsyncIterator[list[CachedFile]]:
        if (await self.mounts()).get(path) != self.uri:
            async for page in super().files(path=path, refresh=refresh):
                yield page
            return
        for begin in range(0, len(self._held), PAGE):
            await asyncio.sleep(0)  # a page comes over the network
            yield [self._file(number) for number in range(begin, min(begin + PAGE, len(self._held)))]

    async def put(
        self, *, worker: str, blocks: Sequence[Block], pace: Callable[[int], Awaitable[None]] | None = None
    ) -> list[PutFailure]:
        await asyncio.sleep(0)
        others = self._hold(worker, blocks)
        return await super().put(worker=worker, blocks=others, pace=pace) if others else []

    async def copy(self, *, source: str, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        await asyncio.sleep(0)
        others = self._hold(worker, blocks)
        return await super().copy(source=source, worker=worker, blocks=others) if others else []

    async def drop(self, *, worker: str, block_ids: Iterable[int]) -> list[PutFailure]:
        bit, others = 1 << self._names.index(worker), []
        for number in block_ids:
            if number < FIRST_ID:
                others.append(number)
            elif self._held[number - FIRST_ID] & bit:
                self._held[number - FIRST_ID] &= ~bit
                self._used[worker] -= _length(number - FIRST_ID)
        return await super().drop(worker=worker, block_ids=others)

    def _hold(self, worker: str, blocks: Sequence[Block]) -> list[Block]:
        bit = 1 << self._names.index(worker)
        others = []
        for block in blocks:
            if block.id < FIRST_ID:
                others.append(block)
            elif not self._held[block.id - FIRST_ID] & bit:
                self._held[block.id - FIRST_ID] |= bit
                self._used[worker] += block.length
        return others

    def _file(self, number: int) -> CachedFile:
        name = f"train/n{number // 1300:08d}/n{number // 1300:08d}_{number:08d}.JPEG"
        held = self._held[number]
        block = Block(
            id=FIRST_ID + number,
            length=_length(number),
            offset=0,
            source_path=f"{self.uri}/{name}",
            mount_id=7,
            workers=frozenset(each for bit, each in enumerate(self._names) if held >> bit & 1),
        )
        return CachedFile(path=name, length=block.length, blocks=(block,))


def _length(number: int) -> int:
    return SIZE + number % 1000


class WatchedCluster(Cluster):
    """A cluster that notes when passes over Datasets begin and end."""

    def __init__(self, *, engine: MemoryEngine, nodes: Sequence[str]) -> None:
        super().__init__(engine=engine, nodes={name: {} for name in nodes}, settings=Settings())
        self._passed: dict[str, tuple[float, asyncio.Event]] = {}

    async def reconcile_dataset(self, key: WorkKey) -> float | None:
        began = time.monotonic()
        try:
            return await super().reconcile_dataset(key)
        finally:
            asked, ended = self._passed.get(key.name, (math.inf, asyncio.Event()))
            if began >= asked:
                ended.set()

    async def waited(self, name: str) -> float:
        """Ask for a pass over a Dataset; seconds until one that began after that has ended."""
        ended, asked = asyncio.Event(), time.monotonic()
        self._passed[name] = (asked, ended)
        self.context.queue.add(WorkKey(DATASETS, "n", name))
        await ended.wait()
        return time.monotonic() - asked


async def measure(*, files: int, nodes: int, part: float) -> dict[str, Any]:
    """Both Datasets, until the large one is ready and was looked at once more."""
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    engine = EndlessEngine(files=files, workers=names, part=part)
    async with WatchedCluster(engine=engine, nodes=names) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(SMALL, placement={"mode": "Replicate", "nodeCount": nodes})
        await cluster.until_state("Ready", SMALL)
        before, began = resident(), time.monotonic()
        waits: list[float] = []
        worked: list[float] = []

        async def ask() -> None:
            while True:
                used = time.process_time()
                waits.append(await cluster.waited(SMALL))
                worked.append(time.process_time() - used)
                await asyncio.sleep(0.02)

        asking = asyncio.create_task(ask())
        placement = {"mode": "Replicate", "nodeCount": nodes} if part >= 1 else {"mode": "Partition"}
        await cluster.create_dataset(LARGE, source={"uri": engine.uri}, placement=placement)
        await cluster.until(
            lambda: cluster.status(LARGE).get("state") in {"Ready", "Degraded"}, deadline=1800
        )
        ready = time.monotonic() - began
        asking.cancel()
        status = cluster.status(LARGE)
    if status["totalFiles"] != files:
        raise click.ClickException(f"the Dataset counts {status['totalFiles']} files, not {files}")
    ordered = sorted(waits)
    return {
        "ready_s": round(ready, 1),
        "state": status["state"],
        "cached_ratio": status["cachedRatio"],
        "passes_of_the_other": len(waits),
        "wait_of_the_other_p50_s": round(statistics.median(ordered), 3),
        "wait_of_the_other_p99_s": round(ordered[int(len(ordered) * 0.99)], 3),
        "wait_of_the_other_worst_s": round(ordered[-1], 3),
        "worst_processor_time_in_a_wait_s": round(max(worked), 3),
        "resident_before_mib": before,
        "resident_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def resident() -> int:
    """Memory of this process now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // MIB


@click.command()
@click.option("--files", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--nodes", default=2, show_default=True, type=click.IntRange(min=1, max=8))
@click.option("--part", default=1.0, show_default=True, type=click.FloatRange(min=0.05, max=1))
def main(files: int, nodes: int, part: float) -> None:
    """Measure what many files cost the operator; exit status 1 when that is more than the bars."""
    result = asyncio.run(measure(files=files, nodes=nodes, part=part))
    head = {"benchmark": "million_files", "files": files, "nodes": nodes, "cache_part": part}
    machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
    click.echo(json.dumps(head | result | machine))
    if (
        result["resident_peak_mib"] >= MEMORY_BAR_MIB
        or result["wait_of_the_other_worst_s"] >= LATENCY_BAR_SECONDS
    ):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
