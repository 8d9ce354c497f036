"""What a dataset of a million files costs the operator: memory, time, and how long others wait meanwhile.

The listing is generated in pages, as the engine gives them, and goes through what the operator does with a real one:
counted and packed, planned, loaded (the calls to workers answer at once), and listed and planned again. The cache
itself is not part of the measurement. Prints one line of JSON. From the root of the checkout::

    PYTHONPATH=operator python bench/million_files.py --files 1000000
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import click

from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.plan import NodeView, Want
from tdcs.engine.memory import MemoryEngine
from tdcs.engine.protocol import Block, CachedFile, PutFailure, WorkerInfo

PAGE = 2000
SIZE = 110_000
CAPACITY = 1 << 50
MIB = 1 << 20


class EndlessEngine(MemoryEngine):
    """An engine whose listing is generated, and that remembers of a block only who holds it: one byte each."""

    def __init__(self, *, files: int, workers: Sequence[str]) -> None:
        super().__init__(sources={}, workers={})
        self._names = list(workers)
        self._held = bytearray(files)

    async def workers(self) -> list[WorkerInfo]:
        return [
            WorkerInfo(name=name, address=f"{name}:1", capacity_bytes=CAPACITY, used_bytes=0, live=True)
            for name in self._names
        ]

    async def files(self, *, path: str, refresh: bool = False) -> AsyncIterator[list[CachedFile]]:
        for begin in range(0, len(self._held), PAGE):
            await asyncio.sleep(0)  # a page comes over the network
            yield [self._file(number) for number in range(begin, min(begin + PAGE, len(self._held)))]

    async def put(
        self, *, worker: str, blocks: Sequence[Block], pace: Callable[[int], Awaitable[None]] | None = None
    ) -> list[PutFailure]:
        await asyncio.sleep(0)
        return self._hold(worker, blocks)

    async def copy(self, *, source: str, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        await asyncio.sleep(0)
        return self._hold(worker, blocks)

    def _hold(self, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        bit = 1 << self._names.index(worker)
        for block in blocks:
            self._held[block.id] |= bit
        return []

    def _file(self, number: int) -> CachedFile:
        name = f"train/n{number // 1300:08d}/n{number // 1300:08d}_{number:08d}.JPEG"
        held = self._held[number]
        block = Block(
            id=number,
            length=SIZE + number % 1000,
            offset=0,
            source_path=f"s3://imagenet/{name}",
            mount_id=7,
            workers=frozenset(each for bit, each in enumerate(self._names) if held >> bit & 1),
        )
        return CachedFile(path=name, length=block.length, blocks=(block,))


class Delays:
    """How long another task of the same loop has to wait for its turn."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            self.longest = max(self.longest, time.monotonic() - began - 0.01)


async def measure(*, files: int, nodes: int) -> dict[str, object]:
    """Count, plan, load and count again."""
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    engine = EndlessEngine(files=files, workers=names)
    data = MountedData(cluster="default", path="/datasets/million")
    views = {name: NodeView(name=name, labels={}) for name in names}
    want = Want(key="Dataset n/million", mode="Replicate", node_count=nodes)
    delays, before = Delays(), resident()
    watching = asyncio.create_task(delays.watch())

    async def look() -> float:
        began = time.monotonic()
        await data.look(
            engine=engine,
            wants=[want],
            workers=await engine.workers(),
            nodes=views,
            held_before={},
            refresh=False,
            seen_for=None,
            on_done=lambda: None,
            clock=time.monotonic,
        )
        return round(time.monotonic() - began, 1)

    planned = await look()
    done = asyncio.Event()
    began = time.monotonic()
    await data.start(engine=engine, on_done=done.set, clock=time.monotonic)
    await done.wait()
    loaded = round(time.monotonic() - began, 1)
    checked = await look()
    watching.cancel()
    if data.plan.missing or data.held().total_files != files:
        raise click.ClickException("the load did not do all that was planned")
    return {
        "list_and_plan_s": planned,
        "load_s": loaded,
        "list_and_check_s": checked,
        "longest_wait_of_another_task_s": round(delays.longest, 3),
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
def main(files: int, nodes: int) -> None:
    """Measure what many files cost the operator."""
    result = asyncio.run(measure(files=files, nodes=nodes))
    head = {"benchmark": "million_files", "files": files, "copies": nodes}
    machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
    click.echo(json.dumps(head | result | machine))


if __name__ == "__main__":
    main()
